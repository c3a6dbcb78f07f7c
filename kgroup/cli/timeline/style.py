"""How things look in the picture: colours, patterns, shapes of marks, words of the legend.

An end of a generation differs from the others by its pattern and by a word, and a mark by its
shape: colour alone would not do, because many readers cannot tell red from brown. Every shape also
has a class of the same name, by which the page's style sheet gives it another colour on a dark
screen.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import attrs

from kgroup.cli.timeline.story import (
    COMMIT,
    DRAIN,
    DRAINING,
    JOIN,
    JOINING,
    LOST,
    OTHER,
    OVERDUE,
    PLANNED,
    RAISED,
    REFUSAL,
    RUNNING,
    SILENT,
    STARTING,
    UNKNOWN,
    WAITING,
    WARNING,
    Span,
)

INK: Final = "#1f2933"
FAINT: Final = "#556575"
LINE: Final = "#d5dde5"
BAND: Final = "#f6ecd6"
PAPER: Final = "#ffffff"
LAG: Final = "#9a5b00"
LATE: Final = "#b42318"


@final
@attrs.frozen(kw_only=True)
class Fill:
    """What a bar is filled with.

    Attributes:
        colour: of the ground.
        lines: SVG of a tile of 8 by 8 pixels that is drawn upon it; empty if it is plain.
        words: what the legend says.
        label: the word beside the generation's number; empty for a planned end.
    """

    colour: str
    lines: str = ""
    words: str
    label: str = ""


#: Lines are darker than the ground, so that a white number can be read upon them.
FILLS: Final[Mapping[str, Fill]] = {
    PLANNED: Fill(colour="#1f6feb", words="works; the end was planned (rebalance, close)"),
    RAISED: Fill(
        colour="#7c3aed",
        lines='<path d="M-2 10L10 -2M-2 2L2 -2M6 10L10 6" stroke="#3b0f8a" stroke-width="2"/>',
        words="works, until a task raised",
        label="raised",
    ),
    LOST: Fill(
        colour="#c0271b",
        lines='<path d="M0 4H8M4 0V8" stroke="#7a0f08" stroke-width="1.6"/>',
        words="works, until it was lost (fenced, membership or coordinator lost, cancelled)",
        label="lost",
    ),
    OVERDUE: Fill(
        colour="#8a4b08",
        lines='<path d="M2 0V8M6 0V8" stroke="#512a02" stroke-width="2"/>',
        words="works, but not finished in time (stuck, or its drain was cut short)",
        label="too slow",
    ),
    UNKNOWN: Fill(
        colour="#eef1f4",
        lines='<path d="M-2 10L10 -2M-2 2L2 -2M6 10L10 6" stroke="#b4c0cc" stroke-width="2"/>',
        words="still running, or killed: the end is not in the files",
        label="no end",
    ),
    SILENT: Fill(
        colour="#fbe3df",
        lines='<path d="M1 2H3M5 6H7" stroke="#d98b80" stroke-width="2"/>',
        words="gone or frozen, and still a member: its partitions stand still",
        label="stands still",
    ),
    JOINING: Fill(colour="#c3cfdb", words="joins"),
    STARTING: Fill(colour="#8db4e8", words="waits for its partitions"),
    DRAINING: Fill(colour="#e8a33d", words="drains"),
    WAITING: Fill(colour="#dde3e9", words="backs off"),
}


def fill_of(span: Span) -> str:
    """The name of a span's fill: its phase, or how the generation ended in which it works."""
    return span.kind if span.phase == RUNNING or span.kind == UNKNOWN else span.phase


@final
@attrs.frozen(kw_only=True)
class Shape:
    """How one kind of mark is drawn.

    Attributes:
        path: the path, with the moment at 0, 0.
        paint: attributes of the path.
        lane: the distance from the top of the row.
        cell: marks that begin within so many pixels of the first are drawn as one.
        words: what the legend says.
        plural: what several of them are called.
    """

    path: str
    paint: str
    lane: float
    cell: int
    words: str
    plural: str


#: Marks of one lane hardly hide each other: a join lies to the right of its moment, and a drain,
#: which often precedes it by milliseconds, to the left.
SHAPES: Final[Mapping[str, Shape]] = {
    COMMIT: Shape(
        path="M0-3.5V3.5",
        paint=f'fill="none" stroke="{INK}" stroke-width="1"',
        lane=49.5,
        cell=3,
        words="commit",
        plural="commits",
    ),
    REFUSAL: Shape(
        path="M-4-4L4 4M4-4L-4 4",
        paint='fill="none" stroke="#b42318" stroke-width="2"',
        lane=49.5,
        cell=9,
        words="refusal",
        plural="refusals",
    ),
    JOIN: Shape(
        path="M0-4L7 0L0 4Z",
        paint='fill="#1a7f37"',
        lane=61,
        cell=7,
        words="has joined",
        plural="joins",
    ),
    DRAIN: Shape(
        path="M0-4V4L-7-4Z",
        paint='fill="#b35900"',
        lane=61,
        cell=7,
        words="begins to drain",
        plural="drains",
    ),
    WARNING: Shape(
        path="M0-5L5 4H-5Z",
        paint='fill="#b42318"',
        lane=73,
        cell=9,
        words="warning",
        plural="warnings",
    ),
    OTHER: Shape(
        path="M-3 0A3 3 0 1 0 3 0A3 3 0 1 0-3 0Z",
        paint=f'fill="{FAINT}"',
        lane=73,
        cell=7,
        words="other event",
        plural="other events",
    ),
}
