"""Invariants 4 and 5: which commits a coordinator takes, and which ones a member makes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from kgroup.broker.groups.requests import OffsetCommit
from kgroup.testing.simulation.checks.base import Check, Reaction
from kgroup.testing.simulation.checks.groups import COMPLETING, EMPTY, GroupView
from kgroup.testing.simulation.checks.views import Kind
from kgroup.testing.simulation.history import Judged


@final
class AcceptedCommits(Check):
    """Looks at every commit of which a coordinator accepted something."""

    number: ClassVar[int] = 4
    says: ClassVar[str] = (
        "No commit is accepted from a member or a generation that is not current, nor while an"
        " assignment is awaited."
    )

    @property
    def reactions(self) -> Mapping[Kind, Reaction]:
        """See ``Check``."""
        return {"offset_commit": self._committed}

    def _committed(self, fact: Judged) -> None:
        if not self.views.groups.commit.accepted:
            return
        request = fact.request
        assert isinstance(request, OffsetCommit)
        group = self.views.groups[request.group_id]
        if (fault := _fault(request, group, fact)) is not None:
            self.accuse(
                fact.at,
                f"broker {fact.node_id} accepted a commit of {fact.process or 'somebody'}"
                f" (member {request.member_id!r}, generation {request.generation_id}): {fault}",
            )


def _fault(request: OffsetCommit, group: GroupView, fact: Judged) -> str | None:
    """Why the commit should have been refused, or None."""
    if group.now is not None and group.now.node_id != fact.node_id:
        return f"the group is coordinated by broker {group.now.node_id}"
    if request.generation_id < 0 and group.state == EMPTY:
        return None
    member = group.members.get(request.member_id)
    if member is None:
        return "it is not a member"
    faults = {
        f"its instance id is {member.group_instance_id!r}": request.group_instance_id
        not in (None, member.group_instance_id),
        f"the group is in generation {group.generation_id}": request.generation_id
        != group.generation_id,
        "the group awaits its assignment": group.state == COMPLETING,
    }
    return next((words for words, holds in faults.items() if holds), None)


@final
class OwnCommits(Check):
    """Looks at every commit that a member of a generation sent, accepted or not."""

    number: ClassVar[int] = 5
    says: ClassVar[str] = (
        "A member never commits a partition that it does not own, nor past what it was handed out."
    )

    @property
    def reactions(self) -> Mapping[Kind, Reaction]:
        """See ``Check``."""
        return {"offset_commit": self._committed}

    def _committed(self, fact: Judged) -> None:
        request = fact.request
        assert isinstance(request, OffsetCommit)
        if request.generation_id < 0:
            return
        generation_id, member_id = request.generation_id, request.member_id
        group = self.views.groups[request.group_id]
        own = group.assignments.get((generation_id, member_id), frozenset())
        held = self.views.programs.of_member(request.group_id, member_id, generation_id)
        for partition, offset in self.views.groups.commit.asked.items():
            who = f"{fact.process or member_id} committed {partition} at {offset} in generation"
            if partition not in own:
                self.accuse(fact.at, f"{who} {generation_id}, in which it does not own it")
                continue
            position = None if held is None else held.position(partition)
            if position is None or offset > position:
                self.accuse(fact.at, f"{who} {generation_id}, in which its position is {position}")
