"""Invariant 2: nobody gets a partition before its old owner is done with it, or is out."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import ClassVar, Final, final

from kgroup.events import Assigned
from kgroup.testing.simulation.checks.base import Check, Reaction, Violation
from kgroup.testing.simulation.checks.groups import COMPLETING, PREPARING, GroupView
from kgroup.testing.simulation.checks.programs import Holding
from kgroup.testing.simulation.checks.views import Kind, Views
from kgroup.testing.simulation.history import GroupChanged, HandedOut, Processed, Told
from kgroup.testing.simulation.plan import Plan
from kgroup.types import TopicPartition

_EPSILON: Final = 1e-6
"""Seconds that two sums of the same times may differ by."""


_Log = tuple[str, TopicPartition]
"""A partition, as one group reads it."""


@final
class Handovers(Check):
    """Looks at who is told that it owns what, at who is handed records, and at who is evicted.

    A static member whose instance id somebody else has taken up is judged by invariant 11.
    """

    number: ClassVar[int] = 2
    says: ClassVar[str] = (
        "Nobody is told to own a partition before its old owner has ended its generation or was"
        " evicted, nobody is evicted within its time-outs or taken along without joining, and"
        " who is evicted, or done, is handed out nothing and works on nothing."
    )

    def __init__(self, plan: Plan, views: Views, found: Callable[[Violation], None]) -> None:
        super().__init__(plan, views, found)
        self._owners: Final[defaultdict[_Log, list[Holding]]] = defaultdict(list)

    @property
    def reactions(self) -> Mapping[Kind, Reaction]:
        """See ``Check``."""
        return {
            Assigned: self._assigned,
            HandedOut: self._handed_out,
            Processed: self._processed,
            GroupChanged: self._changed,
        }

    # Who is told to own what.

    def _assigned(self, fact: Told) -> None:
        event = fact.event
        assert isinstance(event, Assigned)
        held = self.views.programs.holding(fact, event.group_id, event.epoch)
        if held is None:
            return
        group = self.views.groups[event.group_id]
        for partition in event.assignment:
            key = (event.group_id, partition)
            others = [one for one in self._owners[key] if not one.over]
            for other in others:
                if other.life != held.life and (fault := self._still_owns(other, group)):
                    self.accuse(
                        fact.at,
                        f"{held} was told that it owns {partition}, which {other} has not given"
                        f" up: {fault}",
                    )
            self._owners[key] = [*others, held]

    def _still_owns(self, other: Holding, group: GroupView) -> str | None:
        """Why the other still owns what it has, or None if the coordinator went on without it."""
        member = group.members.get(other.member_id)
        if member is None:
            return None
        if other.generation_id == group.generation_id:
            return "it is in this very generation"
        prepared = group.prepared.get(group.generation_id, 0.0)
        if self.views.groups.joined.get(other.member_id, 0.0) >= prepared:
            return "it has joined this generation without ending its own"
        waited = group.completed.get(group.generation_id, 0.0) - prepared
        patience = self.views.groups.rebalance_timeouts.get(other.member_id, 0.0)
        if waited < patience - _EPSILON:
            return f"it is a member, and was waited for only {waited:.3f} s to join"
        return None

    # Who is handed records.

    def _handed_out(self, fact: HandedOut) -> None:
        if (fault := self._fault(fact)) is not None:
            self.accuse(
                fact.at,
                f"{fact.process} was handed out {fact.partition} from {fact.first} on, in"
                f" generation {fact.generation_id}: {fault}",
            )

    def _fault(self, fact: HandedOut) -> str | None:
        """Why this should not have been handed out, or None."""
        held = self.views.programs.holding(fact, fact.group_id, fact.epoch)
        if held is None or held.assignment is None:
            return "it was not told of that generation"
        group = self.views.groups[fact.group_id]
        known = fact.member_id in group.replaced  # to the coordinator, and not yet to it
        faults = {
            "it had told that the generation was over": held.draining_at is not None or held.over,
            "it does not own it": fact.partition not in held.assignment,
            "it had been evicted": not known and fact.member_id not in group.members,
            f"the group had gone on to generation {group.generation_id}": not known
            and fact.generation_id != group.generation_id,
        }
        return next((words for words, holds in faults.items() if holds), None)

    def _processed(self, fact: Processed) -> None:
        held = self.views.programs.life(fact.process, fact.life).groups.get(fact.partition)
        if held is None or held.stood_still:
            return  # who has stood still finds out by asking
        group = self.views.groups[held.group_id]
        if held.member_id not in group.members and held.member_id not in group.replaced:
            self.accuse(
                fact.at,
                f"{held} processed the record {fact.offset} of {fact.partition} after it had been"
                " evicted",
            )

    # Who is evicted, and who is not.

    def _changed(self, fact: GroupChanged) -> None:
        group = self.views.groups[fact.group_id]
        if fact.state == COMPLETING:
            self._look_for_absent(fact, group)
        if group.before is None:
            return
        for member in group.before.members:
            name = member.member_id
            if name in group.members or name in group.left or name in group.replaced:
                continue
            held = self.views.programs.latest(fact.group_id, name)
            outstays = held is not None and _outstays(held)
            if (
                group.before.state == PREPARING
                and outstays
                and not self._has_expired(name, fact.at)
            ):
                self.accuse(
                    fact.at,
                    f"{held} was still draining when the group went on without it: its drain must"
                    " end before the rebalance time-out",
                )
            if not self._may_evict(name, group, fact.at):
                self.accuse(
                    fact.at,
                    f"{member.process} (member {name!r}) was evicted within its session and"
                    " rebalance time-outs",
                )

    def _look_for_absent(self, fact: GroupChanged, group: GroupView) -> None:
        """Only a static member stays in a group whose rebalance it has missed."""
        prepared = group.prepared[fact.generation_id]
        for member in fact.members:
            came = self.views.groups.joined.get(member.member_id, 0.0) >= prepared
            if not came and member.group_instance_id is None:
                self.accuse(
                    fact.at,
                    f"{member.process} (member {member.member_id!r}) is in generation"
                    f" {fact.generation_id}, for which it has not joined",
                )

    def _may_evict(self, name: str, group: GroupView, at: float) -> bool:
        groups = self.views.groups
        if self._has_expired(name, at):
            return True
        before = group.before
        assert before is not None  # looked at by `_changed`
        patience = min(groups.rebalance_timeouts.get(one.member_id, 0.0) for one in before.members)
        if before.state == PREPARING:
            return at - group.preparing_since >= patience - _EPSILON
        completed = group.completed.get(before.generation_id, 0.0)
        synced = groups.synced.get(name) == before.generation_id
        return not synced and at - completed >= patience - _EPSILON

    def _has_expired(self, name: str, at: float) -> bool:
        """Whether a member has been silent for its session time-out."""
        groups = self.views.groups
        session = groups.session_timeouts.get(name)
        return session is None or at - groups.renewed.get(name, 0.0) >= session - _EPSILON


def _outstays(held: Holding) -> bool:
    return held.draining_at is not None and not held.over and not held.stood_still
