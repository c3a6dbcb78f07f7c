"""Shows how long members take to start and to stop."""

from __future__ import annotations

from typing import Final

from benchmarks.report.figures import Column, bars_of, table_of
from benchmarks.report.results import Results

COLUMNS: Final = (
    Column("join", "to its partitions, ms", ".1f"),
    Column("start", "to the first record, ms", ".0f"),
    Column("stop", "to the end, ms", ".0f"),
)
ABOUT: Final = """\
A member of a new group is made, joins and reads a record that waits for it; then it is closed, and
leaves the group. All this is repeated in one process; imports do not count. kgroup's members also
note when they had their partitions. The group has no other member; in a larger one, a kgroup member
first waits for the next heartbeats, up to 1 s by default.
"""


def markdown(results: Results, pictures: str) -> str:
    """The section of the page."""
    shown = f"![start]({pictures}/start.svg)\n"
    return "\n".join([ABOUT, shown, table_of(results, COLUMNS)])


def pictures(results: Results) -> dict[str, str]:
    """The time to the first record."""
    title = "From a new member to its first record"
    return {"start.svg": bars_of(results, COLUMNS[1], title, "ms; shorter is better")}
