"""The groups, as their coordinators show them in the history."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, final

import attrs

from kgroup.broker.groups.requests import (
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    OffsetCommit,
    SyncGroup,
    TxnOffsetCommit,
)
from kgroup.broker.groups.responses import (
    HeartbeatCompleted,
    JoinCompleted,
    LeaveCompleted,
    OffsetsCommitted,
    SyncCompleted,
)
from kgroup.error_codes import ErrorCode
from kgroup.testing.simulation.history import (
    CoordinatorMoved,
    GroupChanged,
    MemberSnapshot,
    ParkedRequestAnswered,
    RequestHandled,
    TopicChanged,
    TransactionEnded,
)
from kgroup.testing.simulation.touched import accepted
from kgroup.types import TopicPartition

PREPARING: Final = "PreparingRebalance"
COMPLETING: Final = "CompletingRebalance"
STABLE: Final = "Stable"
EMPTY: Final = "Empty"
DEAD: Final = "Dead"
"""The state of a group that this broker does not have, or has not loaded yet."""

STALE: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""The errors for a request from a former member or of a former generation."""
_RENEWS: Final = frozenset({ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS})


@final
@attrs.define(eq=False)
class GroupView:
    """One group.

    Attributes:
        now: the latest recorded state.
        before: the state recorded before that, in the same incarnation.
        members: the members of ``now``, by their ids.
        since: when its state was entered.
        preparing_since: when its last rebalance began.
        prepared: for each generation when the rebalance that led to it began.
        completed: for each generation when all members had joined.
        assignments: by (generation, member id), what the member was assigned.
        applied: by partition, the last commit that the coordinator applied.
        applied_as: by partition, which commit of all groups that was.
        loaded_at: when its coordinator loaded it, 0 if it was created there.
        replaced: for each static member whose instance id has a new member id: when, and which.
        left: members that left by their own request, or were refused for the group's size.
    """

    now: GroupChanged | None = None
    before: GroupChanged | None = None
    members: dict[str, MemberSnapshot] = attrs.field(factory=dict)
    since: float = 0.0
    preparing_since: float = 0.0
    prepared: dict[int, float] = attrs.field(factory=dict)
    completed: dict[int, float] = attrs.field(factory=dict)
    assignments: dict[tuple[int, str], frozenset[TopicPartition]] = attrs.field(factory=dict)
    applied: dict[TopicPartition, int] = attrs.field(factory=dict)
    applied_as: dict[TopicPartition, int] = attrs.field(factory=dict)
    loaded_at: float = 0.0
    replaced: dict[str, tuple[float, str]] = attrs.field(factory=dict)
    left: set[str] = attrs.field(factory=set)

    @property
    def generation_id(self) -> int:
        """As recorded last."""
        return -1 if self.now is None else self.now.generation_id

    @property
    def state(self) -> str:
        """As recorded last."""
        return EMPTY if self.now is None else self.now.state


@final
@attrs.frozen
class Commit:
    """The offsets that were requested, and those that were accepted."""

    requested: Mapping[TopicPartition, int]
    accepted: Mapping[TopicPartition, int]


@final
@attrs.frozen
class _Pending:
    """An offset in an open transaction, and which commit of all groups it is."""

    number: int
    offset: int


