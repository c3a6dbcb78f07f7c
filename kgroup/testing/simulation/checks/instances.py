"""Invariant 11: one live member for an instance id."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping
from typing import ClassVar, Final, final

from kgroup.broker.groups.requests import Heartbeat
from kgroup.broker.groups.responses import HeartbeatCompleted
from kgroup.config import longest_drain
from kgroup.error_codes import ErrorCode
from kgroup.events import CommitRefused, Committed, GenerationEnded, Joined
from kgroup.testing.simulation.checks.base import Check, EntryHandler, Violation
from kgroup.testing.simulation.checks.groups import DEAD
from kgroup.testing.simulation.checks.programs import HeldGeneration
from kgroup.testing.simulation.checks.views import Kind, Views
from kgroup.testing.simulation.checks.waking import SLACK, Waking
from kgroup.testing.simulation.history import (
    EventReported,
    GroupChanged,
    HandedOut,
    RequestHandled,
    SimulationEnded,
)
from kgroup.testing.simulation.plan import Plan


@final
class Instances(Check):
    """Follows members whose instance id another program has taken.

    The older program learns of it from its next request, or else from its own lease. Its generation
    may end later only while it waits for the response to a commit that it sent before, and no
    longer than a lost generation waits for its commits; see ``Lifecycle``. A program that was
    frozen learns of it when it wakes; see ``Waking``.
    """

    number: ClassVar[int] = 11
    invariant: ClassVar[str] = (
        "An instance id has one member at a time. A program whose instance id another program "
        "has taken gets no successful answer to its heartbeats, notices that, does not join "
        "again while the other is a member, and is handed no records once its session is over."
    )

    def __init__(self, plan: Plan, views: Views, on_violation: Callable[[Violation], None]) -> None:
        super().__init__(plan, views, on_violation)
        self._unaware: Final[dict[str, HeldGeneration]] = {}
        self._commit_ended_at: Final[dict[str, float]] = {}
        """When the last commit that each of these members may have waited for ended."""
        self._waking = Waking(plan, views)

    @property
    def handlers(self) -> Mapping[Kind, EntryHandler]:
        """See ``Check``."""
        return {
            GroupChanged: self._changed,
            "heartbeat": self._heartbeat,
            Joined: self._joined,
            HandedOut: self._handed_out,
            Committed: self._commit_ended,
            CommitRefused: self._commit_ended,
            GenerationEnded: self._ended,
            SimulationEnded: self._over,
            **self._waking.handlers,
        }

    def _changed(self, entry: GroupChanged) -> None:
        counts = Counter(member.group_instance_id for member in entry.members)
        for name, count in counts.items():
            if name is not None and count > 1:
                self.report(
                    entry.at,
                    f"group {entry.group_id} has {count} members with the instance id {name!r}",
                )
        group = self.views.groups[entry.group_id]
        for member in entry.members:  # a failover may have lost the replacement
            self._unaware.pop(member.member_id, None)
        for member_id in group.replaced:
            held = self.views.programs.latest(entry.group_id, member_id)
            if held is not None and not held.over:
                self._unaware[member_id] = held

    def _heartbeat(self, entry: RequestHandled) -> None:
        if not self._unaware or entry.state == DEAD:
            return  # as in Kafka, a coordinator that is loading refuses no heartbeat
        request, response = entry.request, entry.response
        assert isinstance(request, Heartbeat)
        assert isinstance(response, HeartbeatCompleted)
        if request.member_id in self._unaware and response.error is ErrorCode.NONE:
            self.report(
                entry.at,
                f"broker {entry.node_id} answered a heartbeat of {request.member_id!r} without"
                " an error, although another member has its instance id",
            )

    def _joined(self, entry: EventReported) -> None:
        event = entry.event
        groups = self.views.groups
        replaced = groups[event.group_id].replaced
        life = self.views.programs.life(entry.process, entry.life)
        for member_id in sorted(life.member_ids[event.group_id] & replaced.keys()):
            at, successor = replaced[member_id]
            if member_id == event.member_id and groups.joined.get(member_id, 0.0) < at:
                continue  # it was replaced before its program got the member id
            if self._had_lost(event.group_id, member_id, at):
                continue  # a failover had brought back what its program knew to be lost
            other = groups.owners.get(successor, entry.process)
            if other != entry.process and self._was_member(event.group_id, successor):
                self.report(
                    entry.at,
                    f"{entry.process} has joined again, although {other} had taken its instance id"
                    f" {life.group_instance_id!r}",
                )
        held = self.views.programs.held_generation(entry, event.group_id, event.epoch)
        if held is not None and event.member_id in replaced:
            self._unaware[event.member_id] = held

    def _had_lost(self, group_id: str, member_id: str, at: float) -> bool:
        """Whether a program had already learnt then that it was a member no more."""
        held = self.views.programs.latest(group_id, member_id)
        if held is None or held.ended is None:
            return False
        return not held.ended.end.can_commit and held.ended_at <= at

    def _was_member(self, group_id: str, successor: str) -> bool:
        """Whether the successor was a member until this one joined, or still is."""
        group = self.views.groups[group_id]
        while successor in group.replaced:
            successor = group.replaced[successor][1]
        return successor in group.members

    def _handed_out(self, entry: HandedOut) -> None:
        late = self._late(entry.member_id, entry.at, 0.0)
        if late is not None:
            self.report(
                entry.at,
                f"{entry.process} was handed {entry.partition} from {entry.first} on, {late:.3f} s"
                " after another program had taken its instance id",
                partition=entry.partition,
                offset=entry.first,
            )

    def _commit_ended(self, entry: EventReported) -> None:
        event = entry.event
        assert isinstance(event, Committed | CommitRefused)
        late = self._late(event.member_id, entry.at - event.seconds, SLACK)
        if event.member_id in self._unaware and late is None:
            self._commit_ended_at[event.member_id] = entry.at

    def _ended(self, entry: EventReported) -> None:
        self._check(entry.event.member_id, entry.at)

    def _over(self, entry: SimulationEnded) -> None:
        for member_id in list(self._unaware):
            self._check(member_id, entry.at)

    def _check(self, member_id: str, at: float) -> None:
        """Report a program that ends now and took too long to learn of its replacement."""
        held = self._unaware.get(member_id)
        if held is None:
            return
        slack = SLACK
        if at - self._commit_ended_at.pop(member_id, -math.inf) < SLACK:
            slack += self._longest_wait(held)
        late = self._late(member_id, at, slack)
        del self._unaware[member_id]
        if late is None:
            return
        life = self.views.programs.life(*held.life)
        waking = self._waking.is_unaware(held, at)
        if not (life.frozen or waking or (life.over and held.ended is None)):
            self.report(
                at,
                f"{held} did not notice for {late:.3f} s that another program has its instance id",
            )

    def _longest_wait(self, held: HeldGeneration) -> float:
        """For how long a generation that is lost may wait for the commits that it has sent."""
        settings = self.views.programs.settings(held)
        drain = longest_drain(settings.drain_timeout, settings.rebalance_timeout)
        return settings.heartbeat_interval + drain

    def _late(self, member_id: str, at: float, slack: float) -> float | None:
        """For how long the member has been replaced, if longer than it may be unaware; or None."""
        held = self._unaware.get(member_id)
        if held is None:
            return None
        replaced_at, _ = self.views.groups[held.group_id].replaced[member_id]
        session = self.views.groups.session_timeouts.get(member_id, 0.0)
        late = at - replaced_at
        return late if late > session + slack else None
