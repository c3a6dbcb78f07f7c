"""Observers: record what coordinators, members and programs do as entries of the history.

Observers judge nothing and change nothing. What the tasks of a crashed program still do while they
are cancelled is not recorded: a real process would be gone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from itertools import accumulate
from typing import Any, Final, final
from weakref import WeakKeyDictionary

import trio

from kgroup.broker.groups.coordinator import GroupCoordinatorService
from kgroup.broker.groups.group import ClassicGroup
from kgroup.broker.groups.requests import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetFetch,
    Request,
)
from kgroup.broker.groups.responses import CoordinatorResponse, JoinCompleted
from kgroup.broker.groups.states import GroupState
from kgroup.error_codes import ErrorCode
from kgroup.errors import ProtocolError, UsageError
from kgroup.events import Assigned, Event
from kgroup.interfaces import Batch, Message
from kgroup.records.memory import LogMessage
from kgroup.testing.simulation.history import (
    CoordinatorMoved,
    EventReported,
    GroupChanged,
    HandedOut,
    HistoryEntry,
    MemberSnapshot,
    ParkedRequestAnswered,
    Processed,
    RecordsSkipped,
    RequestHandled,
    SeekCalled,
)
from kgroup.types import Membership, TopicPartition
from kgroup.wire.consumer_protocol import decode_assignment

_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")
_ID_GIVEN: Final = frozenset({ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED})
"""The errors of a JoinGroup response that gives a member its id."""
_ASSIGNED: Final = frozenset({GroupState.STABLE})
_WHICH_MESSAGE: Final = (
    "report the very message that the batch had, so that the simulator knows which group read it"
)
_WHICH_GROUP: Final = "name the one that skips: process.skipped(partition, offset, group_id)"


@final
class Recorder:
    """Records the history of one simulation."""

    def __init__(self) -> None:
        self.history: list[HistoryEntry] = []
        self._handlers: dict[type[HistoryEntry], list[Callable[[Any], None]]] = {}

    def subscribe(self, handlers: Mapping[type[HistoryEntry], Callable[[Any], None]]) -> None:
        """From now on, call each handler with the entries of its kind."""
        for kind, handle in handlers.items():
            self._handlers.setdefault(kind, []).append(handle)

    def record(self, kind: Callable[..., HistoryEntry], **fields: Any) -> None:
        """Append an entry of this moment."""
        entry = kind(at=trio.current_time(), **fields)
        self.history.append(entry)
        for handle in self._handlers.get(type(entry), ()):
            handle(entry)


@final
class MemberObserver:
    """Records what one run of a program does; an ``Observer``."""

    def __init__(
        self, recorder: Recorder, process: str, life: int, creation_of: Callable[[Message], int]
    ) -> None:
        self._recorder = recorder
        self._identity = {"process": process, "life": life}
        self._creation_of = creation_of
        self._shutdowns: list[Callable[[str], None]] = []
        self._readers: dict[TopicPartition, dict[str, None]] = {}
        """For each partition the groups that it was assigned to; a program may have several."""
        self._read_by: WeakKeyDictionary[Message, str] = WeakKeyDictionary()
        """The group of each record that was handed out and is still in use."""
        self.gone = False
        """Whether the program has crashed; then nothing more is recorded."""

    def opened(self, shutdown: Callable[[str], None]) -> None:
        """See ``Observer``."""
        self._shutdowns.append(shutdown)

    def shut_down(self, reason: str) -> None:
        """Ask every group that the program has opened to close."""
        for shutdown in self._shutdowns:
            shutdown(reason)

    def event(self, event: Event) -> None:
        """See ``Observer``."""
        if isinstance(event, Assigned):
            for partition in event.assignment:
                self._readers.setdefault(partition, {})[event.group_id] = None
        self.record(EventReported, event=event)

    def handed_out(self, membership: Membership, batch: Batch) -> None:
        """See ``Observer``."""
        self._read_by.update(dict.fromkeys(batch.messages, membership.group_id))
        first = batch.messages[0].offset()
        self.record(
            HandedOut,
            group_id=membership.group_id,
            member_id=membership.member_id,
            generation_id=membership.generation_id,
            epoch=membership.epoch,
            partition=batch.partition,
            first=first,
            next_offset=batch.next_offset,
            left_out=_left_out(first, batch),
            misplaced=_misplaced(batch),
            creation=self._creation_of(batch.messages[0]),
        )

    def sought(self, membership: Membership, partition: TopicPartition, offset: int) -> None:
        """See ``Observer``."""
        self.record(
            SeekCalled,
            group_id=membership.group_id,
            epoch=membership.epoch,
            partition=partition,
            offset=offset,
        )

    def processed(self, message: Message) -> None:
        """The program has processed a record.

        Raises:
            UsageError: it is a copy of a record that several groups of the program read.
        """
        partition = TopicPartition(message.topic(), message.partition())
        known = self._read_by.get(message) if isinstance(message, LogMessage) else None
        self.record(
            Processed,
            partition=partition,
            offset=message.offset(),
            creation=self._creation_of(message),
            group_id=self._reader(partition, _WHICH_MESSAGE) if known is None else known,
        )

    def skipped(self, partition: TopicPartition, offset: int, group_id: str | None) -> None:
        """A group of the program skips the records before an offset on purpose.

        Raises:
            UsageError: several groups of the program read the partition, and none is named.
        """
        if group_id is None:
            group_id = self._reader(partition, _WHICH_GROUP)
        self.record(RecordsSkipped, partition=partition, offset=offset, group_id=group_id)

    def _reader(self, partition: TopicPartition, advice: str) -> str:
        """The only group that was assigned a partition, empty if none was."""
        readers = sorted(self._readers.get(partition, ()))
        if len(readers) > 1:
            raise UsageError(
                f"{self._identity['process']}: the groups {', '.join(map(repr, readers))} of this"
                f" program all read {partition}; {advice}"
            )
        return readers[0] if readers else ""

    def record(self, kind: Callable[..., HistoryEntry], **fields: Any) -> None:
        """Append an entry of this run, unless it has crashed."""
        if not self.gone:
            self._recorder.record(kind, **self._identity, **fields)


@final
class CoordinatorObserver:
    """Records what the coordinators of all brokers do; `for_broker` makes one for each."""

    def __init__(self, recorder: Recorder, topics: Callable[[str], int | None]) -> None:
        self._recorder = recorder
        self._topics = topics
        self._processes: dict[str, str] = {}
        self._tickets: dict[Hashable, tuple[int, str]] = {}
        self._incarnations: dict[str, int] = {}
        self._seen: dict[str, object] = {}

    @property
    def group_ids(self) -> tuple[str, ...]:
        """The groups that were seen, in the order of their first appearance."""
        return tuple(self._seen)

    def for_broker(self, node_id: int, coordinator: GroupCoordinatorService) -> BrokerObserver:
        """The observer of one broker's coordinator."""
        return BrokerObserver(self, node_id, coordinator)

    def loaded(
        self, node_id: int, coordinator: GroupCoordinatorService, shards: Collection[int]
    ) -> None:
        """A broker's coordinator has loaded shards."""
        for group_id in [name for name in self._seen if coordinator.shard_of(name) in shards]:
            self._incarnations[group_id] = self._incarnations.get(group_id, 0) + 1
            offsets = coordinator.snapshot([coordinator.shard_of(group_id)]).offsets
            self._recorder.record(
                CoordinatorMoved,
                node_id=node_id,
                incarnation=self._incarnations[group_id],
                group_id=group_id,
                committed={
                    name: at.offset for name, at in sorted(offsets.get(group_id, {}).items())
                },
            )
            self._seen[group_id] = None
            self.record_group(node_id, coordinator, group_id)

    def handled(
        self,
        node_id: int,
        coordinator: GroupCoordinatorService,
        request: Request,
        ticket: Hashable,
        responses: Sequence[CoordinatorResponse],
    ) -> None:
        """A coordinator handled a request."""
        own, others = None, []
        for response in responses:
            if response.ticket is ticket:
                own = response.response
            else:
                others.append(response)
        group_id = getattr(request, "group_id", None)
        if others:
            self.answered(node_id, others)
        if isinstance(request, JoinGroup):
            self._remember_process(own, _process_of(request.client_host))
        member_id = getattr(request, "member_id", "")
        process = self._sender(request, member_id)
        number = -1
        if own is None:
            number = len(self._tickets)
            self._tickets[ticket] = number, process
        group = None if group_id is None else coordinator.group(group_id)
        self._recorder.record(
            RequestHandled,
            node_id=node_id,
            incarnation=self._incarnations.get(group_id or "", 0),
            api=_API[type(request)] if type(request) in _API else _api(type(request)),
            ticket=number,
            process=process,
            request=request,
            response=own,
            state=GroupState.DEAD.value if group is None else group.state.value,
            group_generation_id=-1 if group is None else group.generation_id,
            is_member=group is not None and member_id in group.members,
        )
        if group_id is not None and not isinstance(request, Heartbeat | OffsetFetch):
            self.record_group(node_id, coordinator, group_id)

    def answered(self, node_id: int, responses: Sequence[CoordinatorResponse]) -> None:
        """Coordinators answered parked requests."""
        for response in responses:
            if response.ticket not in self._tickets:
                continue
            number, process = self._tickets[response.ticket]
            self._remember_process(response.response, process)
            self._recorder.record(
                ParkedRequestAnswered, node_id=node_id, ticket=number, response=response.response
            )

    def record_group(
        self, node_id: int, coordinator: GroupCoordinatorService, group_id: str
    ) -> None:
        """Record the group if it has changed since it was recorded last."""
        group = coordinator.group(group_id)
        if group is None:
            return
        seen = (
            group.state,
            group.generation_id,
            group.leader,
            tuple(group.members),
            self._incarnations.get(group_id, 0),
        )
        if self._seen.get(group_id) == seen:
            return
        self._seen[group_id] = seen
        self._recorder.record(
            GroupChanged,
            node_id=node_id,
            incarnation=self._incarnations.get(group_id, 0),
            group_id=group_id,
            state=group.state.value,
            generation_id=group.generation_id,
            leader=group.leader,
            members=self._members(group),
            assigned=group.state in _ASSIGNED,
            topics={name: self._topics(name) or 0 for name in sorted(group.topics or ())},
            assignor=group.protocol_name,
        )

    def record_groups(self, node_id: int, coordinator: GroupCoordinatorService) -> None:
        """Record every known group that has changed."""
        for group_id in list(self._seen):
            self.record_group(node_id, coordinator, group_id)

    def _members(self, group: ClassicGroup) -> tuple[MemberSnapshot, ...]:
        for member in group.members.values():
            self._processes.setdefault(member.member_id, _process_of(member.client_host))
        return tuple(
            MemberSnapshot(
                member_id=member.member_id,
                process=self._processes[member.member_id],
                group_instance_id=member.group_instance_id,
                assignment=_partitions(member.assignment),
            )
            for member in group.members.values()
        )

    def _remember_process(self, response: object, process: str) -> None:
        """A member id belongs to the program that got it in a JoinGroup response."""
        if (
            isinstance(response, JoinCompleted)
            and response.member_id
            and response.error in _ID_GIVEN
        ):
            self._processes[response.member_id] = process

    def _sender(self, request: Request, member_id: str) -> str:
        if isinstance(request, JoinGroup):
            return _process_of(request.client_host)
        if isinstance(request, LeaveGroup) and request.members:
            member_id = request.members[0].member_id
        return self._processes.get(member_id, "")


