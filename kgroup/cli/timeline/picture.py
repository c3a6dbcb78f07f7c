"""Draws a story as SVG: a row for each member, over time. All functions are pure.

Shapes have their times, in seconds since the first event, in ``data-a`` and ``data-b``, so that the
script of the page can move them; without the script they stand where they belong. Hovering shows
``title``. The background is part of the picture, so that it can be read on a dark page too.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from html import escape
from itertools import chain
from typing import Final

from kgroup.cli.timeline.story import (
    DRAINING,
    JOINING,
    LOST,
    RUNNING,
    STARTING,
    UNKNOWN,
    WAITING,
    Mark,
    Member,
    Rebalance,
    Span,
    Story,
)

WIDTH: Final = 1200
LEFT: Final = 230
RIGHT: Final = 20
PLOT: Final = WIDTH - LEFT - RIGHT
TOP: Final = 74
ROW: Final = 40
BAR: Final = 16
BOTTOM: Final = 30
TICKS: Final = 10
_PER_LABEL: Final = 9
"""Pixels that a generation's number needs for each digit."""

INK: Final = "#1f2933"
FAINT: Final = "#65768a"
LINE: Final = "#d5dde5"
WARNING: Final = "#b42318"
COLOURS: Final = {
    JOINING: "#c3cfdb",
    STARTING: "#93b4dc",
    RUNNING: "#1f6feb",
    DRAINING: "#e8a33d",
    WAITING: "#e5e9ee",
}
"""The colour of each phase; a generation that was lost is red."""
LEGEND: Final = (
    (JOINING, "joins"),
    (STARTING, "waits for its partitions"),
    (RUNNING, "works"),
    (DRAINING, "drains"),
    (WAITING, "backs off"),
    (LOST, "generation that was lost"),
    (UNKNOWN, "end not in the files"),
)

Scale = Callable[[float], float]
"""Pixels of a time in seconds since the first event."""


def svg(story: Story) -> str:
    """The picture of one group."""
    length = max(story.end - story.begin, 1e-3)
    height = TOP + ROW * len(story.members) + BOTTOM

    def x(seconds: float) -> float:
        return round(LEFT + seconds / length * PLOT, 2)

    title = (
        f"group {story.group_id}: {len(story.members)} members, {length:.1f} s from"
        f" {_utc(story.begin)}"
    )
    rows = (_row(story, member, number, x) for number, member in enumerate(story.members))
    parts = chain(
        _head(title, height, length),
        _legend(),
        _axis(length, height, x),
        ['<g clip-path="url(#plot)">'],
        chain.from_iterable(_rebalance(story, one, height, x) for one in story.rebalances),
        ["</g>"],
        chain.from_iterable(rows),
        ["</svg>"],
    )
    return "\n".join(parts)


def _head(title: str, height: int, length: float) -> Iterator[str]:
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}"'
        ' font-family="system-ui, sans-serif" font-size="12" role="img"'
        f' data-left="{LEFT}" data-plot="{PLOT}" data-length="{length:.6f}">'
    )
    yield f"<title>{escape(title)}</title>"
    clip = f'<rect x="{LEFT}" width="{PLOT}" height="{height}"/>'
    yield f'<defs><clipPath id="plot">{clip}</clipPath>'
    yield (
        '<pattern id="unknown" width="6" height="6" patternUnits="userSpaceOnUse"'
        ' patternTransform="rotate(45)"><rect width="6" height="6" fill="#eef1f4"/>'
        '<line y2="6" stroke="#9aa9b8" stroke-width="3"/></pattern></defs>'
    )
    yield f'<rect width="{WIDTH}" height="{height}" rx="6" fill="#ffffff"/>'
    style = f'font-size="14" font-weight="600" fill="{INK}"'
    yield f'<text x="14" y="22" {style}>{escape(title)}</text>'


