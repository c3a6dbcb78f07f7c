"""Invariant 14: what the program itself asserts, and whether it works at all."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import ClassVar, Final, final

from kgroup.testing.simulation.checks.base import Check, EntryHandler, Violation
from kgroup.testing.simulation.checks.views import Kind, Views
from kgroup.testing.simulation.history import HistoryEntry, Processed, ProcessEnded
from kgroup.testing.simulation.plan import Plan
from kgroup.types import TopicPartition

MOST_FAILURES: Final = 30
"""How often programs may end in a row with errors of their own, no further record processed."""
_HINTS: Final = (
    "If they cannot read the values of the records, give `value=` (`--value`), a function that"
    " makes them. If `process.store` is not what they expect, give `setup=` (`--setup`), a function"
    " that returns it. A program reports what it has processed by process.processed(message)"
)


@final
class ProgramErrors:
    """Follows the errors with which programs end; the simulation ends with its first verdict."""

    def __init__(self) -> None:
        self._in_a_row = 0
        self._processed: Final = defaultdict[tuple[str, TopicPartition, int], set[int]](set)
        """The offsets that were processed, for each group, partition and creation of its topic."""

    def add(self, entry: HistoryEntry) -> str | None:
        """Take an entry of the history in; return what is wrong, if it decides that."""
        if isinstance(entry, Processed):
            # Before a record that no run can process, each run repeats those that no commit covers.
            # That is no progress.
            done = self._processed[entry.group_id, entry.partition, entry.creation]
            if entry.offset not in done:
                done.add(entry.offset)
                self._in_a_row = 0
        if not isinstance(entry, ProcessEnded):
            return None
        if entry.assertion is not None:
            return f"{entry.process}: {entry.assertion}"
        self._in_a_row += entry.is_own_error
        if self._in_a_row < MOST_FAILURES:
            return None
        what = (
            f"programs ended {self._in_a_row} times in a row with an error of their own, and no"
            " further record was processed meanwhile; the last was"
            f" {entry.process} with {entry.error}"
        )
        return what if entry.is_refusal else f"{what}. {_HINTS}"


@final
class Assertions(Check):
    """Looks at the errors with which programs end."""

    number: ClassVar[int] = 14
    invariant: ClassVar[str] = (
        "No assertion of the program fails: an AssertionError that ends a program is the result "
        "of the simulation. Other errors end the program only, which is started again, unless "
        f"that happens {MOST_FAILURES} times in a row while no further record is processed."
    )

    def __init__(self, plan: Plan, views: Views, on_violation: Callable[[Violation], None]) -> None:
        super().__init__(plan, views, on_violation)
        self._errors = ProgramErrors()

    @property
    def handlers(self) -> Mapping[Kind, EntryHandler]:
        """See ``Check``."""
        return {Processed: self._add, ProcessEnded: self._add}

    def _add(self, entry: HistoryEntry) -> None:
        if (what := self._errors.add(entry)) is not None:
            self.report(entry.at, what, getattr(entry, "traceback", None) or "")
