"""Invariant 12: who waits is answered, and a group comes to rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, final

from kgroup.broker.groups.requests import JoinGroup, LeaveGroup, OffsetCommit, SyncGroup
from kgroup.testing.simulation.checks.base import Check, Reaction, Violation
from kgroup.testing.simulation.checks.groups import COMPLETING, EMPTY, PREPARING, STABLE, GroupView
from kgroup.testing.simulation.checks.views import Kind, Views
from kgroup.testing.simulation.faults import BrokerDies
from kgroup.testing.simulation.history import (
    Answered,
    CoordinatorMoved,
    FaultBegan,
    GroupChanged,
    Judged,
    Quiet,
    Settled,
)
from kgroup.testing.simulation.plan import Plan

_EPSILON: Final = 1e-6
_LIVE: Final = frozenset({STABLE, PREPARING, COMPLETING})
"""The states in which a coordinator has a group with members."""
_OVERDUE: Final = 1.0
"""Seconds after which a session that should have ended is one that never does."""
_SLACK: Final = 30.0
"""Seconds for what a group does beside waiting for its time-outs until it rests: programs that
start again, connections that are opened, retries."""


@final
class Answers(Check):
    """Follows every request that is parked, and each group's way to rest at the end.

    Never answered by Kafka are an older copy of a repeated Join or Sync, what a leaver has parked,
    and whoever waits at a broker that is killed.
    """

    number: ClassVar[int] = 12
    says: ClassVar[str] = (
        "Every parked request that Kafka would answer is answered within the rebalance time-out,"
        " every session ends, and once nothing goes wrong any more the group is stable within a"
        " bound."
    )

    def __init__(self, plan: Plan, views: Views, found: Callable[[Violation], None]) -> None:
        super().__init__(plan, views, found)
        self._parked: Final[dict[int, Judged]] = {}
        self._dropped: Final[list[tuple[Judged, float]]] = []
        self._rebalance = self._session = 0.0
        delay = self.plan.broker_settings.get("group.initial.rebalance.delay.ms", 3000)
        self._delay = 2 * float(str(delay)) / 1000
        """Of the first rebalance of an empty group, which one late member may prolong."""
        self._overdue: Final[set[str]] = set()
        self._calm_since: float | None = None
        self._at_rest_since: Final[dict[str, float]] = {}

    @property
    def reactions(self) -> Mapping[Kind, Reaction]:
        """See ``Check``."""
        return {
            "join_group": self._joining,
            "sync_group": self._asked,
            "leave_group": self._asked,
            "offset_commit": self._committed,
            Answered: self._answered,
            FaultBegan: self._fault,
            CoordinatorMoved: self._moved,
            GroupChanged: self._changed,
            Quiet: self._quiet,
            Settled: self._settled,
        }

    # Requests.

    def _joining(self, fact: Judged) -> None:
        request = fact.request
        assert isinstance(request, JoinGroup)
        rebalance = request.rebalance_timeout or request.session_timeout
        self._rebalance = max(self._rebalance, rebalance)
        self._session = max(self._session, request.session_timeout)
        self._asked(fact)

    def _asked(self, fact: Judged) -> None:
        # Kafka's silence is the consequence of a request, so the two are seen together.
        for dropped, at in self._dropped:
            if not (at == fact.at and _explains(fact.request, dropped.request)):
                self._never_answered(dropped, at)
        self._dropped.clear()
        if fact.response is None:
            self._parked[fact.ticket] = fact

    def _answered(self, fact: Answered) -> None:
        parked = self._parked.pop(fact.ticket, None)
        if parked is None:
            self.accuse(fact.at, f"broker {fact.node_id} answered a request twice, or of nobody")
        elif fact.response is None:
            self._dropped.append((parked, fact.at))
        elif fact.at - parked.at > self._patience(parked):
            self.accuse(
                fact.at,
                f"{_words(parked)} was answered after {fact.at - parked.at:.3f} s, more than the"
                f" {self._patience(parked):.3f} s that it may be parked",
            )

    def _fault(self, fact: FaultBegan) -> None:
        if isinstance(fact.fault, BrokerDies):
            node = fact.fault.broker
            for ticket in [t for t, one in self._parked.items() if f"b{one.node_id}" == node]:
                del self._parked[ticket]

    def _moved(self, fact: CoordinatorMoved) -> None:
        left = [ticket for ticket, one in self._parked.items() if _group_id(one) == fact.group_id]
        for ticket in left:
            self._never_answered(self._parked.pop(ticket), fact.at)

    def _patience(self, parked: Judged) -> float:
        """For how long a request may be parked: until the members have joined, or synced."""
        initial = self._delay if isinstance(parked.request, JoinGroup) else 0.0
        return self._rebalance + initial + _EPSILON

    def _never_answered(self, parked: Judged, at: float) -> None:
        self.accuse(at, f"{_words(parked)} at {parked.at:.3f} s, is never answered")

    # Sessions.

    def _committed(self, fact: Judged) -> None:
        request = fact.request
        assert isinstance(request, OffsetCommit)
        group = self.views.groups[request.group_id]
        if fact.state in _LIVE and group.now is not None and group.now.node_id == fact.node_id:
            self._look_for_silent(group, fact.at)

    def _look_for_silent(self, group: GroupView, at: float) -> None:
        """Accuse for every member whose session must have ended."""
        groups = self.views.groups
        awake = max(group.loaded_at, group.completed.get(group.generation_id, 0.0))
        for member_id, member in group.members.items():
            silent = at - max(awake, groups.heard.get(member_id, awake))
            session = groups.session_timeouts.get(member_id, silent)
            known = member_id in self._overdue or member_id in groups.waiting
            if silent > session + _OVERDUE and not known:
                self._overdue.add(member_id)
                self.accuse(
                    at,
                    f"{member.process} (member {member_id!r}) is still a member, and silent for"
                    f" {silent:.3f} s, although its session is of {session:.3f} s",
                )

    # Rest.

    def _changed(self, fact: GroupChanged) -> None:
        self._look_for_silent(self.views.groups[fact.group_id], fact.at)
        if fact.state in (STABLE, EMPTY):
            self._at_rest_since[fact.group_id] = fact.at
        else:
            self._at_rest_since.pop(fact.group_id, None)

    def _quiet(self, fact: Quiet) -> None:
        self._calm_since = fact.at

    def _settled(self, fact: Settled) -> None:
        for dropped, at in self._dropped:
            self._never_answered(dropped, at)
        self._dropped.clear()
        for ticket, parked in list(self._parked.items()):
            if fact.at - parked.at > self._patience(parked):
                self._never_answered(self._parked.pop(ticket), fact.at)
        since = self._at_rest_since.get(fact.group_id)
        if not fact.stable or since is None:
            self.accuse(fact.at, f"group {fact.group_id} has not come to rest")
        elif self._calm_since is not None and since - self._calm_since > self._bound:
            self.accuse(
                fact.at,
                f"group {fact.group_id} came to rest only {since - self._calm_since:.3f} s after"
                f" the last fault, and not within {self._bound:.3f} s",
            )

    @property
    def _bound(self) -> float:
        """For how long a group may change after the last fault.

        Members that are gone are noticed, in one rebalance or two; the watcher may bring another.
        """
        interval = self.views.programs.watch_interval
        return 2 * self._session + 3 * (self._rebalance + self._delay) + interval + _SLACK


def _explains(cause: Any, dropped: Any) -> bool:
    """Whether Kafka lets the one request go unanswered because of the other."""
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


def _group_id(parked: Judged) -> str:
    request = parked.request
    assert isinstance(request, JoinGroup | SyncGroup)
    return request.group_id


def _words(parked: Judged) -> str:
    name = "Join" if isinstance(parked.request, JoinGroup) else "Sync"
    return f"the {name} of {parked.process or 'somebody'}, parked at broker {parked.node_id}"
