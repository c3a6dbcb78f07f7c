"""Invariant 3: generation ids grow."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from kgroup.testing.simulation.checks.base import Check, EntryHandler
from kgroup.testing.simulation.checks.groups import COMPLETING, EMPTY
from kgroup.testing.simulation.checks.views import Kind
from kgroup.testing.simulation.history import GroupChanged

_NEW: frozenset[str] = frozenset({COMPLETING, EMPTY})
"""The states that a group enters with a new generation."""


@final
class Generations(Check):
    """Checks the generation of each state that a group enters."""

    number: ClassVar[int] = 3
    invariant: ClassVar[str] = (
        "Within one coordinator incarnation the generation id grows with every rebalance that "
        "completes."
    )

    @property
    def handlers(self) -> Mapping[Kind, EntryHandler]:
        """See ``Check``."""
        return {GroupChanged: self._changed}

    def _changed(self, entry: GroupChanged) -> None:
        before = self.views.groups[entry.group_id].before
        if before is None:
            return
        if before.state == EMPTY and entry.generation_id == 0 and self._may_be_deleted(entry):
            return
        entered = entry.state in _NEW and before.state != entry.state
        if entry.generation_id < before.generation_id or (
            entered and entry.generation_id == before.generation_id
        ):
            self.report(
                entry.at,
                f"group {entry.group_id} went from {before.state} in generation"
                f" {before.generation_id} to {entry.state} in generation {entry.generation_id}",
            )

    def _may_be_deleted(self, entry: GroupChanged) -> bool:
        """Whether the coordinator may have deleted the empty group, and this is another one.

        Another one is empty too while its first member has only requested its id.
        """
        if entry.state == EMPTY:
            return not self.views.groups[entry.group_id].applied
        return entry.state not in _NEW