@final
class BrokerObserver:
    """Observes the coordinator of one broker; a ``PurgatoryObserver``."""

    def __init__(
        self, observer: CoordinatorObserver, node_id: int, coordinator: GroupCoordinatorService
    ) -> None:
        self._observer = observer
        self._node_id = node_id
        self._coordinator = coordinator

    def handled(
        self, request: Request, ticket: Hashable, responses: Sequence[CoordinatorResponse]
    ) -> None:
        """See ``PurgatoryObserver``."""
        self._observer.handled(self._node_id, self._coordinator, request, ticket, responses)

    def expired(self, responses: Sequence[CoordinatorResponse]) -> None:
        """See ``PurgatoryObserver``."""
        self._observer.answered(self._node_id, responses)
        self._observer.record_groups(self._node_id, self._coordinator)

    def unloaded(self, shards: Collection[int], responses: Sequence[CoordinatorResponse]) -> None:
        """See ``PurgatoryObserver``."""
        del shards
        self._observer.answered(self._node_id, responses)

    def loaded(self, shards: Collection[int]) -> None:
        """See ``PurgatoryObserver``."""
        self._observer.loaded(self._node_id, self._coordinator, shards)


def _api(kind: type) -> str:
    name = _API[kind] = _CAPITAL.sub("_", kind.__name__).lower()
    return name


_API: Final[dict[type, str]] = {}


def _left_out(first: int, batch: Batch) -> tuple[int, ...]:
    """The offsets within a batch's range that the batch does not have."""
    there = {message.offset() for message in batch.messages}
    return tuple(one for one in range(first, batch.next_offset) if one not in there)


def _misplaced(batch: Batch) -> tuple[int, ...]:
    """The offsets in a batch that are not after all those before them."""
    offsets = [message.offset() for message in batch.messages]
    highest = accumulate(offsets, max)
    return tuple(one for one, before in zip(offsets[1:], highest, strict=False) if one <= before)


def _process_of(client_host: str) -> str:
    return client_host.removeprefix("/")


def _partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    try:
        return tuple(decode_assignment(assignment))
    except ProtocolError:  # a leader that is not kgroup's may send anything
        return ()
