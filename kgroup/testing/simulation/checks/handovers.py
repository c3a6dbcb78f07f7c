"""Invariant 2: a partition changes owners only after its previous owner is done or evicted."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import ClassVar, Final, final

from kgroup.events import Assigned
from kgroup.testing.simulation.checks.base import Check, EntryHandler, Violation
from kgroup.testing.simulation.checks.groups import COMPLETING, PREPARING, GroupView
from kgroup.testing.simulation.checks.programs import HeldGeneration
from kgroup.testing.simulation.checks.views import Kind, Views
from kgroup.testing.simulation.checks.waking import Waking
from kgroup.testing.simulation.history import EventReported, GroupChanged, HandedOut, Processed
from kgroup.testing.simulation.plan import Plan
from kgroup.types import TopicPartition

_EPSILON: Final = 1e-6
"""Seconds by which two sums of the same times may differ."""


_Log = tuple[str, TopicPartition]
"""A group and a partition that it reads."""


@final
class Handovers(Check):
    """Checks assignments, records that are handed out, and evictions.

    Invariant 11 covers static members whose instance id another program has taken.
    """

    number: ClassVar[int] = 2
    invariant: ClassVar[str] = (
        "No member receives a partition before its previous owner has ended its generation or "
        "was evicted. No member is evicted before one of its time-outs is over, and none "
        "becomes part of a generation without joining it. A member that was evicted, or whose "
        "generation has ended, is handed no records. One that was evicted processes none, nor "
        "does one whose generation ended because all its work was done."
    )

    def __init__(self, plan: Plan, views: Views, on_violation: Callable[[Violation], None]) -> None:
        super().__init__(plan, views, on_violation)
        self._owners: Final[defaultdict[_Log, list[HeldGeneration]]] = defaultdict(list)
        self._waking = Waking(plan, views)

    @property
    def handlers(self) -> Mapping[Kind, EntryHandler]:
        """See ``Check``."""
        return {
            Assigned: self._assigned,
            HandedOut: self._handed_out,
            Processed: self._processed,
            GroupChanged: self._changed,
            **self._waking.handlers,
        }

    # Assignments.

    def _assigned(self, entry: EventReported) -> None:
        event = entry.event
        assert isinstance(event, Assigned)
        held = self.views.programs.held_generation(entry, event.group_id, event.epoch)
        if held is None:
            return
        group = self.views.groups[event.group_id]
        replaced = held.member_id in group.replaced  # invariant 11 applies instead
        for partition in event.assignment:
            key = (event.group_id, partition)
            others = [one for one in self._owners[key] if not one.over]
            for other in others:
                if replaced or other.life == held.life:
                    continue
                if (fault := self._still_owns(other, group)) is not None:
                    self.report(
                        entry.at,
                        f"{held} received {partition}, which {other} has not given up: {fault}",
                        partition=partition,
                    )
            self._owners[key] = [*others, held]

    def _still_owns(self, other: HeldGeneration, group: GroupView) -> str | None:
        """Why the other program still owns its partitions, or None if it was evicted."""
        member = group.members.get(other.member_id)
        if member is None:
            return None
        if other.generation_id == group.generation_id:
            return "it is in this generation too"
        prepared = group.prepared.get(group.generation_id, 0.0)
        if self.views.groups.joined.get(other.member_id, 0.0) >= prepared:
            return "it has joined this generation without ending its own"
        waited = group.completed.get(group.generation_id, 0.0) - prepared
        timeout = self.views.groups.rebalance_timeouts.get(other.member_id, 0.0)
        if waited < timeout - _EPSILON:
            return f"it is a member, and the coordinator waited only {waited:.3f} s for it to join"
        return None

    # Records.

    def _handed_out(self, entry: HandedOut) -> None:
        if (fault := self._fault(entry)) is not None:
            self.report(
                entry.at,
                f"{entry.process} was handed {entry.partition} from {entry.first} on, in"
                f" generation {entry.generation_id}: {fault}",
                partition=entry.partition,
                offset=entry.first,
            )

    def _fault(self, entry: HandedOut) -> str | None:
        """Why these records should not have been handed out, or None."""
        held = self.views.programs.held_generation(entry, entry.group_id, entry.epoch)
        if held is None or held.assignment is None:
            return "it had not received that generation"
        group = self.views.groups[entry.group_id]
        replaced = entry.member_id in group.replaced  # invariant 11 applies instead
        faults = {
            "it had reported the end of the generation": held.draining_at is not None or held.over,
            "it does not own it": entry.partition not in held.assignment,
            "it had been evicted": not replaced and entry.member_id not in group.members,
            f"the group was already in generation {group.generation_id}": not replaced
            and entry.generation_id != group.generation_id,
        }
        return next((words for words, holds in faults.items() if holds), None)

    def _processed(self, entry: Processed) -> None:
        held = self.views.programs.owner(entry)
        if held is None:
            return
        if held.ended is not None and held.ended.end.can_commit and not held.ended.cut_short:
            self.report(
                entry.at,
                f"{held} processed the record at offset {entry.offset} of {entry.partition} after"
                " it had reported that all its work was done and its generation had ended",
                partition=entry.partition,
                offset=entry.offset,
            )
            return
        if self._was_frozen(held) and self._waking.is_unaware(held, entry.at):
            return  # it learns of its eviction from the next response
        group = self.views.groups[held.group_id]
        if held.member_id not in group.members and held.member_id not in group.replaced:
            self.report(
                entry.at,
                f"{held} processed the record at offset {entry.offset} of {entry.partition} after"
                " it had been evicted",
                partition=entry.partition,
                offset=entry.offset,
            )

    # Evictions.

    def _changed(self, entry: GroupChanged) -> None:
        group = self.views.groups[entry.group_id]
        if entry.state == COMPLETING:
            self._report_absent(entry, group)
        if group.before is None:
            return
        for member in group.before.members:
            name = member.member_id
            if name in group.members or name in group.left or name in group.replaced:
                continue
            held = self.views.programs.latest(entry.group_id, name)
            draining = held is not None and self._is_draining(held)
            if (
                group.before.state == PREPARING
                and draining
                and not self._has_expired(name, entry.at)
            ):
                self.report(
                    entry.at,
                    f"{held} was still draining when the group completed the rebalance without it:"
                    " a drain must end before the rebalance time-out",
                )
            if not self._may_evict(name, group, entry.at):
                self.report(
                    entry.at,
                    f"{member.process} (member {name!r}) was evicted before its session and"
                    " rebalance time-outs were over",
                )

    def _report_absent(self, entry: GroupChanged, group: GroupView) -> None:
        """Report members that missed the rebalance; only static members stay in the group then."""
        prepared = group.prepared[entry.generation_id]
        for member in entry.members:
            has_joined = self.views.groups.joined.get(member.member_id, 0.0) >= prepared
            if not has_joined and member.group_instance_id is None:
                self.report(
                    entry.at,
                    f"{member.process} (member {member.member_id!r}) is in generation"
                    f" {entry.generation_id}, for which it has not joined",
                )

    def _may_evict(self, name: str, group: GroupView, at: float) -> bool:
        groups = self.views.groups
        if self._has_expired(name, at):
            return True
        before = group.before
        assert before is not None  # `_changed` checks it
        timeout = min(groups.rebalance_timeouts.get(one.member_id, 0.0) for one in before.members)
        if before.state == PREPARING:
            return at - group.preparing_since >= timeout - _EPSILON
        completed = group.completed.get(before.generation_id, 0.0)
        synced = groups.synced.get(name) == before.generation_id
        return not synced and at - completed >= timeout - _EPSILON

    def _has_expired(self, name: str, at: float) -> bool:
        """Whether the session of a member has certainly expired."""
        groups = self.views.groups
        session = groups.session_timeouts.get(name)
        return session is None or at - groups.renewed.get(name, 0.0) >= session - _EPSILON

    def _is_draining(self, held: HeldGeneration) -> bool:
        return held.draining_at is not None and not held.over and not self._was_frozen(held)

    def _was_frozen(self, held: HeldGeneration) -> bool:
        """Whether a program was frozen since a heartbeat last confirmed that it was a member."""
        confirmed = self.views.groups.heartbeat_answered_at.get(held.member_id, 0.0)
        return self.views.programs.was_frozen_since(held, confirmed)
