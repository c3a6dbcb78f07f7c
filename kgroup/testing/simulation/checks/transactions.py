"""Invariant 13: uncommitted records are not handed out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from kgroup.testing.simulation.checks.base import Check, EntryHandler
from kgroup.testing.simulation.checks.views import Kind
from kgroup.testing.simulation.history import HandedOut
from kgroup.types import IsolationLevel


@final
class Transactions(Check):
    """Checks every record that is handed to a member that reads only committed records.

    Invariant 7 checks that it misses none that is committed.
    """

    number: ClassVar[int] = 13
    invariant: ClassVar[str] = (
        "A member that reads only committed records is never handed a record of an open or "
        "aborted transaction."
    )

    @property
    def handlers(self) -> Mapping[Kind, EntryHandler]:
        """See ``Check``."""
        return {HandedOut: self._handed_out}

    def _handed_out(self, entry: HandedOut) -> None:
        held = self.views.programs.held_generation(entry, entry.group_id, entry.epoch)
        committed = IsolationLevel.READ_COMMITTED.value
        if held is None or self.views.programs.settings(held).isolation_level != committed:
            return
        if entry.creation != self.views.logs.creation(entry.partition.topic):
            return
        log = self.views.logs[entry.partition]
        for offset in range(entry.first, entry.next_offset):
            if offset in entry.left_out:
                continue
            if log.is_open(offset) or offset in log.aborted:
                how = "is open" if log.is_open(offset) else "was aborted"
                self.report(
                    entry.at,
                    f"{held} was handed out the record at offset {offset} of {entry.partition},"
                    f" whose transaction {how}",
                    partition=entry.partition,
                    offset=offset,
                )
                return