@final
class GroupsView:
    """All groups, and the requests of their members."""

    def __init__(self) -> None:
        self._groups: defaultdict[str, GroupView] = defaultdict(GroupView)
        self._parked: dict[int, RequestHandled] = {}
        self.owners: Final[dict[str, str]] = {}
        """For each member id the program that joined with it."""
        self.session_timeouts: Final[dict[str, float]] = {}
        self.rebalance_timeouts: Final[dict[str, float]] = {}
        self.renewed: Final[dict[str, float]] = {}
        """When each member's session was certainly renewed last."""
        self.possibly_renewed: Final[dict[str, float]] = {}
        """When each member's session was possibly renewed last."""
        self.parked: Final[dict[str, int]] = {}
        """For each member the ticket of its parked request."""
        self.heartbeat_answered_at: Final[dict[str, float]] = {}
        """When a heartbeat of each member was last answered without an error."""
        self.refused_at: Final[dict[str, float]] = {}
        """When a request of each member was last refused because of its member id or generation."""
        self.joined: Final[dict[str, float]] = {}
        """When each member sent its last JoinGroup."""
        self.synced: Final[dict[str, int]] = {}
        """For each member the generation of its last successful SyncGroup."""
        self.commit = Commit({}, {})
        """The OffsetCommit or TxnOffsetCommit of the entry that is being checked."""
        self.epochs: Final[dict[int, int]] = {}
        """For each producer the highest epoch of its TxnOffsetCommits."""
        self._commits = 0
        self._pending: Final[defaultdict[int, dict[tuple[str, TopicPartition], _Pending]]] = (
            defaultdict(dict)
        )
        """For each producer what its open transaction commits."""

    def __getitem__(self, group_id: str) -> GroupView:
        return self._groups[group_id]

    @property
    def handlers(self) -> Mapping[type[object] | str, Callable[[Any], None]]:
        """The handler for each kind of entry."""
        return {
            GroupChanged: self._changed,
            CoordinatorMoved: self._moved,
            ParkedRequestAnswered: self._answered,
            TopicChanged: self._topic_changed,
            TransactionEnded: self._transaction_ended,
            "join_group": self._joining,
            "sync_group": self._syncing,
            "leave_group": self._leaving,
            "heartbeat": self._heartbeat,
            "offset_commit": self._committing,
            "txn_offset_commit": self._adding_to_transaction,
        }

    def _changed(self, entry: GroupChanged) -> None:
        group = self._groups[entry.group_id]
        before = group.now
        group.before = (
            before if before is not None and before.incarnation == entry.incarnation else None
        )
        group.now = entry
        if before is None or before.state != entry.state:
            group.since = entry.at
        if entry.state == PREPARING and (before is None or before.state != PREPARING):
            group.preparing_since = entry.at
        if entry.state == COMPLETING:
            direct = before is None or before.state != PREPARING
            group.prepared[entry.generation_id] = entry.at if direct else group.preparing_since
            group.completed[entry.generation_id] = entry.at
            # After a failover the id may be that of a generation that was never written down.
            for member in entry.members:
                if self.synced.get(member.member_id) == entry.generation_id:
                    del self.synced[member.member_id]
        members = {member.member_id: member for member in entry.members}
        self._find_replaced(group, members, entry.at)
        for name in group.replaced.keys() & members.keys():
            del group.replaced[name]  # a failover lost the replacement, which was not written yet
        group.members = members
        if entry.assigned:
            for member in entry.members:
                group.assignments[entry.generation_id, member.member_id] = frozenset(
                    member.assignment
                )

    def _find_replaced(
        self, group: GroupView, members: Mapping[str, MemberSnapshot], at: float
    ) -> None:
        for name in members:
            group.replaced.pop(name, None)  # a failover may bring it back
        gone = [one for name, one in group.members.items() if name not in members]
        instances = {
            one.group_instance_id: one.member_id
            for one in members.values()
            if one.group_instance_id is not None
        }
        for one in gone:
            if one.group_instance_id in instances:
                group.replaced[one.member_id] = (at, instances[one.group_instance_id])

    def _moved(self, entry: CoordinatorMoved) -> None:
        group = self._groups[entry.group_id]
        group.applied = dict(entry.committed)
        group.loaded_at = entry.at

    def _topic_changed(self, entry: TopicChanged) -> None:
        if entry.partitions:
            return
        # The coordinator deletes the offsets of a deleted topic.
        for group in self._groups.values():
            for partition in [one for one in group.applied if one.topic == entry.topic]:
                del group.applied[partition]
        for pending in self._pending.values():
            for key in [one for one in pending if one[1].topic == entry.topic]:
                del pending[key]

    def _joining(self, entry: RequestHandled) -> None:
        request = entry.request
        assert isinstance(request, JoinGroup)
        self._note_request(entry, request)
        if entry.response is None:
            if request.member_id:
                self._remember_timeouts(request.member_id, request)
        elif isinstance(entry.response, JoinCompleted):
            self._join_answered(entry.response, entry, entry.at)
        if request.member_id:
            self.joined[request.member_id] = entry.at

    def _note_request(self, entry: RequestHandled, request: JoinGroup | SyncGroup) -> None:
        self.possibly_renewed[request.member_id] = entry.at
        if entry.response is None:
            self._parked[entry.ticket] = entry
            self.parked[request.member_id] = entry.ticket

    def _answered(self, entry: ParkedRequestAnswered) -> None:
        parked = self._parked.pop(entry.ticket, None)
        if parked is None:
            return
        request = parked.request
        assert isinstance(request, JoinGroup | SyncGroup)
        self.possibly_renewed[request.member_id] = entry.at
        if self.parked.get(request.member_id) == entry.ticket:
            del self.parked[request.member_id]
        if isinstance(entry.response, JoinCompleted):
            self._join_answered(entry.response, parked, entry.at)
        if getattr(entry.response, "error", None) is ErrorCode.NONE:
            self.renewed[getattr(entry.response, "member_id", request.member_id)] = entry.at

    def _join_answered(self, response: JoinCompleted, joining: RequestHandled, at: float) -> None:
        request = joining.request
        assert isinstance(request, JoinGroup)
        if response.error is ErrorCode.NONE:
            self._remember_timeouts(response.member_id, request)
            self.possibly_renewed[response.member_id] = at
            self.owners[response.member_id] = joining.process
        elif response.error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            self._groups[request.group_id].left.add(request.member_id)

    def _remember_timeouts(self, member_id: str, request: JoinGroup) -> None:
        self.session_timeouts[member_id] = request.session_timeout
        self.rebalance_timeouts[member_id] = (
            request.session_timeout
            if request.rebalance_timeout is None
            else request.rebalance_timeout
        )

    def _syncing(self, entry: RequestHandled) -> None:
        request, response = entry.request, entry.response
        assert isinstance(request, SyncGroup)
        self._note_request(entry, request)
        if response is None or (
            isinstance(response, SyncCompleted) and response.error is ErrorCode.NONE
        ):
            self.synced[request.member_id] = request.generation_id

    def _leaving(self, entry: RequestHandled) -> None:
        request, response = entry.request, entry.response
        assert isinstance(request, LeaveGroup)
        if not isinstance(response, LeaveCompleted) or response.error is not ErrorCode.NONE:
            return
        group = self._groups[request.group_id]
        for one in response.members or request.members:
            if getattr(one, "error", ErrorCode.NONE) is not ErrorCode.NONE:
                continue
            group.left.add(one.member_id)
            group.left.update(
                member.member_id
                for member in group.members.values()
                if one.group_instance_id is not None
                and member.group_instance_id == one.group_instance_id
            )

    def _heartbeat(self, entry: RequestHandled) -> None:
        request, response = entry.request, entry.response
        assert isinstance(request, Heartbeat)
        assert isinstance(response, HeartbeatCompleted)
        if response.error is ErrorCode.NONE:
            self.heartbeat_answered_at[request.member_id] = entry.at
        if response.error in STALE:
            self.refused_at[request.member_id] = entry.at
        elif response.error in _RENEWS:
            self.renewed[request.member_id] = self.possibly_renewed[request.member_id] = entry.at

    def _committing(self, entry: RequestHandled) -> None:
        request, response = entry.request, entry.response
        assert isinstance(request, OffsetCommit)
        assert isinstance(response, OffsetsCommitted)
        self.possibly_renewed[request.member_id] = entry.at
        requested = {
            TopicPartition(one.topic, one.partition): one.offset for one in request.offsets
        }
        if any(one.error in STALE for one in response.partitions):
            self.refused_at[request.member_id] = entry.at
        self.commit = Commit(requested, accepted(entry))
        if self.commit.accepted:
            self.renewed[request.member_id] = entry.at
        self._commits += 1
        group = self._groups[request.group_id]
        group.applied.update(self.commit.accepted)
        group.applied_as.update(dict.fromkeys(self.commit.accepted, self._commits))

    def _adding_to_transaction(self, entry: RequestHandled) -> None:
        request = entry.request
        assert isinstance(request, TxnOffsetCommit)
        requested = {
            TopicPartition(one.topic, one.partition): one.offset for one in request.offsets
        }
        self.commit = Commit(requested, accepted(entry))
        producer, epoch = request.producer_id, request.producer_epoch
        self.epochs[producer] = max(epoch, self.epochs.get(producer, epoch))
        self._commits += 1
        for partition, offset in self.commit.accepted.items():
            self._pending[producer][request.group_id, partition] = _Pending(self._commits, offset)

    def _transaction_ended(self, entry: TransactionEnded) -> None:
        pending = self._pending.pop(entry.producer_id, {})
        if not entry.committed:
            return
        for (group_id, partition), one in pending.items():
            group = self._groups[group_id]
            if one.number > group.applied_as.get(partition, 0):  # a later commit counts
                group.applied[partition] = one.offset
                group.applied_as[partition] = one.number
