"""The groups, as their coordinators showed them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, final

import attrs

from kgroup.broker.groups.requests import Heartbeat, JoinGroup, LeaveGroup, OffsetCommit, SyncGroup
from kgroup.broker.groups.responses import (
    HeartbeatCompleted,
    JoinCompleted,
    LeaveCompleted,
    OffsetsCommitted,
    SyncCompleted,
)
from kgroup.error_codes import ErrorCode
from kgroup.testing.simulation.history import (
    Answered,
    CoordinatorMoved,
    GroupChanged,
    Judged,
    MemberSeen,
    TopicChanged,
)
from kgroup.types import TopicPartition

PREPARING: Final = "PreparingRebalance"
COMPLETING: Final = "CompletingRebalance"
STABLE: Final = "Stable"
EMPTY: Final = "Empty"
DEAD: Final = "Dead"
"""Of a group that this broker does not have, or not yet."""

STALE: Final = frozenset(
    {
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""What only who is no member, or not in the generation that it names, deserves to hear."""
_RENEWS: Final = frozenset({ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS})


@final
@attrs.define(eq=False)
class GroupView:
    """One group.

    Attributes:
        now: as it was seen last.
        before: the one before that, in the same incarnation.
        members: those of ``now`` by their ids.
        since: when its state was entered.
        prepared: for each generation when the rebalance that led to it began.
        completed: for each generation when its members were known.
        assignments: what each member was given in each generation, by (generation, member id).
        applied: the last commit that the coordinator applied, by partition.
        loaded_at: when its coordinator took it over, 0 if it began there.
        replaced: static members whose instance has another member id now, with when and by whom.
        left: members that have left, or were turned away, by their own requests.
    """

    now: GroupChanged | None = None
    before: GroupChanged | None = None
    members: dict[str, MemberSeen] = attrs.field(factory=dict)
    since: float = 0.0
    preparing_since: float = 0.0
    prepared: dict[int, float] = attrs.field(factory=dict)
    completed: dict[int, float] = attrs.field(factory=dict)
    assignments: dict[tuple[int, str], frozenset[TopicPartition]] = attrs.field(factory=dict)
    applied: dict[TopicPartition, int] = attrs.field(factory=dict)
    loaded_at: float = 0.0
    replaced: dict[str, tuple[float, str]] = attrs.field(factory=dict)
    left: set[str] = attrs.field(factory=set)

    @property
    def generation_id(self) -> int:
        """Of the last look."""
        return -1 if self.now is None else self.now.generation_id

    @property
    def state(self) -> str:
        """Of the last look."""
        return EMPTY if self.now is None else self.now.state


@final
@attrs.frozen
class Commit:
    """An OffsetCommit: what was asked for, and what of it was accepted."""

    asked: Mapping[TopicPartition, int]
    accepted: Mapping[TopicPartition, int]