def _utc(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def _legend() -> Iterator[str]:
    x = 14.0
    for name, words in LEGEND:
        fill = "url(#unknown)" if name == UNKNOWN else COLOURS.get(name, WARNING)
        yield f'<rect x="{x:.0f}" y="36" width="12" height="12" rx="2" fill="{fill}"/>'
        yield f'<text x="{x + 17:.0f}" y="46" fill="{FAINT}">{words}</text>'
        x += 34 + 6.4 * len(words)
    yield f'<line x1="{x + 6:.0f}" x2="{x + 6:.0f}" y1="36" y2="48" stroke="{INK}"/>'
    yield f'<text x="{x + 14:.0f}" y="46" fill="{FAINT}">commit</text>'


def _axis(length: float, height: int, x: Scale) -> Iterator[str]:
    step = tick_step(length)
    digits = max(0, -math.floor(math.log10(step)))
    for number in range(TICKS + 1):
        seconds = number * step
        hidden = "" if seconds <= length else ' visibility="hidden"'
        yield (
            f'<line class="tick" x1="{x(seconds)}" x2="{x(seconds)}" y1="{TOP - 8}"'
            f' y2="{height - BOTTOM + 4}" stroke="{LINE}"{hidden}/>'
        )
        yield (
            f'<text class="tick" x="{x(seconds)}" y="{height - 10}" text-anchor="middle"'
            f' fill="{FAINT}"{hidden}>{seconds:.{digits}f} s</text>'
        )


def tick_step(length: float) -> float:
    """The shortest of 1, 2 and 5, times a power of ten, that needs at most ``TICKS`` steps."""
    power = 10.0 ** math.floor(math.log10(length / TICKS))
    return next(
        step for step in (power, 2 * power, 5 * power, 10 * power) if step * TICKS >= length
    )


def _rebalance(story: Story, one: Rebalance, height: int, x: Scale) -> Iterator[str]:
    """A band from the first sign of a rebalance until the last member works again."""
    begin, end = one.begin - story.begin, one.end - story.begin
    yield _timed(
        "rect",
        begin,
        end,
        f'x="{x(begin)}" width="{max(x(end) - x(begin), 1):.2f}" y="{TOP - 8}"'
        f' height="{height - TOP - BOTTOM + 12}" fill="#f3ead7" opacity="0.7"',
        in_words(one),
    )


def in_words(one: Rebalance) -> str:
    """A rebalance in one sentence."""
    text = f"rebalance to generation {one.generation_id}: {one.end - one.begin:.3f} s"
    if one.learned:
        last = max(one.learned, key=lambda name: one.learned[name])
        text += f"; the last to learn of it was {last}, after {one.learned[last]:.3f} s"
    return text


def _row(story: Story, member: Member, number: int, x: Scale) -> Iterator[str]:
    y = TOP + ROW * number
    begin = story.begin
    yield (
        f'<text x="{LEFT - 10}" y="{y + BAR - 3}" text-anchor="end" fill="{INK}">'
        f"{escape(_short(member.name))}<title>{escape(member.name)}</title></text>"
    )
    yield '<g clip-path="url(#plot)">'
    for span in member.spans:
        yield from _span(span, begin, y, x)
    for at in member.commits:
        seconds = at - begin
        yield _timed(
            "line",
            seconds,
            seconds,
            f'x1="{x(seconds)}" x2="{x(seconds)}" y1="{y + BAR + 1}" y2="{y + BAR + 6}"'
            f' stroke="{INK}" stroke-width="0.6"',
        )
    for mark in member.marks:
        yield _mark(mark, mark.at - begin, y, x)
    yield "</g>"


def _short(name: str) -> str:
    return name if len(name) <= 32 else f"{name[:31]}…"


def _span(span: Span, story_begin: float, y: int, x: Scale) -> Iterator[str]:
    begin, end = span.begin - story_begin, span.end - story_begin
    fill = COLOURS[span.phase]
    if span.kind == UNKNOWN:
        fill = "url(#unknown)"
    elif span.kind == LOST and span.phase in (RUNNING, DRAINING):
        fill = WARNING
    width = max(x(end) - x(begin), 1.0)
    words = f"{span.phase} for {end - begin:.3f} s"
    if span.generation_id >= 0:
        words += f", generation {span.generation_id}"
    if span.partitions:
        words += f", {len(span.partitions)} partitions: {', '.join(span.partitions[:20])}"
    if span.text:
        words += f"; {span.text}"
    shape = f'x="{x(begin)}" width="{width:.2f}" y="{y}" height="{BAR}" rx="2" fill="{fill}"'
    yield _timed("rect", begin, end, shape, words)
    label = str(span.generation_id)
    if span.phase == RUNNING and span.generation_id >= 0:
        hidden = "" if width >= _PER_LABEL * len(label) else ' visibility="hidden"'
        ink = INK if span.kind == UNKNOWN else "#ffffff"
        yield (
            f'<text class="label" data-a="{begin:.6f}" data-b="{end:.6f}" x="{x(begin) + 4}"'
            f' y="{y + BAR - 4}" font-size="11" fill="{ink}" pointer-events="none"{hidden}>'
            f"{label}</text>"
        )


def _mark(mark: Mark, seconds: float, y: int, x: Scale) -> str:
    fill = WARNING if mark.is_warning else FAINT
    return _timed(
        "circle",
        seconds,
        seconds,
        f'cx="{x(seconds)}" cy="{y + BAR + 12}" r="3.5" fill="{fill}"',
        f"{mark.event}: {mark.text}",
    )


def _timed(shape: str, begin: float, end: float, attributes: str, title: str = "") -> str:
    times = f'data-a="{begin:.6f}" data-b="{end:.6f}"'
    if not title:
        return f"<{shape} {times} {attributes}/>"
    return f"<{shape} {times} {attributes}><title>{escape(title)}</title></{shape}>"
