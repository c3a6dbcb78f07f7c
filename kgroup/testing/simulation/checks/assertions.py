"""Invariant 14: what the program itself asserts, and whether it works at all."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final, final

from kgroup.testing.simulation.checks.base import Check, EntryHandler, Violation
from kgroup.testing.simulation.checks.views import Kind, Views
from kgroup.testing.simulation.history import HistoryEntry, Processed, ProcessEnded
from kgroup.testing.simulation.plan import Plan

MOST_FAILURES: Final = 30
"""So often programs may end in a row with errors of their own while no record is processed."""
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

    def add(self, entry: HistoryEntry) -> str | None:
        """Take an entry of the history in; return what is wrong, if it decides that."""
        if isinstance(entry, Processed):
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
            f" record was processed meanwhile; the last was {entry.process} with {entry.error}"
        )
        return what if entry.is_refusal else f"{what}. {_HINTS}"


@final
class Assertions(Check):
    """Looks at the errors with which programs end."""

    number: ClassVar[int] = 14
    invariant: ClassVar[str] = (
        "No assertion of the program fails: an AssertionError that ends a program is the result "
        "of the simulation. Other errors end the program only, which is started again, unless "
        f"that happens {MOST_FAILURES} times in a row while no record is processed."
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
