"""A picture of a group in text, for a person who wants to know how it came to a violation.

Time goes from top to bottom; the coordinator has a lane and so has each program; what happens is
told beside them. The stretch around the first violation is shown in full, all before and after in
outline. The same outcome gives the same picture, at most ``WIDTH`` characters wide, in ASCII.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from typing import Final, final

import attrs

from kgroup.events import GenerationDraining, GenerationEnded, GenerationStarted, Joining
from kgroup.testing.simulation import history
from kgroup.testing.simulation.checks import Violation
from kgroup.testing.simulation.faults import EVERYBODY, Split
from kgroup.testing.simulation.history import Fact
from kgroup.testing.simulation.run import Outcome
from kgroup.testing.simulation.trace_format import COORDINATOR, TraceEntry, TraceFormatter
from kgroup.types import TopicPartition

WIDTH: Final = 100
"""Characters of a line at most."""
_BEFORE: Final = 40
"""Rows before the violation that are shown in full."""
_AFTER: Final = 5
"""Rows after it that are shown in full."""
_OUTLINE: Final = 25
"""Rows of the outline, before the stretch and after it."""

_TIME: Final = 9
_COORDINATOR: Final = 14
_WORDS: Final = 30
"""Characters for words, at least."""
_LANE: Final = 9
_LABELLED: Final = 7
"""A narrower lane has marks only."""
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
    """The picture of a simulation, around its first violation if it has one.

    Returns:
        Lines without a newline at the end.
    """
    shown = _chosen(_rows(outcome))
    picture = _Picture(_lanes_of(outcome.facts, shown.rows))
    return "\n".join((picture.head(), *_lines(picture, shown), "", _LEGEND))


@final
@attrs.frozen(kw_only=True)
class _Row:
    """A sight, with what every lane's state is by then."""

    sight: TraceEntry
    marks: dict[str, str]
    violation: bool


@final
class _Lanes:
    """The state of every lane, as the facts go by."""

    def __init__(self) -> None:
        self._states: dict[str, str] = {}
        self._frozen: set[str] = set()
        self._splits: list[Split] = []

    def see(self, fact: Fact) -> None:
        """Take the next fact in."""
        match fact:
            case history.ProcessStarted():
                self._states[fact.process] = _JOINS
            case history.ProcessEnded() | history.ProcessCrashed():
                self._states[fact.process] = _BLANK
                self._frozen.discard(fact.process)
            case history.ProcessFrozen():
                self._frozen.add(fact.process)
            case history.ProcessThawed():
                self._frozen.discard(fact.process)
            case history.Told():
                state = _STATES.get(type(fact.event))
                if state is not None:
                    self._states[fact.process] = state
            case history.FaultBegan(fault=Split() as split):
                self._splits.append(split)
            case history.FaultEnded(fault=Split() as split):
                self._splits.remove(split)
            case _:
                pass

    def marks(self) -> dict[str, str]:
        """Each lane's mark."""
        return {name: self._mark(name, state) for name, state in self._states.items()}

    def _mark(self, name: str, state: str) -> str:
        if state == _BLANK:
            return _BLANK
        if name in self._frozen:
            return _FROZEN
        if any(one.process in (name, EVERYBODY) for one in self._splits):
            return _CUT_OFF
        return state


def _rows(outcome: Outcome) -> list[_Row]:
    """Everything that there is to see, in its order."""
    rows: list[_Row | None] = []
    speaker, lanes, runs = TraceFormatter(outcome.plan.topics), _Lanes(), _Runs()
    for one in _with_violations(outcome):
        if isinstance(one, Violation):
            sight: TraceEntry | None = TraceEntry(
                at=one.at, lane=COORDINATOR, words=f"!!! {one}", outline=True
            )
        else:
            lanes.see(one)
            sight = speaker.sight(one)
        if sight is None:
            continue
        sight, replaced = runs.join(one, sight, len(rows))
        if replaced is not None:
            rows[replaced] = None
        rows.append(_Row(sight=sight, marks=lanes.marks(), violation=isinstance(one, Violation)))
    return [row for row in rows if row is not None]


