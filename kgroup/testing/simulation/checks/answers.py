"""Invariant 12: waiting requests are answered, sessions expire, and groups become stable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, final

from kgroup.broker.groups.requests import JoinGroup, LeaveGroup, OffsetCommit, SyncGroup
from kgroup.testing.simulation.checks.base import Check, EntryHandler, Violation
from kgroup.testing.simulation.checks.groups import COMPLETING, EMPTY, PREPARING, STABLE, GroupView
from kgroup.testing.simulation.checks.views import Kind, Views
from kgroup.testing.simulation.faults import BrokerDies
from kgroup.testing.simulation.history import (
    CoordinatorMoved,
    FaultBegan,
    FinalGroupState,
    GroupChanged,
    ParkedRequestAnswered,
    RequestHandled,
    WorkloadEnded,
)
from kgroup.testing.simulation.plan import Plan

_EPSILON: Final = 1e-6
_LIVE: Final = frozenset({STABLE, PREPARING, COMPLETING})
"""The states in which a coordinator has a group with members."""
_OVERDUE: Final = 1.0
"""Seconds after which a session that should have expired counts as one that never does."""
_SLACK: Final = 30.0
"""Seconds that a group may take beside its time-outs to become stable: for programs that restart,
connections that are opened, and retries."""


@final
class Answers(Check):
    """Follows every waiting request, and how each group becomes stable at the end.

    Kafka never answers an older copy of a repeated JoinGroup or SyncGroup, the waiting requests of
    a member that leaves, and those at a broker that is killed.
    """

    number: ClassVar[int] = 12
    invariant: ClassVar[str] = (
        "Every waiting request that Kafka would answer is answered within the rebalance "
        "time-out, every session expires on time, and after the last fault the group becomes "
        "stable within a bound."
    )

    def __init__(self, plan: Plan, views: Views, on_violation: Callable[[Violation], None]) -> None:
        super().__init__(plan, views, on_violation)
        self._parked: Final[dict[int, RequestHandled]] = {}
        self._dropped: Final[list[tuple[RequestHandled, float]]] = []
        self._rebalance = self._session = 0.0
        delay = self.plan.broker_settings.get("group.initial.rebalance.delay.ms", 3000)
        self._delay = 2 * float(str(delay)) / 1000
        """The delay of the first rebalance of an empty group; one late member may double it."""
        self._overdue: Final[set[str]] = set()
        self._faults_over_at: float | None = None
        self._stable_since: Final[dict[str, float]] = {}

    @property
    def handlers(self) -> Mapping[Kind, EntryHandler]:
        """See ``Check``."""
        return {
            "join_group": self._joining,
            "sync_group": self._parked_or_answered,
            "leave_group": self._parked_or_answered,
            "offset_commit": self._committed,
            ParkedRequestAnswered: self._answered,
            FaultBegan: self._fault,
            CoordinatorMoved: self._moved,
            GroupChanged: self._changed,
            WorkloadEnded: self._workload_ended,
            FinalGroupState: self._at_the_end,
        }

    # Requests.

    def _joining(self, entry: RequestHandled) -> None:
        request = entry.request
        assert isinstance(request, JoinGroup)
        rebalance = request.rebalance_timeout or request.session_timeout
        self._rebalance = max(self._rebalance, rebalance)
        self._session = max(self._session, request.session_timeout)
        self._parked_or_answered(entry)

    def _parked_or_answered(self, entry: RequestHandled) -> None:
        # Kafka drops a waiting request only because of another request, recorded at the same time.
        for dropped, at in self._dropped:
            if not (at == entry.at and _is_dropped_by(entry.request, dropped.request)):
                self._never_answered(dropped, at)
        self._dropped.clear()
        if entry.response is None:
            self._parked[entry.ticket] = entry

    def _answered(self, entry: ParkedRequestAnswered) -> None:
        parked = self._parked.pop(entry.ticket, None)
        if parked is None:
            self.report(
                entry.at,
                f"broker {entry.node_id} answered a request twice, or one that was never sent",
            )
        elif entry.response is None:
            self._dropped.append((parked, entry.at))
        elif entry.at - parked.at > self._longest_wait(parked):
            self.report(
                entry.at,
                f"{_words(parked)} was answered after {entry.at - parked.at:.3f} s, more than the"
                f" {self._longest_wait(parked):.3f} s that it may wait",
            )

    def _fault(self, entry: FaultBegan) -> None:
        if isinstance(entry.fault, BrokerDies):
            node = entry.fault.broker
            for ticket in [t for t, one in self._parked.items() if f"b{one.node_id}" == node]:
                del self._parked[ticket]

    def _moved(self, entry: CoordinatorMoved) -> None:
        left = [ticket for ticket, one in self._parked.items() if _group_id(one) == entry.group_id]
        for ticket in left:
            self._never_answered(self._parked.pop(ticket), entry.at)

    def _longest_wait(self, parked: RequestHandled) -> float:
        """How long a request may wait: until all members have joined, or synced."""
        initial = self._delay if isinstance(parked.request, JoinGroup) else 0.0
        return self._rebalance + initial + _EPSILON

    def _never_answered(self, parked: RequestHandled, at: float) -> None:
        self.report(at, f"{_words(parked)} at {parked.at:.3f} s, is never answered")

    # Sessions.

    def _committed(self, entry: RequestHandled) -> None:
        request = entry.request
        assert isinstance(request, OffsetCommit)
        group = self.views.groups[request.group_id]
        if entry.state in _LIVE and group.now is not None and group.now.node_id == entry.node_id:
            self._report_silent(group, entry.at)

    def _report_silent(self, group: GroupView, at: float) -> None:
        """Report every member whose session should have expired."""
        groups = self.views.groups
        awake = max(group.loaded_at, group.completed.get(group.generation_id, 0.0))
        for member_id, member in group.members.items():
            silent = at - max(awake, groups.possibly_renewed.get(member_id, awake))
            session = groups.session_timeouts.get(member_id, silent)
            known = member_id in self._overdue or member_id in groups.parked
            if silent > session + _OVERDUE and not known:
                self._overdue.add(member_id)
                self.report(
                    at,
                    f"{member.process} (member {member_id!r}) is still a member after"
                    f" {silent:.3f} s of silence, although its session time-out is {session:.3f} s",
                )

    # Becoming stable.

    def _changed(self, entry: GroupChanged) -> None:
        self._report_silent(self.views.groups[entry.group_id], entry.at)
        if entry.state in (STABLE, EMPTY):
            self._stable_since[entry.group_id] = entry.at
        else:
            self._stable_since.pop(entry.group_id, None)

    def _workload_ended(self, entry: WorkloadEnded) -> None:
        self._faults_over_at = entry.at

    def _at_the_end(self, entry: FinalGroupState) -> None:
        for dropped, at in self._dropped:
            self._never_answered(dropped, at)
        self._dropped.clear()
        for ticket, parked in list(self._parked.items()):
            if entry.at - parked.at > self._longest_wait(parked):
                self._never_answered(self._parked.pop(ticket), entry.at)
        since = self._stable_since.get(entry.group_id)
        if not entry.stable or since is None:
            self.report(entry.at, f"group {entry.group_id} has not become stable")
        elif self._faults_over_at is not None and since - self._faults_over_at > self._bound:
            self.report(
                entry.at,
                f"group {entry.group_id} became stable only {since - self._faults_over_at:.3f} s"
                f" after the last fault, not within {self._bound:.3f} s",
            )

    @property
    def _bound(self) -> float:
        """How long a group may change after the last fault.

        Sessions of members that are gone expire, which takes one or two rebalances; the partition
        watcher may cause another.
        """
        interval = self.views.programs.watch_interval
        return 2 * self._session + 3 * (self._rebalance + self._delay) + interval + _SLACK


def _is_dropped_by(cause: Any, dropped: Any) -> bool:
    """Whether Kafka drops the second request, unanswered, because of the first."""
    if isinstance(cause, LeaveGroup):
        return any(
            dropped.member_id == one.member_id
            or (
                one.group_instance_id is not None
                and dropped.group_instance_id == one.group_instance_id
            )
            for one in cause.members
        )
    return type(cause) is type(dropped) and bool(dropped.member_id == cause.member_id)


def _group_id(parked: RequestHandled) -> str:
    request = parked.request
    assert isinstance(request, JoinGroup | SyncGroup)
    return request.group_id


def _words(parked: RequestHandled) -> str:
    name = "JoinGroup" if isinstance(parked.request, JoinGroup) else "SyncGroup"
    sender = parked.process or "an unknown program"
    return f"the {name} request of {sender}, waiting at broker {parked.node_id}"
