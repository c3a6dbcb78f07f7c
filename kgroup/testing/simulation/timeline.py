"""Draws a group's timeline as text, to show what led to a violation.

Time runs from top to bottom; the coordinator and each program have a lane, and the text beside them
says what happens. The rows around the first violation are shown in full, the rows before and after
in outline. What decides a violation may be long before it, and is about the same partition: the
outline before it has such rows as well. The same outcome gives the same timeline, in ASCII, at most
``WIDTH`` characters wide.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, final

import attrs

from kgroup.events import GenerationDraining, GenerationEnded, GenerationStarted, Joining
from kgroup.testing.simulation import history
from kgroup.testing.simulation.checks import Violation
from kgroup.testing.simulation.faults import ALL, Split
from kgroup.testing.simulation.history import HistoryEntry
from kgroup.testing.simulation.run import Outcome
from kgroup.testing.simulation.trace_format import COORDINATOR, TraceEntry, TraceFormatter
from kgroup.types import TopicPartition

WIDTH: Final = 100
"""The most characters of a line."""
_BEFORE: Final = 40
"""Rows before the violation that are shown in full."""
_AFTER: Final = 5
"""Rows after it that are shown in full."""
_OUTLINE: Final = 25
"""Rows of the outline before the full part, and after it."""
_OF_RECORD: Final = 20
_FOLLOWING: Final = 2
_OF_PARTITION: Final = 10
"""Of the partition that the violation is about, rows before the full part that are shown as well:
those about its record or its position, the rows after each of them, and the last ones."""

_TIME: Final = 9
_COORDINATOR: Final = 14
_WORDS: Final = 30
"""The least characters for the text."""
_LANE: Final = 9
_LABELLED: Final = 7
"""The least width of a lane that shows labels; a narrower one shows marks only."""
_NARROWEST: Final = 5

_BLANK, _JOINS, _OWNS, _DRAINS, _FROZEN, _CUT_OFF = " :|~#/"
_LEGEND: Final = (
    f"{_OWNS} in a generation   {_JOINS} between generations   {_DRAINS} drains   {_FROZEN} frozen"
    f"   {_CUT_OFF} cut off   blank: not running"
)
_STATES: Final = {
    Joining: _JOINS,
    GenerationStarted: _OWNS,
    GenerationDraining: _DRAINS,
    GenerationEnded: _JOINS,
}


def timeline(outcome: Outcome) -> str:
    """The timeline of a simulation, around its first violation if it has one.

    Returns:
        Lines without a newline at the end.
    """
    shown = _chosen(_rows(outcome))
    drawing = _Drawing(_lanes_of(outcome.history, shown.rows))
    return "\n".join((drawing.head(), *_lines(drawing, shown), "", _LEGEND))


@final
@attrs.frozen(kw_only=True)
class _Row:
    """A trace entry, with the state of every lane at that time."""

    trace_entry: TraceEntry
    marks: dict[str, str]
    violation: Violation | None


@final
class _Lanes:
    """The current state of every lane."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._frozen: set[str] = set()
        self._splits: list[Split] = []

    def update(self, entry: HistoryEntry) -> None:
        """Update the lanes with the next entry."""
        match entry:
            case history.ProcessStarted():
                self._states[entry.process] = _JOINS
            case history.ProcessEnded() | history.ProcessCrashed():
                self._states[entry.process] = _BLANK
                self._frozen.discard(entry.process)
            case history.ProcessFrozen():
                self._frozen.add(entry.process)
            case history.ProcessThawed():
                self._frozen.discard(entry.process)
            case history.EventReported():
                state = _STATES.get(type(entry.event))
                if state is not None:
                    self._states[entry.process] = state
            case history.FaultBegan(fault=Split() as split):
                self._splits.append(split)
            case history.FaultEnded(fault=Split() as split):
                self._splits.remove(split)
            case _:
                pass

    def marks(self) -> dict[str, str]:
        """The mark of each lane."""
        return {name: self._mark(name, state) for name, state in self._states.items()}

    def _mark(self, name: str, state: str) -> str:
        if state == _BLANK:
            return _BLANK
        if name in self._frozen:
            return _FROZEN
        if any(one.process in (name, ALL) for one in self._splits):
            return _CUT_OFF
        return state


