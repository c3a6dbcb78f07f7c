"""Invariant 3: generation ids grow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from kgroup.testing.simulation.checks.base import Check, Reaction
from kgroup.testing.simulation.checks.groups import COMPLETING, EMPTY
from kgroup.testing.simulation.checks.views import Kind
from kgroup.testing.simulation.history import GroupChanged

_NEW: frozenset[str] = frozenset({COMPLETING, EMPTY})
"""The states that are entered with a generation of their own."""


@final
class Generations(Check):
    """Looks at the generation of each state that a group enters."""

    number: ClassVar[int] = 3
    says: ClassVar[str] = (
        "Within a coordinator's incarnation the generation id strictly grows with every rebalance"
        " that completes."
    )

    @property
    def reactions(self) -> Mapping[Kind, Reaction]:
        """See ``Check``."""
        return {GroupChanged: self._changed}

    def _changed(self, fact: GroupChanged) -> None:
        before = self.views.groups[fact.group_id].before
        if before is None:
            return
        if before.state == EMPTY and fact.generation_id == 0 and fact.state not in _NEW:
            return  # the coordinator had forgotten the empty group
        entered = fact.state in _NEW and before.state != fact.state
        if fact.generation_id < before.generation_id or (
            entered and fact.generation_id == before.generation_id
        ):
            self.accuse(
                fact.at,
                f"group {fact.group_id} went from {before.state} in generation"
                f" {before.generation_id} to {fact.state} in generation {fact.generation_id}",
            )
