"""Invariant 13: what is not committed is not seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from kgroup.testing.simulation.checks.base import Check, Reaction
from kgroup.testing.simulation.checks.views import Kind
from kgroup.testing.simulation.history import HandedOut
from kgroup.types import IsolationLevel


@final
class Transactions(Check):
    """Looks at every record that is handed out to a member that reads committed ones only.

    That it misses none that is committed is invariant 7's.
    """

    number: ClassVar[int] = 13
    says: ClassVar[str] = (
        "A member that reads committed records is handed out none of a transaction that is open or"
        " was aborted."
    )

    @property
    def reactions(self) -> Mapping[Kind, Reaction]:
        """See ``Check``."""
        return {HandedOut: self._handed_out}

    def _handed_out(self, fact: HandedOut) -> None:
        held = self.views.programs.holding(fact, fact.group_id, fact.epoch)
        committed = IsolationLevel.READ_COMMITTED.value
        if held is None or self.views.programs.settings(held).isolation_level != committed:
            return
        if fact.creation != self.views.logs.creation(fact.partition.topic):
            return
        log = self.views.logs[fact.partition]
        for offset in range(fact.first, fact.next_offset):
            if offset in fact.left_out:
                continue
            if log.is_open(offset) or offset in log.aborted:
                how = "is open" if log.is_open(offset) else "was aborted"
                self.accuse(
                    fact.at,
                    f"{held} was handed out the record {offset} of {fact.partition}, whose"
                    f" transaction {how}",
                )
                return