def _rows(outcome: Outcome) -> list[_Row]:
    """All rows, in order."""
    rows: list[_Row | None] = []
    formatter, lanes, runs = TraceFormatter(outcome.plan.topics), _Lanes(), _Runs()
    for one in _with_violations(outcome):
        if isinstance(one, Violation):
            trace_entry: TraceEntry | None = TraceEntry(
                at=one.at, lane=COORDINATOR, words=f"!!! {one}", outline=True
            )
        else:
            lanes.update(one)
            trace_entry = formatter.format(one)
        if trace_entry is None:
            continue
        trace_entry, replaced = runs.join(one, trace_entry, len(rows))
        if replaced is not None:
            rows[replaced] = None
        rows.append(
            _Row(
                trace_entry=trace_entry,
                marks=lanes.marks(),
                violation=one if isinstance(one, Violation) else None,
            )
        )
    return [row for row in rows if row is not None]


@final
class _Runs:
    """Merges rows of consecutive records that a program has processed into one."""

    def __init__(self) -> None:
        self._open: dict[str, dict[TopicPartition, tuple[int, int, int]]] = {}

    def join(
        self, one: HistoryEntry | Violation, trace_entry: TraceEntry, row: int
    ) -> tuple[TraceEntry, int | None]:
        """The trace entry to show in this row, and the row that it replaces, if any."""
        if not isinstance(one, history.Processed):
            self._open.pop(trace_entry.lane, None)
            return trace_entry, None
        runs = self._open.setdefault(one.process, {})
        first, last, replaced = runs.get(one.partition, (one.offset, one.offset - 1, -1))
        if last + 1 != one.offset:
            first, replaced = one.offset, -1
        runs[one.partition] = (first, one.offset, row)
        if first == one.offset:
            return trace_entry, None
        words = f"{one.process} has processed {one.partition} {first} to {one.offset}"
        offsets = {one.partition: range(first, one.offset + 1)}
        return attrs.evolve(trace_entry, words=words, touched=offsets), replaced


def _with_violations(outcome: Outcome) -> Iterator[HistoryEntry | Violation]:
    """The history, with each violation at its time."""
    waiting = sorted(outcome.violations, key=lambda one: one.at)
    for entry in outcome.history:
        while waiting and waiting[0].at < entry.at:
            yield waiting.pop(0)
        yield entry
    yield from waiting


@final
@attrs.frozen(kw_only=True)
class _Shown:
    """The rows to show: some in outline, some in full, some in outline."""

    left_out_before: int
    before: Sequence[_Row]
    full: Sequence[_Row]
    after: Sequence[_Row]
    left_out_after: int

    @property
    def rows(self) -> tuple[_Row, ...]:
        """All of them."""
        return (*self.before, *self.full, *self.after)


def _chosen(rows: Sequence[_Row]) -> _Shown:
    violation = next((row.violation for row in rows if row.violation), None)
    partition = violation and violation.partition
    rows = [
        row for row in rows if not row.trace_entry.minor or partition in row.trace_entry.touched
    ]
    begin = end = len(rows)
    if violation is not None:
        broken = next(number for number, row in enumerate(rows) if row.violation)
        begin, end = max(broken - _BEFORE, 0), broken + 1 + _AFTER
    leading = [] if violation is None else _leading_to(violation, rows[:begin])
    outline = [number for number, row in enumerate(rows[:begin]) if row.trace_entry.outline]
    before = [rows[number] for number in sorted({*outline[-_OUTLINE:], *leading})]
    after = [row for row in rows[end:] if row.trace_entry.outline]
    return _Shown(
        left_out_before=max(len(outline) - _OUTLINE, 0),
        before=before,
        full=rows[begin:end],
        after=after[:_OUTLINE],
        left_out_after=max(len(after) - _OUTLINE, 0),
    )


