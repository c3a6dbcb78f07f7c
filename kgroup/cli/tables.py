"""Tables of the operating commands: columns without lines, which people, grep and awk can read.

INVARIANT: what a broker answers, names of clients among it, reaches the terminal without control
characters and without markup.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kgroup.cli.options import plain
from kgroup.types import TopicPartition, by_topic

__all__ = ["NOTHING", "console", "number", "plain", "ranges", "runs", "table"]

NOTHING: Final = "-"
"""What a cell without a value shows."""
_PIPED: Final = 100_000
"""Columns of output that no terminal shows: there lines are never folded."""


def console() -> Console:
    """A console for standard output as it is now."""
    width = None if sys.stdout.isatty() else _PIPED
    return Console(highlight=False, emoji=False, width=width, soft_wrap=False)


def table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], right: Iterable[str] = ()
) -> Table:
    """A table.

    Args:
        columns: their titles.
        rows: the cells; an empty one is shown as `NOTHING`.
        right: the titles of the columns with numbers.
    """
    made = Table(box=None, pad_edge=False, header_style="bold")
    numbers = frozenset(right)
    for title in columns:
        made.add_column(title, justify="right" if title in numbers else "left", overflow="fold")
    for row in rows:
        made.add_row(*(Text(plain(cell) or NOTHING) for cell in row))
    return made


def number(value: int | None) -> str:
    """A number as a command takes it, without separators, or an empty cell."""
    return "" if value is None else str(value)


def ranges(partitions: Iterable[TopicPartition]) -> str:
    """Partitions by topic, as ranges: ``orders 0-3,7; clicks 0``."""
    return "; ".join(f"{topic} {runs(ones)}" for topic, ones in by_topic(partitions).items())


def runs(numbers: Iterable[int]) -> str:
    """Sorted numbers as ranges: ``0-3,7``."""
    shown = []
    for _, run in groupby(enumerate(numbers), key=lambda item: item[1] - item[0]):
        found = [one for _, one in run]
        shown.append(str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}")
    return ",".join(shown)
