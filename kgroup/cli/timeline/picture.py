"""Draws a story as SVG: a row for each member, over time. All functions are pure.

A row has lanes, from its top: the member's name; lines that show how long the member took to learn
of each rebalance; the bar of its phases; commits and refusals; joins and drains; warnings and other
events.

Shapes have their times, in seconds since the first event, in ``data-a`` and ``data-b``, so that the
script of the page can move them; without the script they stand where they belong. Hovering shows
``title``.

INVARIANT: a row has at most ``PLOT / cell + 1`` marks of a kind, however many events there are:
those that would lie upon each other are drawn as one.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import chain
from typing import Final

from kgroup.cli.timeline.gaps import missing_members
from kgroup.cli.timeline.rebalances import Rebalance
from kgroup.cli.timeline.story import (
    RUNNING,
    SILENT,
    UNKNOWN,
    Mark,
    MemberStory,
    Span,
    Story,
    clocks_set_back,
)
from kgroup.cli.timeline.style import (
    BAND,
    FAINT,
    FILLS,
    INK,
    LAG,
    LATE,
    LINE,
    PAPER,
    SHAPES,
    Shape,
    fill_of,
)
from kgroup.errors import count_of

WIDTH: Final = 1200
LEFT: Final = 20
RIGHT: Final = 30
MARGIN: Final = 8
PLOT: Final = WIDTH - LEFT - RIGHT
HEAD: Final = 40
"""The height of the heading, to which the lines of the legend are added."""
LEGEND_LINE: Final = 20
GAP: Final = 12
ROW: Final = 88
LAG_LANE: Final = 18
BAR_LANE: Final = 27
BAR: Final = 16
BOTTOM: Final = 44
TICKS: Final = 10
_PER_CHARACTER: Final = 7
"""Pixels that a character of a label needs at most."""

Scale = Callable[[float], float]
"""Pixels of a time in seconds since the first event."""


def svg(story: Story, number: int = 1, *, alone: bool = True) -> str:
    """The picture of one group.

    Args:
        story: the group.
        number: of the picture in its page: ids in it end with the number.
        alone: whether it has a heading and a legend. The page has these as text, which wraps.
    """
    length = length_of(story)
    top = GAP + (HEAD + LEGEND_LINE * _legend_lines() if alone else 0)
    height = top + ROW * len(story.members) + BOTTOM

    def x(seconds: float) -> float:
        return round(LEFT + seconds / length * PLOT, 2)

    rows = (
        _row(story, member, top + ROW * index, number, x)
        for index, member in enumerate(story.members)
    )
    parts = chain(
        _head(story, height, length, number),
        _legend(story, number) if alone else (),
        _axis(story, top, height, x),
        [f'<g clip-path="url(#plot-{number})">'],
        chain.from_iterable(_rebalance(story, one, top, height, x) for one in story.rebalances),
        ["</g>"],
        chain.from_iterable(rows),
        ["</svg>"],
    )
    return "\n".join(parts)


def length_of(story: Story) -> float:
    """The seconds that the picture is wide."""
    return max(story.end - story.begin, 1e-3)


def heading(story: Story) -> str:
    """What the picture shows, in one line."""
    return f"group {story.group_id}: {extent(story)}"


def extent(story: Story) -> str:
    """How many members the picture shows, when they ran, and what is wrong with it."""
    begin = time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(story.begin))
    text = f"{count_of(len(story.members), 'member')}, {story.end - story.begin:.1f} s from {begin}"
    return "; ".join(filter(None, (text, *remarks(story))))


def remarks(story: Story) -> tuple[str, str]:
    """What the files lack, and what is drawn elsewhere than they say; empty if nothing is."""
    return missing_members(story.gaps), clocks_set_back(story.moved)


def clock(story: Story, seconds: float, digits: int = 3) -> str:
    """The time of day of some seconds since the first event, in UTC."""
    at = round(story.begin + seconds, digits)
    fraction = f"{at % 1:.{digits}f}"[1:] if digits else ""
    return time.strftime("%H:%M:%S", time.gmtime(math.floor(at))) + fraction


def moment(story: Story, seconds: float) -> str:
    """Some seconds since the first event, and the time of day."""
    return f"{seconds:.3f} s ({clock(story, seconds)} UTC)"


def _head(story: Story, height: int, length: float, number: int) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        ' font-family="system-ui, sans-serif" font-size="12" role="img"'
        f' data-left="{LEFT}" data-right="{RIGHT}" data-length="{length:.6f}"'
        f' data-begin="{story.begin:.6f}">'
    )
    yield f"<title>{escape(heading(story))}</title>"
    # A mark at the first or last moment is drawn whole.
    clip = f'<rect x="{LEFT - MARGIN}" width="{PLOT + 2 * MARGIN}" height="{height}"/>'
    yield f'<defs><clipPath id="plot-{number}">{clip}</clipPath>{patterns(number)}</defs>'
    yield f'<rect class="paper" width="100%" height="{height}" rx="6" fill="{PAPER}"/>'


def patterns(number: int) -> str:
    """The patterns of the fills that have one; their ids end with the number."""
    return "".join(
        f'<pattern id="{name}-{number}" width="8" height="8" patternUnits="userSpaceOnUse">'
        f'<rect class="{name}" width="8" height="8" fill="{fill.colour}"/>'
        f'<g class="{name}-lines">{fill.lines}</g></pattern>'
        for name, fill in FILLS.items()
        if fill.lines
    )


def paint_of(name: str, number: int) -> str:
    """The attributes that fill a bar."""
    fill = FILLS[name]
    colour = f"url(#{name}-{number})" if fill.lines else fill.colour
    # A class would give the bar the plain colour of its pattern's ground.
    return f'fill="{colour}"' if fill.lines else f'class="{name}" fill="{colour}"'


def keys(number: int) -> list[tuple[str, str]]:
    """What the legend explains: SVG within 18 by 12 pixels, and words."""
    bar = '<rect y="1" width="18" height="11" rx="2" {}/>'
    lag = '<rect class="{}" y="5" width="18" height="4" fill="{}"/>'
    return [
        *((bar.format(paint_of(name, number)), fill.words) for name, fill in FILLS.items()),
        (
            f'<rect class="band" width="18" height="13" fill="{BAND}" stroke="{LINE}"/>',
            "rebalance",
        ),
        (lag.format("lag", LAG), "until a member learned of it"),
        (lag.format("late", LATE), "learned too late: the others went on without it"),
        *((_key_of(kind, shape), shape.words) for kind, shape in SHAPES.items()),
    ]


def _key_of(kind: str, shape: Shape) -> str:
    place = 'transform="translate(9 6.5)"'
    return f'<path class="{kind}" {shape.paint} {place} d="{shape.path}"/>'


def _legend(story: Story, number: int) -> Iterator[str]:
    style = f'font-size="14" font-weight="600" fill="{INK}"'
    yield f'<text class="ink" x="14" y="24" {style}>{escape(heading(story))}</text>'
    for (x, line), (drawing, words) in zip(_legend_places(), keys(number), strict=True):
        y = HEAD + LEGEND_LINE * line
        yield f'<g transform="translate({x} {y})">{drawing}'
        yield f'<text class="faint" x="24" y="10.5" fill="{FAINT}">{escape(words)}</text></g>'


def _legend_places() -> Iterator[tuple[int, int]]:
    """The x and the line of each key; a line is as long as the picture is wide."""
    x, line = 14, 0
    for _, words in keys(0):
        width = 42 + math.ceil(6.3 * len(words))
        if x + width > WIDTH:
            x, line = 14, line + 1
        yield x, line
        x += width


def _legend_lines() -> int:
    return max(line for _, line in _legend_places()) + 1


def _axis(story: Story, top: int, height: int, x: Scale) -> Iterator[str]:
    """Lines at round numbers of seconds, with the seconds and, below these, the time of day."""
    length = length_of(story)
    step = tick_step(length)
    digits = max(0, -math.floor(math.log10(step)))
    for number in range(TICKS + 1):
        seconds = number * step
        hidden = "" if seconds <= length else ' visibility="hidden"'
        yield (
            f'<line class="tick" x1="{x(seconds)}" x2="{x(seconds)}" y1="{top - 6}"'
            f' y2="{height - BOTTOM + 4}" stroke="{LINE}"{hidden}/>'
        )
        yield (
            f'<text class="tick faint" x="{x(seconds)}" y="{height - 24}" text-anchor="middle"'
            f' fill="{FAINT}"{hidden}>{seconds:.{digits}f} s</text>'
        )
        yield (
            f'<text class="clock faint" x="{x(seconds)}" y="{height - 9}" text-anchor="middle"'
            f' font-size="10" fill="{FAINT}"{hidden}>{clock(story, seconds, digits)}</text>'
        )


def tick_step(length: float) -> float:
    """The shortest of 1, 2 and 5, times a power of ten, that needs at most ``TICKS`` steps."""
    power = 10.0 ** math.floor(math.log10(length / TICKS))
    return next(
        step for step in (power, 2 * power, 5 * power, 10 * power) if step * TICKS >= length
    )


def _rebalance(story: Story, one: Rebalance, top: int, height: int, x: Scale) -> Iterator[str]:
    """A band from the first sign of a rebalance until the last member works again."""
    begin, end = one.begin - story.begin, one.end - story.begin
    yield _bar(
        begin,
        end,
        x,
        f'class="band" y="{top - 6}" height="{height - top - BOTTOM + 10}" fill="{BAND}"',
        f"{in_words(one)}; from {moment(story, begin)}",
    )


def in_words(one: Rebalance) -> str:
    """A rebalance in one sentence."""
    text = f"rebalance to generation {one.generation_id}: {one.end - one.begin:.3f} s"
    if one.learned:
        last = max(one.learned, key=lambda name: one.learned[name])
        text += f"; the last to learn of it was {last}, after {one.learned[last]:.3f} s"
    if one.slowest is not None:
        member, took = one.slowest
        text += f"; the longest drain was that of {member}, with {took:.3f} s"
    for name, seconds in one.late.items():
        text += f"; {name} learned of it only after {seconds:.3f} s, and was not waited for"
    return text


def _row(story: Story, member: MemberStory, y: int, number: int, x: Scale) -> Iterator[str]:
    yield f'<g class="row" data-y="{y}" data-name="{escape(member.name)}">'
    yield (
        f'<text class="ink" x="{LEFT}" y="{y + 12}" font-weight="600" fill="{INK}">'
        f"{escape(member.name)}</text>"
    )
    yield f'<g clip-path="url(#plot-{number})">'
    yield from _lags(story, member, y + LAG_LANE, x)
    for span in member.spans:
        yield from _span(span, story, y + BAR_LANE, number, x)
    for kind, shape in SHAPES.items():
        marks = [mark for mark in member.marks if mark.kind == kind]
        if marks:
            yield from _marks(kind, shape, marks, story, y, x)
    yield "</g></g>"


def _lags(story: Story, member: MemberStory, y: float, x: Scale) -> Iterator[str]:
    """A line for each rebalance, from its begin until the member learned of it."""
    found = [
        (one, learned[member.name], name, colour)
        for one in story.rebalances
        for learned, name, colour in ((one.learned, "lag", LAG), (one.late, "late", LATE))
        if learned.get(member.name, 0) > 0
    ]
    for index, (one, seconds, name, colour) in enumerate(found):
        begin = one.begin - story.begin
        end = begin + seconds
        limit = found[index + 1][0].begin - story.begin if index + 1 < len(found) else math.inf
        words = f"learned of the rebalance to generation {one.generation_id} after {seconds:.3f} s"
        if name == "late":
            words += ", when the others already worked without it"
        shape = f'class="item {name}" y="{y + 1}" height="4" fill="{colour}"'
        yield _bar(begin, end, x, shape, words)
        label = f"{seconds * 1000:.0f} ms" if seconds < 0.1 else f"{seconds:.1f} s"
        room = (x(limit) if limit < math.inf else LEFT + PLOT) - x(end) - 4
        hidden = "" if room >= _PER_CHARACTER * len(label) else ' visibility="hidden"'
        yield (
            f'<text class="after {name}" data-a="{end:.6f}" data-b="{_finite(limit)}"'
            f' x="{x(end) + 4}" y="{y + 6.5}" font-size="10" fill="{colour}"'
            f' pointer-events="none"{hidden}>{label}</text>'
        )


def _finite(seconds: float) -> str:
    """A time as the script reads it."""
    return f"{seconds:.6f}" if seconds < math.inf else "Infinity"


def _span(span: Span, story: Story, y: int, number: int, x: Scale) -> Iterator[str]:
    begin, end = span.begin - story.begin, span.end - story.begin
    name = fill_of(span)
    words = f"{span.phase} for {end - begin:.3f} s, from {moment(story, begin)}"
    if span.generation_id >= 0:
        words += f", generation {span.generation_id}"
    if span.partitions:
        words += (
            f", {count_of(len(span.partitions), 'partition')}: {', '.join(span.partitions[:20])}"
        )
    if span.text:
        words += f"; {span.text}"
    group = f'<g class="item span" data-kind="{name}">'
    shape = f'y="{y}" height="{BAR}" rx="2" {paint_of(name, number)}'
    yield group + _bar(begin, end, x, shape, words)
    if span.phase == SILENT or (span.phase == RUNNING and span.generation_id >= 0):
        yield _label(span, begin, end, y, x)
    yield "</g>"


def _label(span: Span, begin: float, end: float, y: int, x: Scale) -> str:
    """The generation's number, with a word for its end where there is room; how long a silence is.

    Where there is room for nothing else, a silence has its seconds.
    """
    short = str(span.generation_id) if span.phase == RUNNING else f"{end - begin:.1f} s"
    words = (short, FILLS[span.kind].label)
    long = " ".join(words if span.phase == RUNNING else reversed(words)).strip()
    room = x(end) - x(begin) - 6
    text = long if room >= _PER_CHARACTER * len(long) else short
    hidden = "" if room >= _PER_CHARACTER * len(text) else ' visibility="hidden"'
    name, ink = ("ink", INK) if span.kind in (UNKNOWN, SILENT) else ("on-bar", PAPER)
    return (
        f'<text class="label {name}" data-a="{begin:.6f}" data-b="{end:.6f}" data-long="{long}"'
        f' data-short="{short}" x="{x(begin) + 4}" y="{y + BAR - 4}" font-size="11"'
        f' font-weight="600" fill="{ink}" pointer-events="none"{hidden}>{text}</text>'
    )


def _marks(
    kind: str, shape: Shape, marks: Sequence[Mark], story: Story, y: int, x: Scale
) -> Iterator[str]:
    """The marks of one kind in a row."""
    begin = story.begin
    height = y + shape.lane
    yield (
        f'<g class="marks {kind}" {shape.paint} data-kind="{kind}" data-y="{height}"'
        f' data-cell="{shape.cell}" data-path="{shape.path}" data-plural="{shape.plural}">'
    )
    for group in together([x(mark.at - begin) for mark in marks], shape.cell):
        first, last = marks[group[0]], marks[group[-1]]
        words = f"{moment(story, first.at - begin)}, {text_of(first)}"
        wide = ""
        if len(group) > 1:
            words = (
                f"{len(group)} {shape.plural} from {moment(story, first.at - begin)} to"
                f" {moment(story, last.at - begin)}; the first: {text_of(first)}"
            )
            wide = ' stroke-width="2.5"'
        yield (
            f'<path class="item" data-a="{first.at - begin:.6f}" data-b="{last.at - begin:.6f}"'
            f' transform="translate({x(first.at - begin)} {height})" d="{shape.path}"{wide}>'
            f"<title>{escape(words)}</title></path>"
        )
    yield "</g>"


def text_of(mark: Mark) -> str:
    """A mark in words; a commit of many partitions is shortened."""
    return f"{mark.event}: {mark.text if len(mark.text) <= 200 else f'{mark.text[:199]}…'}"


def together(places: Sequence[float], cell: float) -> Iterator[range]:
    """The indices of places that are drawn as one: those within a cell from the first of them.

    The places are in ascending order, and the ranges cover all.
    """
    first = 0
    for index, place in enumerate(places):
        if place - places[first] >= cell:
            yield range(first, index)
            first = index
    yield range(first, len(places))


def _bar(begin: float, end: float, x: Scale, attributes: str, title: str) -> str:
    """A rectangle for a time; it is visible also if the time is short."""
    return (
        f'<rect data-a="{begin:.6f}" data-b="{end:.6f}" x="{x(begin)}"'
        f' width="{max(x(end) - x(begin), 1):.2f}" {attributes}>'
        f"<title>{escape(title)}</title></rect>"
    )