@final
class _Runs:
    """Makes one of several records that a program has processed one after another."""

    def __init__(self) -> None:
        self._open: dict[str, dict[TopicPartition, tuple[int, int, int]]] = {}

    def join(
        self, one: Fact | Violation, sight: TraceEntry, row: int
    ) -> tuple[TraceEntry, int | None]:
        """The sight to show in this row, and the row that it takes the place of, if any."""
        if not isinstance(one, history.Processed):
            self._open.pop(sight.lane, None)
            return sight, None
        runs = self._open.setdefault(one.process, {})
        first, last, replaced = runs.get(one.partition, (one.offset, one.offset - 1, -1))
        if last + 1 != one.offset:
            first, replaced = one.offset, -1
        runs[one.partition] = (first, one.offset, row)
        if first == one.offset:
            return sight, None
        words = f"{one.process} has processed {one.partition} {first} to {one.offset}"
        return attrs.evolve(sight, words=words), replaced


def _with_violations(outcome: Outcome) -> Iterator[Fact | Violation]:
    """The facts, with each violation after its moment."""
    waiting = sorted(outcome.violations, key=lambda one: one.at)
    for fact in outcome.facts:
        while waiting and waiting[0].at < fact.at:
            yield waiting.pop(0)
        yield fact
    yield from waiting


@final
@attrs.frozen(kw_only=True)
class _Shown:
    """The rows to show: some in outline, a stretch in full, some in outline."""

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
    broken = next((number for number, row in enumerate(rows) if row.violation), None)
    begin = end = len(rows)
    if broken is not None:
        begin, end = max(broken - _BEFORE, 0), broken + 1 + _AFTER
    before = [row for row in rows[:begin] if row.sight.outline]
    after = [row for row in rows[end:] if row.sight.outline]
    return _Shown(
        left_out_before=max(len(before) - _OUTLINE, 0),
        before=before[-_OUTLINE:],
        full=rows[begin:end],
        after=after[:_OUTLINE],
        left_out_after=max(len(after) - _OUTLINE, 0),
    )


def _lanes_of(seen: Iterable[Fact], rows: Iterable[_Row]) -> list[str]:
    """The programs that have a lane: all, or those that most happens to if they are too many."""
    names = list(
        dict.fromkeys(one.process for one in seen if isinstance(one, history.ProcessStarted))
    )
    room = (WIDTH - _TIME - 2 - _COORDINATOR - _WORDS) // _NARROWEST
    if len(names) <= room:
        return names
    counts = dict.fromkeys(names, 0)
    for row in rows:
        if row.sight.lane in counts:
            counts[row.sight.lane] += 1
    most = sorted(names, key=lambda name: -counts[name])[:room]
    return [name for name in names if name in most]


@final
class _Picture:
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
        """A row: as many lines as its words need."""
        sight = row.sight
        for number, words in enumerate(textwrap.wrap(sight.words, self._words)):
            first = number == 0
            time = f"{sight.at:{_TIME}.3f}" if first else " " * _TIME
            label = sight.label if first else ""
            cells = [_fit(_OWNS + label * (sight.lane == COORDINATOR), _COORDINATOR)]
            for name in self._lanes:
                mark = row.marks.get(name, _BLANK)
                cells.append(
                    _fit(
                        mark + label * (sight.lane == name and self._width >= _LABELLED),
                        self._width,
                    )
                )
            yield f"{time}  {''.join(cells)}{words}".rstrip()


def _lines(picture: _Picture, shown: _Shown) -> Iterator[str]:
    """All lines, with a ruler where outline and full picture meet."""
    if shown.left_out_before:
        yield f"{'...':>{_TIME}}  ({shown.left_out_before} more)"
    for row in shown.before:
        yield from picture.lines(row)
    if shown.before and shown.full:
        yield _ruler("in outline so far; in full from here")
    for row in shown.full:
        yield from picture.lines(row)
    if shown.full and shown.after:
        yield _ruler("in outline from here")
    for row in shown.after:
        yield from picture.lines(row)
    if shown.left_out_after:
        yield f"{'...':>{_TIME}}  ({shown.left_out_after} more)"


def _ruler(words: str) -> str:
    return f"{'-' * _TIME}  {words} ".ljust(WIDTH, "-")


def _fit(text: str, width: int) -> str:
    """At least one blank at its end; what is too long loses its end."""
    return (text if len(text) < width else text[: width - 2] + ">").ljust(width)
