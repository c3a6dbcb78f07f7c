"""Looks on: turns what coordinators, members and programs do into facts.

Nothing is judged here, and nothing that is looked at is changed. What a crashed program's tasks
do while they end is no fact: its process is gone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Hashable, Mapping, Sequence
from typing import Any, Final, final

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
from kgroup.errors import ProtocolError
from kgroup.events import Event
from kgroup.interfaces import Batch, Message
from kgroup.testing.simulation.history import (
    Answered,
    CoordinatorMoved,
    Fact,
    GroupChanged,
    HandedOut,
    Judged,
    MemberSeen,
    Processed,
    Skipped,
    Sought,
    Told,
)
from kgroup.types import Membership, TopicPartition
from kgroup.wire.consumer_protocol import decode_assignment

_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")
_GIVEN: Final = frozenset({ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED})
"""Answers to a Join that give a member its id."""
_ASSIGNED: Final = frozenset({GroupState.STABLE})


@final
class Recorder:
    """All facts of one simulation, in their order."""

    def __init__(self) -> None:
        self.facts: list[Fact] = []
        self._reactions: Mapping[type[Fact], Callable[[Any], None]] = {}

    def react(self, reactions: Mapping[type[Fact], Callable[[Any], None]]) -> None:
        """From now on, call these with the facts of their kinds."""
        self._reactions = reactions

    def note(self, kind: Callable[..., Fact], **fields: Any) -> None:
        """A fact of now."""
        fact = kind(at=trio.current_time(), **fields)
        self.facts.append(fact)
        if (react := self._reactions.get(type(fact))) is not None:
            react(fact)


@final
class MemberObserver:
    """Looks on at one life of a program; an ``Observer``."""

    def __init__(
        self, recorder: Recorder, process: str, life: int, creation_of: Callable[[Message], int]
    ) -> None:
        self._recorder = recorder
        self._who = {"process": process, "life": life}
        self._creation_of = creation_of
        self._shutdowns: list[Callable[[str], None]] = []
        self.gone = False
        """Whether the program has crashed: then nothing that it does is noted."""

    def opened(self, shutdown: Callable[[str], None]) -> None:
        """See ``Observer``."""
        self._shutdowns.append(shutdown)

    def shut_down(self, reason: str) -> None:
        """Ask every group that the program has opened to close."""
        for shutdown in self._shutdowns:
            shutdown(reason)

    def event(self, event: Event) -> None:
        """See ``Observer``."""
        self.note(Told, event=event)

    def handed_out(self, membership: Membership, batch: Batch) -> None:
        """See ``Observer``."""
        first = batch.messages[0].offset()
        self.note(
            HandedOut,
            group_id=membership.group_id,
            member_id=membership.member_id,
            generation_id=membership.generation_id,
            epoch=membership.epoch,
            partition=batch.partition,
            first=first,
            next_offset=batch.next_offset,
            left_out=_left_out(first, batch),
            creation=self._creation_of(batch.messages[0]),
        )

    def sought(self, membership: Membership, partition: TopicPartition, offset: int) -> None:
        """See ``Observer``."""
        self.note(
            Sought,
            group_id=membership.group_id,
            epoch=membership.epoch,
            partition=partition,
            offset=offset,
        )

    def processed(self, message: Message) -> None:
        """The program is done with a record."""
        self.note(
            Processed,
            partition=TopicPartition(message.topic(), message.partition()),
            offset=message.offset(),
            creation=self._creation_of(message),
        )

    def skipped(self, partition: TopicPartition, offset: int) -> None:
        """The program passes the records before an offset on purpose."""
        self.note(Skipped, partition=partition, offset=offset)

    def note(self, kind: Callable[..., Fact], **fields: Any) -> None:
        """A fact of this life, unless it is over."""
        if not self.gone:
            self._recorder.note(kind, **self._who, **fields)


@final
class CoordinatorObserver:
    """Looks on at the coordinators of all brokers; `watching` gives each its ``Watch``."""

    def __init__(self, recorder: Recorder, topics: Callable[[str], int | None]) -> None:
        self._recorder = recorder
        self._topics = topics
        self._processes: dict[str, str] = {}
        self._tickets: dict[Hashable, tuple[int, str]] = {}
        self._incarnations: dict[str, int] = {}
        self._seen: dict[str, object] = {}

    @property
    def group_ids(self) -> tuple[str, ...]:
        """The groups that were seen, in their order."""
        return tuple(self._seen)

    def watching(self, node_id: int, coordinator: GroupCoordinatorService) -> CoordinatorWatch:
        """What looks on at one broker's coordinator."""
        return CoordinatorWatch(self, node_id, coordinator)

    def loaded(
        self, node_id: int, coordinator: GroupCoordinatorService, shards: Collection[int]
    ) -> None:
        """Groups have a coordinator anew."""
        for group_id in [name for name in self._seen if coordinator.shard_of(name) in shards]:
            self._incarnations[group_id] = self._incarnations.get(group_id, 0) + 1
            offsets = coordinator.snapshot([coordinator.shard_of(group_id)]).offsets
            self._recorder.note(
                CoordinatorMoved,
                node_id=node_id,
                incarnation=self._incarnations[group_id],
                group_id=group_id,
                committed={
                    name: at.offset for name, at in sorted(offsets.get(group_id, {}).items())
                },
            )
            self._seen[group_id] = None
            self.look(node_id, coordinator, group_id)

    def asked(
        self,
        node_id: int,
        coordinator: GroupCoordinatorService,
        request: Request,
        ticket: Hashable,
        answers: Sequence[CoordinatorResponse],
    ) -> None:
        """A request was handled."""
        own, others = None, []
        for answer in answers:
            if answer.ticket is ticket:
                own = answer.response
            else:
                others.append(answer)
        group_id = getattr(request, "group_id", None)
        if others:
            self.answered(node_id, others)
        if isinstance(request, JoinGroup):
            self._told_its_id(own, _process_of(request.client_host))
        member_id = getattr(request, "member_id", "")
        process = self._who(request, member_id)
        number = -1
        if own is None:
            number = len(self._tickets)
            self._tickets[ticket] = number, process
        group = None if group_id is None else coordinator.group(group_id)
        self._recorder.note(
            Judged,
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
            self.look(node_id, coordinator, group_id)

    def answered(self, node_id: int, answers: Sequence[CoordinatorResponse]) -> None:
        """Requests that were parked have got their answers."""
        for answer in answers:
            if answer.ticket not in self._tickets:
                continue
            number, process = self._tickets[answer.ticket]
            self._told_its_id(answer.response, process)
            self._recorder.note(Answered, node_id=node_id, ticket=number, response=answer.response)

    def look(self, node_id: int, coordinator: GroupCoordinatorService, group_id: str) -> None:
        """Note the group if it has changed since it was looked at last."""
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
        self._recorder.note(
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

    def look_at_all(self, node_id: int, coordinator: GroupCoordinatorService) -> None:
        """Note every known group that has changed."""
        for group_id in list(self._seen):
            self.look(node_id, coordinator, group_id)

    def _members(self, group: ClassicGroup) -> tuple[MemberSeen, ...]:
        for member in group.members.values():
            self._processes.setdefault(member.member_id, _process_of(member.client_host))
        return tuple(
            MemberSeen(
                member_id=member.member_id,
                process=self._processes[member.member_id],
                group_instance_id=member.group_instance_id,
                assignment=_partitions(member.assignment),
            )
            for member in group.members.values()
        )

    def _told_its_id(self, response: object, process: str) -> None:
        """A member's id belongs to who was told of it, whoever its instance id was of before."""
        if isinstance(response, JoinCompleted) and response.member_id and response.error in _GIVEN:
            self._processes[response.member_id] = process

    def _who(self, request: Request, member_id: str) -> str:
        if isinstance(request, JoinGroup):
            return _process_of(request.client_host)
        if isinstance(request, LeaveGroup) and request.members:
            member_id = request.members[0].member_id
        return self._processes.get(member_id, "")


@final
class CoordinatorWatch:
    """Looks on at the coordinator of one broker; a ``Watch``."""

    def __init__(
        self, observer: CoordinatorObserver, node_id: int, coordinator: GroupCoordinatorService
    ) -> None:
        self._observer = observer
        self._node_id = node_id
        self._coordinator = coordinator

    def handled(
        self, request: Request, ticket: Hashable, answers: Sequence[CoordinatorResponse]
    ) -> None:
        """See ``Watch``."""
        self._observer.asked(self._node_id, self._coordinator, request, ticket, answers)

    def expired(self, answers: Sequence[CoordinatorResponse]) -> None:
        """See ``Watch``."""
        self._observer.answered(self._node_id, answers)
        self._observer.look_at_all(self._node_id, self._coordinator)

    def unloaded(self, shards: Collection[int], answers: Sequence[CoordinatorResponse]) -> None:
        """See ``Watch``."""
        del shards
        self._observer.answered(self._node_id, answers)

    def loaded(self, shards: Collection[int]) -> None:
        """See ``Watch``."""
        self._observer.loaded(self._node_id, self._coordinator, shards)


def _api(kind: type) -> str:
    name = _API[kind] = _CAPITAL.sub("_", kind.__name__).lower()
    return name


_API: Final[dict[type, str]] = {}


def _left_out(first: int, batch: Batch) -> tuple[int, ...]:
    """The offsets within a batch of which it has no record."""
    if batch.next_offset - first == len(batch):
        return ()
    there = {message.offset() for message in batch.messages}
    return tuple(one for one in range(first, batch.next_offset) if one not in there)


def _process_of(client_host: str) -> str:
    return client_host.removeprefix("/")


def _partitions(assignment: bytes) -> tuple[TopicPartition, ...]:
    try:
        return tuple(decode_assignment(assignment))
    except ProtocolError:  # what a foreign leader gives is no matter of ours
        return ()