@final
class Groups:
    """All groups, and what their members asked for."""

    def __init__(self) -> None:
        self._groups: defaultdict[str, GroupView] = defaultdict(GroupView)
        self._parked: dict[int, Judged] = {}
        self.owners: Final[dict[str, str]] = {}
        """The process that was told of each member id."""
        self.session_timeouts: Final[dict[str, float]] = {}
        self.rebalance_timeouts: Final[dict[str, float]] = {}
        self.renewed: Final[dict[str, float]] = {}
        """When each member's session was renewed last, for certain."""
        self.heard: Final[dict[str, float]] = {}
        """When each member's session can have been renewed last."""
        self.waiting: Final[dict[str, int]] = {}
        """The ticket of what each member has parked."""
        self.beaten: Final[dict[str, float]] = {}
        """When each member's heartbeat was answered without an error last."""
        self.turned_away: Final[dict[str, float]] = {}
        """When each member was told last that it is none, or not in that generation."""
        self.joined: Final[dict[str, float]] = {}
        """When each member asked to join last."""
        self.synced: Final[dict[str, int]] = {}
        """In which generation each member's Sync was taken last."""
        self.commit = Commit({}, {})
        """What the OffsetCommit that is being looked at says."""

    def __getitem__(self, group_id: str) -> GroupView:
        return self._groups[group_id]

    @property
    def reactions(self) -> Mapping[type[object] | str, Callable[[Any], None]]:
        """What is done with each kind of fact."""
        return {
            GroupChanged: self._changed,
            CoordinatorMoved: self._moved,
            Answered: self._answered,
            TopicChanged: self._topic_changed,
            "join_group": self._joining,
            "sync_group": self._syncing,
            "leave_group": self._leaving,
            "heartbeat": self._heartbeat,
            "offset_commit": self._committing,
        }

    def _changed(self, fact: GroupChanged) -> None:
        group = self._groups[fact.group_id]
        before = group.now
        group.before = (
            before if before is not None and before.incarnation == fact.incarnation else None
        )
        group.now = fact
        if before is None or before.state != fact.state:
            group.since = fact.at
        if fact.state == PREPARING and (before is None or before.state != PREPARING):
            group.preparing_since = fact.at
        if fact.state == COMPLETING:
            direct = before is None or before.state != PREPARING
            group.prepared[fact.generation_id] = fact.at if direct else group.preparing_since
            group.completed[fact.generation_id] = fact.at
        members = {member.member_id: member for member in fact.members}
        self._find_replaced(group, members, fact.at)
        for name in group.replaced.keys() & members.keys():
            del group.replaced[name]  # what was not written down a failover has lost
        group.members = members
        if fact.assigned:
            for member in fact.members:
                group.assignments[fact.generation_id, member.member_id] = frozenset(
                    member.assignment
                )

    def _find_replaced(
        self, group: GroupView, members: Mapping[str, MemberSeen], at: float
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

    def _moved(self, fact: CoordinatorMoved) -> None:
        group = self._groups[fact.group_id]
        group.applied = dict(fact.committed)
        group.loaded_at = fact.at

    def _topic_changed(self, fact: TopicChanged) -> None:
        if fact.partitions:
            return
        for group in self._groups.values():  # a topic takes what was committed of it along
            for partition in [one for one in group.applied if one.topic == fact.topic]:
                del group.applied[partition]

    def _joining(self, fact: Judged) -> None:
        request = fact.request
        assert isinstance(request, JoinGroup)
        self._heard(fact, request)
        if fact.response is None:
            if request.member_id:
                self._know(request.member_id, request)
        elif isinstance(fact.response, JoinCompleted):
            self._told(fact.response, fact, fact.at)
        if request.member_id:
            self.joined[request.member_id] = fact.at

    def _heard(self, fact: Judged, request: JoinGroup | SyncGroup) -> None:
        self.heard[request.member_id] = fact.at
        if fact.response is None:
            self._parked[fact.ticket] = fact
            self.waiting[request.member_id] = fact.ticket

    def _answered(self, fact: Answered) -> None:
        parked = self._parked.pop(fact.ticket, None)
        if parked is None:
            return
        request = parked.request
        assert isinstance(request, JoinGroup | SyncGroup)
        self.heard[request.member_id] = fact.at
        if self.waiting.get(request.member_id) == fact.ticket:
            del self.waiting[request.member_id]
        if isinstance(fact.response, JoinCompleted):
            self._told(fact.response, parked, fact.at)

    def _told(self, response: JoinCompleted, asked: Judged, at: float) -> None:
        request = asked.request
        assert isinstance(request, JoinGroup)
        if response.error is ErrorCode.NONE:
            self._know(response.member_id, request)
            self.heard[response.member_id] = at
            self.owners[response.member_id] = asked.process
        elif response.error is ErrorCode.GROUP_MAX_SIZE_REACHED:
            self._groups[request.group_id].left.add(request.member_id)

    def _know(self, member_id: str, request: JoinGroup) -> None:
        self.session_timeouts[member_id] = request.session_timeout
        self.rebalance_timeouts[member_id] = (
            request.session_timeout
            if request.rebalance_timeout is None
            else request.rebalance_timeout
        )

    def _syncing(self, fact: Judged) -> None:
        request, response = fact.request, fact.response
        assert isinstance(request, SyncGroup)
        self._heard(fact, request)
        if response is None or (
            isinstance(response, SyncCompleted) and response.error is ErrorCode.NONE
        ):
            self.synced[request.member_id] = request.generation_id

    def _leaving(self, fact: Judged) -> None:
        request, response = fact.request, fact.response
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

    def _heartbeat(self, fact: Judged) -> None:
        request, response = fact.request, fact.response
        assert isinstance(request, Heartbeat)
        assert isinstance(response, HeartbeatCompleted)
        if response.error is ErrorCode.NONE:
            self.beaten[request.member_id] = fact.at
        if response.error in STALE:
            self.turned_away[request.member_id] = fact.at
        elif response.error in _RENEWS:
            self.renewed[request.member_id] = self.heard[request.member_id] = fact.at

    def _committing(self, fact: Judged) -> None:
        request, response = fact.request, fact.response
        assert isinstance(request, OffsetCommit)
        assert isinstance(response, OffsetsCommitted)
        self.heard[request.member_id] = fact.at
        asked = {TopicPartition(one.topic, one.partition): one.offset for one in request.offsets}
        if any(one.error in STALE for one in response.partitions):
            self.turned_away[request.member_id] = fact.at
        good = [one for one in response.partitions if one.error is ErrorCode.NONE]
        if len(good) == len(asked):
            accepted = asked
        else:
            names = [TopicPartition(one.topic, one.partition) for one in good]
            accepted = {name: asked[name] for name in names}
        self.commit = Commit(asked, accepted)
        self._groups[request.group_id].applied.update(accepted)