def _leading_to(violation: Violation, rows: Sequence[_Row]) -> list[int]:
    """The numbers of the rows that are about the same partition and may have decided."""
    partition, offset = violation.partition, violation.offset
    if partition is None:
        return []
    about = [number for number, row in enumerate(rows) if partition in row.trace_entry.touched]
    found = {*about[-_OF_PARTITION:]}
    places = [
        place
        for place, number in enumerate(about)
        if _is_at(rows[number].trace_entry.touched[partition], offset)
    ]
    for place in places[-_OF_RECORD:]:
        found.update(about[place : place + 1 + _FOLLOWING])
    return sorted(found)


def _is_at(offsets: range, offset: int | None) -> bool:
    """Whether a row is about a record, or about the position right before or after it."""
    if offset is None:
        return False
    return offset in offsets or (not offsets and offsets.start in (offset, offset + 1))


def _lanes_of(entries: Iterable[HistoryEntry], rows: Iterable[_Row]) -> list[str]:
    """The programs that get a lane: all, or those with the most rows if there are too many."""
    names = list(
        dict.fromkeys(one.process for one in entries if isinstance(one, history.ProcessStarted))
    )
    room = (WIDTH - _TIME - 2 - _COORDINATOR - _WORDS) // _NARROWEST
    if len(names) <= room:
        return names
    counts = dict.fromkeys(names, 0)
    for row in rows:
        if row.trace_entry.lane in counts:
            counts[row.trace_entry.lane] += 1
    most = sorted(names, key=lambda name: -counts[name])[:room]
    return [name for name in names if name in most]


@final
class _Drawing:
    """Draws rows in lanes."""

    def __init__(self, lanes: Sequence[str]) -> None:
        self._lanes = lanes
        room = WIDTH - _TIME - 2 - _COORDINATOR - _WORDS
        self._width = max(min(_LANE, room // max(len(lanes), 1)), _NARROWEST)
        self._words = WIDTH - _TIME - 2 - _COORDINATOR - self._width * len(lanes)

    def head(self) -> str:
        """The names of the lanes."""
        names = "".join(_fit(name, self._width) for name in self._lanes)
        return f"{'seconds':>{_TIME}}  {_fit('coordinator', _COORDINATOR)}{names}what happens"

    def lines(self, row: _Row) -> Iterator[str]:
        """The lines of a row: as many as its text needs."""
        trace_entry = row.trace_entry
        for number, words in enumerate(textwrap.wrap(trace_entry.words, self._words)):
            first = number == 0
            time = f"{trace_entry.at:{_TIME}.3f}" if first else " " * _TIME
            label = trace_entry.label if first else ""
            cells = [_fit(_OWNS + label * (trace_entry.lane == COORDINATOR), _COORDINATOR)]
            for name in self._lanes:
                mark = row.marks.get(name, _BLANK)
                cells.append(
                    _fit(
                        mark + label * (trace_entry.lane == name and self._width >= _LABELLED),
                        self._width,
                    )
                )
            yield f"{time}  {''.join(cells)}{words}".rstrip()


def _lines(drawing: _Drawing, shown: _Shown) -> Iterator[str]:
    """All lines, with a ruler between outline and full rows."""
    if shown.left_out_before:
        yield f"{'...':>{_TIME}}  ({shown.left_out_before} more)"
    for row in shown.before:
        yield from drawing.lines(row)
    if shown.before and shown.full:
        leading = any(not row.trace_entry.outline for row in shown.before)
        also = " with what led to it in its partition" if leading else ""
        yield _ruler(f"outline so far{also}, everything from here")
    for row in shown.full:
        yield from drawing.lines(row)
    if shown.full and shown.after:
        yield _ruler("outline from here")
    for row in shown.after:
        yield from drawing.lines(row)
    if shown.left_out_after:
        yield f"{'...':>{_TIME}}  ({shown.left_out_after} more)"


def _ruler(words: str) -> str:
    return f"{'-' * _TIME}  {words} ".ljust(WIDTH, "-")


def _fit(text: str, width: int) -> str:
    """The text, cut if it is too long, with at least one blank after it."""
    return (text if len(text) < width else text[: width - 2] + ">").ljust(width)
