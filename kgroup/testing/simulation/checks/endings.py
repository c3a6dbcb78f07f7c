"""Invariant 10: every assignment ends exactly once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from kgroup.events import Assigned, GenerationEnded, GenerationStarted, Joined, Joining, Left
from kgroup.testing.simulation.checks.base import Check, EntryHandler
from kgroup.testing.simulation.checks.views import Kind
from kgroup.testing.simulation.history import EventReported, ProcessCrashed, ProcessEnded

_Owner = tuple[str, int, str]
"""A program, which start of it, and the group."""


@final
class Endings(Check):
    """Follows each generation of each program from its beginning to its end.

    A program that crashes reports no end.
    """

    number: ClassVar[int] = 10
    invariant: ClassVar[str] = (
        "Every assigned partition is given up exactly once, as revoked or as lost, before its "
        "owner joins again, leaves or ends."
    )

    _open: dict[_Owner, int]

    @property
    def handlers(self) -> Mapping[Kind, EntryHandler]:
        """See ``Check``."""
        self._open = {}
        return {
            Joined: self._joined,
            Joining: self._continues,
            Left: self._continues,
            Assigned: self._used,
            GenerationStarted: self._used,
            GenerationEnded: self._ended,
            ProcessEnded: self._process_ended,
            ProcessCrashed: self._crashed,
        }

    def _joined(self, entry: EventReported) -> None:
        self._continues(entry)
        self._open[_owner(entry)] = entry.event.epoch

    def _continues(self, entry: EventReported) -> None:
        epoch = self._open.pop(_owner(entry), None)
        if epoch is not None:
            self._never_ended(
                entry.at, entry.process, epoch, f"when it reported: {entry.event.message()}"
            )

    def _used(self, entry: EventReported) -> None:
        if self._open.get(_owner(entry)) != entry.event.epoch:
            self.report(
                entry.at,
                f"{entry.process} reported epoch {entry.event.epoch}, which it is not in:"
                f" {entry.event.message()}",
            )

    def _ended(self, entry: EventReported) -> None:
        epoch = self._open.pop(_owner(entry), None)
        if epoch != entry.event.epoch:
            self.report(
                entry.at,
                f"{entry.process} reported the end of epoch {entry.event.epoch}, which had ended"
                f" before or never begun: {entry.event.message()}",
            )

    def _process_ended(self, entry: ProcessEnded) -> None:
        for owner in [one for one in self._open if one[:2] == (entry.process, entry.life)]:
            self._never_ended(entry.at, entry.process, self._open.pop(owner), "when it ended")

    def _crashed(self, entry: ProcessCrashed) -> None:
        for owner in [one for one in self._open if one[:2] == (entry.process, entry.life)]:
            del self._open[owner]

    def _never_ended(self, at: float, process: str, epoch: int, when: str) -> None:
        self.report(at, f"the partitions of epoch {epoch} of {process} had not ended {when}")


def _owner(entry: EventReported) -> _Owner:
    return entry.process, entry.life, entry.event.group_id
