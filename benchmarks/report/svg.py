"""Pictures as SVG: lanes of gaps or spans, bars, curves and growth. All functions are pure.

The background is part of a picture, so that it can be read on a dark page too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from html import escape
from typing import Final, final

import attrs

WIDTH: Final = 900
LEFT: Final = 190
RIGHT: Final = 110
TOP: Final = 52
BOTTOM: Final = 34
INK: Final = "#1f2933"
FAINT: Final = "#8493a3"
CALM: Final = "#d9e6f2"
WAIT: Final = "#d1495b"
OURS: Final = "#1f6feb"
THEIRS: Final = "#9aa9b8"
LANE: Final = 5
BAR: Final = 16

Scale = Callable[[float], float]
"""Pixels of a value."""


@final
@attrs.frozen(kw_only=True)
class Lanes:
    """The panel of one client: a lane for each partition, in which gaps are drawn.

    Attributes:
        name: the client.
        note: a few words beside the lanes, such as the longest gap.
        seconds: how long the lanes are.
        partitions: the number of lanes.
        gaps: partition, begin and end in seconds.
        events: seconds and words.
        failed: why there is nothing to draw.
    """

    name: str
    note: str = ""
    seconds: float = 0.0
    partitions: int = 0
    gaps: Sequence[tuple[int, float, float]] = ()
    events: Sequence[tuple[float, str]] = ()
    failed: str = ""

    @property
    def height(self) -> int:
        """Pixels that the panel needs."""
        return max(self.partitions, 4) * LANE + 22


@final
@attrs.frozen(kw_only=True)
class Bar:
    """A bar: a name, a value, its spread, and what is written beside it; None if it failed."""

    name: str
    value: float | None
    low: float = 0.0
    high: float = 0.0
    text: str = ""
    ours: bool = False


@final
@attrs.frozen(kw_only=True)
class Curve:
    """A curve of one client: points of seconds and values."""

    name: str
    points: Sequence[tuple[float, float]]
    ours: bool = False


@final
@attrs.frozen(kw_only=True)
class Spans:
    """The lane of one member: the times in which it had something, and moments.

    Attributes:
        name: the member.
        spans: begin and end in seconds, and what it had.
        marks: seconds, and whether it received something (or sent something).
    """

    name: str
    spans: Sequence[tuple[float, float, str]]
    marks: Sequence[tuple[float, bool]]


SPAN: Final = 22
_COLOURS: Final = (WAIT, "#b7791f", INK)
"""The colours of lines that are not ours, in their order."""


def spans(title: str, legend: str, begin: float, end: float, found: Sequence[Spans]) -> str:
    """What each member had over time; above its lane what it received, below what it sent."""

    def x(at: float) -> float:
        return 80 + (WIDTH - 80 - 30) * (at - begin) / (end - begin)

    parts, top = list[str](), float(TOP) + 8
    for lane in found:
        parts.append(_text(68, top + 15, lane.name, anchor="end", weight="600"))
        parts.append(_rect(x(begin), top, x(end) - x(begin), SPAN, "#f5f7f9"))
        for since, until, words in lane.spans:
            wide = max(x(until) - x(since), 0.6)
            parts.append(_rect(x(since), top, wide, SPAN, CALM))
            if wide > 7 * len(words):
                parts.append(_text(x(since) + 4, top + 15, words))
        for at, received in lane.marks:
            above = top - 7 if received else top + SPAN
            parts.append(_line(x(at), above, x(at), above + 7, WAIT if received else OURS))
        top += SPAN + 22
    parts.append(_line(x(0), TOP - 4, x(0), top - 12, INK, dash="2 2"))
    for at in _steps(end):
        parts.append(_line(x(at), top - 12, x(at), top - 7, FAINT))
        parts.append(_text(x(at), top + 6, f"{at:g} s", anchor="middle", fill=FAINT))
    return _picture(title, legend, top + 18, parts)


def growth(title: str, unit: str, across: str, found: Sequence[Curve], height: int = 260) -> str:
    """Values by size, both on scales of powers of ten; a line for each name, with its points."""
    sizes = [size for one in found for size, _ in one.points]
    values = [value for one in found for _, value in one.points if value > 0]
    if not values:
        return _picture(title, unit, TOP + 20, [])
    left, right = math.floor(math.log10(min(sizes))), math.ceil(math.log10(max(sizes)))
    low, high = math.floor(math.log10(min(values))), math.ceil(math.log10(max(values)))
    bottom = TOP + height

    def x(size: float) -> float:
        return 80 + (WIDTH - 80 - LEFT) * (math.log10(size) - left) / max(right - left, 1)

    def y(value: float) -> float:
        return bottom - height * (math.log10(value) - low) / max(high - low, 1)

    parts = list[str]()
    for power in range(low, high + 1):
        at = y(10.0**power)
        parts.append(_line(x(10.0**left), at, x(10.0**right), at, CALM))
        parts.append(_text(72, at + 4, f"{10.0**power:,.9g}", anchor="end", fill=FAINT))
    for power in range(left, right + 1):
        words = f"{10**power:,} {across}"
        parts.append(_text(x(10.0**power), bottom + 18, words, anchor="middle", fill=FAINT))
    ends = list[float]()
    for one in sorted(found, key=lambda one: -one.points[-1][1]):
        points = [(x(size), y(value)) for size, value in one.points if value > 0]
        if not points:
            continue
        colour = OURS if one.ours else _COLOURS[found.index(one) % len(_COLOURS)]
        path = " ".join(f"{across:.1f},{up:.1f}" for across, up in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in points]
        end, place = points[-1]
        place = max(place + 4, ends[-1] + 14) if ends else place + 4
        ends.append(place)
        parts.append(_text(end + 10, place, one.name, fill=colour))
    return _picture(title, unit, bottom + BOTTOM, parts)


def lanes(title: str, legend: str, panels: Sequence[Lanes]) -> str:
    """The gaps of each partition over time, one client below the other."""
    seconds = max((one.seconds for one in panels), default=0.0) or 1.0

    def x(at: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT) * min(max(at, 0.0), seconds) / seconds

    def panel(one: Lanes, top: float) -> Iterator[str]:
        middle = top + (one.height - 22) / 2 + 4
        yield _text(LEFT - 12, middle, one.name, anchor="end", weight="600")
        if one.failed:
            yield _text(LEFT, middle, f"failed: {one.failed[:90]}", fill=WAIT)
            return
        for lane in range(one.partitions):
            yield _rect(x(0), top + lane * LANE, x(one.seconds) - x(0), LANE - 1, CALM)
        for partition, began, ended in one.gaps:
            if partition < one.partitions:
                wide = max(x(ended) - x(began), 0.6)
                yield _rect(x(began), top + partition * LANE, wide, LANE - 1, WAIT)
        bottom = top + one.partitions * LANE + 3
        for at, _ in one.events:
            yield _line(x(at), top - 4, x(at), bottom, INK, dash="2 2")
        yield _text(WIDTH - RIGHT + 10, middle, one.note)

    parts, top = list[str](), float(TOP)
    for one in panels:
        parts += panel(one, top)
        top += one.height
    parts += _axis(x, seconds, top - 8, "s")
    return _picture(title, legend, top + BOTTOM, parts)


def bars(title: str, unit: str, found: Sequence[Bar]) -> str:
    """A bar for each value, with a line from the lowest to the highest."""
    most = max((max(one.high, one.value) for one in found if one.value is not None), default=0.0)
    scale = most or 1.0

    def x(value: float) -> float:
        return LEFT + (WIDTH - LEFT - RIGHT - 60) * value / scale

    parts, top = list[str](), float(TOP)
    for one in found:
        base = top + BAR - 4
        parts.append(_text(LEFT - 12, base, one.name, anchor="end", weight="600"))
        if one.value is None:
            parts.append(_text(LEFT, base, f"failed: {one.text[:90]}", fill=WAIT))
        else:
            colour = OURS if one.ours else THEIRS
            parts.append(_rect(LEFT, top, max(x(one.value) - LEFT, 1.0), BAR - 4, colour))
            if one.high > one.low:
                middle = top + (BAR - 4) / 2
                parts.append(_line(x(one.low), middle, x(one.high), middle, INK))
            parts.append(_text(x(max(one.value, one.high)) + 8, base, one.text))
        top += BAR + 6
    return _picture(title, unit, top + 8, parts)


def curves(title: str, unit: str, found: Sequence[Curve], height: int = 260) -> str:
    """Values over time, a curve a client, each named at its end."""
    seconds = max((at for one in found for at, _ in one.points), default=1.0) or 1.0
    most = max((value for one in found for _, value in one.points), default=1.0) or 1.0
    bottom = TOP + height

    def x(at: float) -> float:
        return 60 + (WIDTH - 60 - LEFT) * at / seconds

    def y(value: float) -> float:
        return bottom - height * value / most

    parts = [*_axis(x, seconds, bottom, "s")]
    for step in _steps(most):
        parts.append(_line(x(0), y(step), x(seconds), y(step), CALM))
        parts.append(_text(x(0) - 8, y(step) + 4, f"{step:g}", anchor="end", fill=FAINT))
    ends = list[float]()
    for one in sorted(found, key=lambda one: -one.points[-1][1] if one.points else 0.0):
        if not one.points:
            continue
        colour = OURS if one.ours else THEIRS
        path = " ".join(f"{x(at):.1f},{y(value):.1f}" for at, value in one.points)
        wide = 2.5 if one.ours else 1.5
        parts.append(
            f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="{wide}"/>'
        )
        _, value = one.points[-1]
        place = max(y(value) + 4, ends[-1] + 14) if ends else y(value) + 4
        ends.append(place)
        parts.append(_text(x(seconds) + 8, place, f"{one.name}, {value:.0f}"))
    return _picture(title, unit, max(bottom + BOTTOM, (ends or [0.0])[-1] + 12), parts)


def _axis(x: Scale, seconds: float, top: float, unit: str) -> Iterator[str]:
    for step in _steps(seconds):
        yield _line(x(step), top, x(step), top + 5, FAINT)
        yield _text(x(step), top + 18, f"{step:g} {unit}", anchor="middle", fill=FAINT)


def _steps(most: float) -> list[float]:
    """Round numbers from 0 to ``most``, about six."""
    size = 10.0 ** (len(str(int(most))) - 1) if most >= 1 else 0.1
    while most / size < 4:
        size /= 2
    while most / size > 8:
        size *= 2
    return [round(number * size, 6) for number in range(int(most / size) + 1)]


def _picture(title: str, legend: str, height: float, parts: Iterable[str]) -> str:
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{height:.0f}"'
        f' viewBox="0 0 {WIDTH} {height:.0f}" font-family="system-ui, sans-serif" font-size="12"'
        f' role="img">\n<title>{escape(title)}</title>\n'
        f'<rect width="{WIDTH}" height="{height:.0f}" rx="6" fill="#ffffff"/>\n'
        f"{_text(14, 19, title, weight='600', size=14)}\n"
        f"{_text(14, 36, legend, fill=FAINT)}\n{body}\n</svg>\n"
    )


def _text(
    x: float,
    y: float,
    words: str,
    *,
    anchor: str = "start",
    weight: str = "400",
    fill: str = INK,
    size: int = 12,
) -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-weight="{weight}"'
        f' font-size="{size}" fill="{fill}">{escape(words)}</text>'
    )


def _rect(x: float, y: float, wide: float, high: float, fill: str) -> str:
    return f'<rect x="{x:.1f}" y="{y:.1f}" width="{wide:.1f}" height="{high}" fill="{fill}"/>'


def _line(x1: float, y1: float, x2: float, y2: float, stroke: str, *, dash: str = "") -> str:
    dashed = f' stroke-dasharray="{dash}"' if dash else ""
    ends = f'x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}"'
    return f'<line {ends} stroke="{stroke}"{dashed}/>'
