"""Shows the memory of slow consumers."""

from __future__ import annotations

from typing import Final

from benchmarks.report.figures import Column, table_of
from benchmarks.report.results import Results
from benchmarks.report.svg import Curve, curves

COLUMNS: Final = (Column("peak", "most, MiB", ".0f"), Column("records", "records processed", ".0f"))
ABOUT: Final = """\
The memory of a process (RSS) that reads a backlog of records of 1 KB far more slowly than it
could: each handler takes 100 records and then waits for a second. What a client fetches ahead is
bounded by its settings, here by their defaults: 64 MiB for kgroup (`max_buffered_bytes`).
"""


def markdown(results: Results, pictures: str) -> str:
    """The section of the page."""
    shown = f"![memory]({pictures}/memory.svg)\n"
    return "\n".join([ABOUT, shown, table_of(results, COLUMNS)])


def pictures(results: Results) -> dict[str, str]:
    """The curves of the first round."""
    found = [
        Curve(
            name=row["client"],
            points=[(at, rss) for at, rss in row["curve"]],
            ours=row["client"].startswith("kgroup"),
        )
        for row in results.rows
        if "failed" not in row and row["round"] == 0
    ]
    return {"memory.svg": curves("Memory of a consumer that is too slow", "MiB (RSS)", found)}
