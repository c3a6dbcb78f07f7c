"""The door to the coordinator: every request and timer of one broker's groups comes in here.

It keeps the groups, the shards they belong to, and their timers; what happens in a group is the
group machine's business. The transaction that a TxnOffsetCommit belongs to, authorisation, and
which broker leads which shard are the server's.

INVARIANT: a ticket is answered at most once. A request that is parked is answered by a later
call, but for those whose answer says that Kafka never answers them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, final

import attrs

from kgroup.broker.groups import administration, offsets, retention
from kgroup.broker.groups.answers import (
    Answer,
    DeletedGroup,
    DescribedGroup,
    FetchedGroup,
    GroupsDeleted,
    GroupsDescribed,
    GroupsListed,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
    PartitionResult,
    Response,
)
from kgroup.broker.groups.codes import ErrorCode
from kgroup.broker.groups.gate import Arrival, Shard, absent_error, stopped
from kgroup.broker.groups.group import Group
from kgroup.broker.groups.java import shard_of
from kgroup.broker.groups.machine import GroupMachine, left
from kgroup.broker.groups.records import Snapshot
from kgroup.broker.groups.refusals import refusal, refused_fetch
from kgroup.broker.groups.requests import (
    DeleteGroups,
    DescribeGroups,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetToCommit,
    Request,
    SyncGroup,
    Ticket,
    TxnOffsetCommit,
)
from kgroup.broker.groups.settings import CoordinatorSettings
from kgroup.broker.groups.store import OffsetStore
from kgroup.broker.groups.timers import TimerKind, TimerName, Timers
from kgroup.model import TopicPartition

_RETENTION: Final = TimerName(TimerKind.RETENTION)


@final
class Coordinator:
    """All groups of one broker. Not for use by two tasks at once; no method waits.

    Times are float seconds of one clock that never goes back; ``now`` of any call must not be
    before that of the call before. Every list of answers is in the order in which Kafka gives
    them; each ticket is answered at most once. That a client hung up changes nothing, as in
    Kafka: its parked request stays parked.
    """

    def __init__(
        self,
        settings: CoordinatorSettings,
        new_id: Callable[[], str],
        topics: Callable[[str], int | None],
        *,
        shards: Collection[int] | None = None,
    ) -> None:
        """Make a coordinator of empty shards.

        Args:
            settings: see ``CoordinatorSettings``.
            new_id: gives the UUID text that ends a new member id.
            topics: the number of partitions of a topic, or None for an unknown one.
            shards: the partitions of the offsets topic that this broker leads; None for all.
        """
        self._settings = settings
        self._new_id = new_id
        self._topics = topics
        led = range(settings.offsets_topic_partitions) if shards is None else shards
        self._shards = dict.fromkeys(led, Shard.ACTIVE)
        self._machines: dict[str, GroupMachine] = {}
        self._store = OffsetStore()
        self._timers = Timers()
        self._started = False
        self._shut_down = False
        self._handlers: dict[type, Callable[[float, Any, Ticket], list[Answer]]] = {
            JoinGroup: self._member_request,
            SyncGroup: self._member_request,
            Heartbeat: self._member_request,
            LeaveGroup: self._member_request,
            OffsetCommit: self._commit,
            TxnOffsetCommit: self._commit,
            OffsetFetch: self._fetch,
            OffsetDelete: self._delete_offsets,
            DescribeGroups: self._describe,
            ListGroups: self._list,
            DeleteGroups: self._delete_groups,
        }

    # Requests and timers

    def handle(self, now: float, request: Request, ticket: Ticket) -> list[Answer]:
        """Take a request in; its own answer may be among those returned, or be parked.

        Timers that are due come first. One that is set for now is left for ``expire``.
        """
        answers = self.expire(now)
        return [*answers, *self._handlers[type(request)](now, request, ticket)]

    def expire(self, now: float) -> list[Answer]:
        """Run every timer that is due, in order of its time."""
        self._start(now)
        answers: list[Answer] = []
        for timer in self._due(now):
            if timer.kind is TimerKind.RETENTION:
                self._drop_expired(now)
            else:
                answers += self._machines[timer.group_id].fire(now, timer)
        return answers

    @property
    def next_timer(self) -> float | None:
        """When ``expire`` must be called next, or None. It changes with every call."""
        return self._timers.next()

    # What happens around the groups

    def delete_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the offsets of partitions that no longer exist."""
        self._store.delete_partitions(partitions)

    def complete_transaction(self, producer_id: int, *, committed: bool) -> None:
        """End a producer's transaction: its pending offsets become committed or vanish."""
        self._store.complete(producer_id, committed=committed)

    def shut_down(self) -> None:
        """Answer COORDINATOR_NOT_AVAILABLE from now on. Parked requests stay unanswered."""
        self._shut_down = True

    # Shards

    def shard_of(self, group_id: str) -> int:
        """The partition of the offsets topic that a group belongs to."""
        return shard_of(group_id, self._settings.offsets_topic_partitions)

    def snapshot(self, shards: Collection[int] | None = None) -> Snapshot:
        """What another coordinator would find of these shards, all by default."""
        group_ids = self._groups_in(shards)
        offsets_known, pending = self._store.snapshot(group_ids)
        records = {
            group_id: machine.group.record
            for group_id, machine in self._machines.items()
            if group_id in group_ids
        }
        return Snapshot(
            groups={name: record for name, record in records.items() if record is not None},
            offsets=offsets_known,
            pending=pending,
        )

    def unload(self, now: float, shards: Collection[int] | None = None) -> list[Answer]:
        """Give shards up: whoever waits in them is sent to look for the new coordinator."""
        answers: list[Answer] = []
        group_ids = self._groups_in(shards)
        for group_id in group_ids:
            if group_id in self._machines:
                answers += self._machines.pop(group_id).unload(now)
        self._store.unload(group_ids)
        for shard in list(self._shards) if shards is None else shards:
            self._shards.pop(shard, None)
        return answers

    def begin_loading(self, shards: Collection[int]) -> None:
        """Lead shards whose records are not read yet; requests are told to come again."""
        self._shards.update(dict.fromkeys(shards, Shard.LOADING))

    def load(self, now: float, snapshot: Snapshot, shards: Collection[int]) -> None:
        """Lead shards with what a snapshot of them holds; every session starts anew."""
        self._start(now)
        self._shards.update(dict.fromkeys(shards, Shard.ACTIVE))
        self._store.load(snapshot.offsets, snapshot.pending)
        for record in snapshot.groups.values():
            self._keep(Group.from_record(record))
        for group_id in self._store.group_ids():
            if group_id not in self._machines:
                self._keep(Group(group_id, since=now))
        for group_id in snapshot.groups:
            self._machines[group_id].loaded(now)

    # A look inside, for tests and simulations

    def group(self, group_id: str) -> Group | None:
        """A group, to look at only, or None."""
        machine = self._machines.get(group_id)
        return None if machine is None else machine.group

    # Requests of members

    def _member_request(self, now: float, request: Any, ticket: Ticket) -> list[Answer]:
        error = self._stopped(request, request.group_id)
        if error is not None:
            return [Answer(ticket, refusal(request, error))]
        machine = self._machines.get(request.group_id)
        if machine is None:
            error = absent_error(request)
            if error is not None:
                return [Answer(ticket, _to_absent(request, error))]
            machine = self._make(now, request.group_id)
            machine.group.write_record(now)
        act = _BY_MEMBERS[type(request)]
        return act(machine, now, request, ticket)

    # Offsets

    def _commit(
        self, now: float, request: OffsetCommit | TxnOffsetCommit, ticket: Ticket
    ) -> list[Answer]:
        good = tuple(one for one in request.offsets if self._exists(one))
        results = [_unknown(one) for one in request.offsets if not self._exists(one)]
        if good:
            error = self._stopped(request, request.group_id) or self._judge(now, request)
            if error is ErrorCode.NONE:
                results += offsets.commit(now, request, good, self._store, self._settings)
            else:
                response = refusal(attrs.evolve(request, offsets=good), error)
                assert isinstance(response, OffsetsCommitted)
                results += response.partitions
        return [Answer(ticket, OffsetsCommitted(partitions=tuple(results)))]

    def _fetch(self, now: float, request: OffsetFetch, ticket: Ticket) -> list[Answer]:
        groups: list[FetchedGroup] = []
        for asked in request.groups:
            error = self._stopped(request, asked.group_id)
            if error is not None:
                groups.append(refused_fetch(request.version, asked, error))
            else:
                group = self.group(asked.group_id)
                groups.append(
                    offsets.fetch(asked, group, self._store, stable=request.require_stable)
                )
        return [Answer(ticket, OffsetsFetched(groups=tuple(groups)))]

    def _delete_offsets(self, now: float, request: OffsetDelete, ticket: Ticket) -> list[Answer]:
        error = self._stopped(request, request.group_id) or self._judge(now, request)
        if error is not ErrorCode.NONE:
            return [Answer(ticket, refusal(request, error))]
        good = tuple(one for one in request.partitions if self._exists(one))
        results = [_unknown(one) for one in request.partitions if not self._exists(one)]
        group = self._machines[request.group_id].group
        results += offsets.delete(request, good, group, self._store)
        return [Answer(ticket, OffsetsDeleted(partitions=tuple(results)))]

    # Administration

    def _describe(self, now: float, request: DescribeGroups, ticket: Ticket) -> list[Answer]:
        groups = []
        for group_id in request.group_ids:
            error = self._stopped(request, group_id)
            if error is not None:
                groups.append(DescribedGroup(group_id=group_id, error=error))
            else:
                group = self.group(group_id)
                groups.append(administration.describe(group_id, group, request.version))
        return [Answer(ticket, GroupsDescribed(groups=tuple(groups)))]

    def _list(self, now: float, request: ListGroups, ticket: Ticket) -> list[Answer]:
        for shard in self._shards.values():
            error = stopped(self._arrival(request, "", shard))
            if error is not None:
                return [Answer(ticket, GroupsListed(error=error))]
        groups = (machine.group for machine in self._machines.values())
        return [
            Answer(
                ticket,
                GroupsListed(
                    groups=tuple(
                        administration.listed(group)
                        for group in groups
                        if administration.is_listed(group, request.states, request.types)
                    )
                ),
            )
        ]

    def _delete_groups(self, now: float, request: DeleteGroups, ticket: Ticket) -> list[Answer]:
        results = []
        for group_id in dict.fromkeys(request.group_ids):
            error = self._stopped(request, group_id)
            if error is None:
                error = self._delete(now, group_id, request)
            results.append(DeletedGroup(group_id=group_id, error=error))
        return [Answer(ticket, GroupsDeleted(groups=tuple(results)))]

    def _delete(self, now: float, group_id: str, request: DeleteGroups) -> ErrorCode:
        machine = self._machines.get(group_id)
        if machine is None:
            return absent_error(request) or ErrorCode.NONE
        error = machine.judge(now, request)
        if error is ErrorCode.NONE:
            del self._machines[group_id]
            self._store.delete_group(group_id)
        return error

    # Groups, shards and timers

    def _exists(self, one: OffsetToCommit | TopicPartition) -> bool:
        partitions = self._topics(one.topic)
        return partitions is not None and 0 <= one.partition < partitions

    def _judge(self, now: float, request: Any) -> ErrorCode:
        """Whether a group allows what is asked; a commit may make the group."""
        machine = self._machines.get(request.group_id)
        if machine is None:
            error = absent_error(request)
            if error is not None:
                return error
            machine = self._make(now, request.group_id)
        return machine.judge(now, request)

    def _make(self, now: float, group_id: str) -> GroupMachine:
        return self._keep(Group(group_id, since=now))

    def _keep(self, group: Group) -> GroupMachine:
        machine = GroupMachine(group, self._settings, self._timers, self._new_id)
        self._machines[group.group_id] = machine
        return machine

    def _stopped(self, request: Any, group_id: str) -> ErrorCode | None:
        shard = self._shards.get(self.shard_of(group_id), Shard.ELSEWHERE)
        return stopped(self._arrival(request, group_id, shard))

    def _arrival(self, request: Any, group_id: str, shard: Shard) -> Arrival:
        return Arrival(
            request=request,
            group_id=group_id,
            shard=shard,
            shut_down=self._shut_down,
            settings=self._settings,
        )

    def _groups_in(self, shards: Collection[int] | None) -> dict[str, None]:
        group_ids = dict.fromkeys((*self._machines, *self._store.group_ids()))
        if shards is None:
            return group_ids
        wanted = set(shards)
        return {name: None for name in group_ids if self.shard_of(name) in wanted}

    def _start(self, now: float) -> None:
        if not self._started:
            self._started = True
            self._timers.set(_RETENTION, now + self._settings.offsets_retention_check_interval)

    def _due(self, now: float) -> Iterator[TimerName]:
        while (timer := self._timers.pop_due(now)) is not None:
            yield timer

    def _drop_expired(self, now: float) -> None:
        for group_id, machine in list(self._machines.items()):
            kept_for = self._settings.offsets_retention
            done = retention.drop_expired(now, kept_for, machine.group, self._store)
            if done:
                self._delete(now, group_id, DeleteGroups(group_ids=(group_id,)))
        self._timers.set(_RETENTION, now + self._settings.offsets_retention_check_interval)


_BY_MEMBERS: Final[Mapping[type, Callable[[GroupMachine, float, Any, Ticket], list[Answer]]]] = {
    JoinGroup: GroupMachine.join,
    SyncGroup: GroupMachine.sync,
    Heartbeat: GroupMachine.heartbeat,
    LeaveGroup: GroupMachine.leave,
}


def _to_absent(request: Any, error: ErrorCode) -> Response:
    if isinstance(request, LeaveGroup):
        return left(request, [error] * len(request.members))
    return refusal(request, error)


def _unknown(one: OffsetToCommit | TopicPartition) -> PartitionResult:
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return PartitionResult(topic=one.topic, partition=one.partition, error=error)
