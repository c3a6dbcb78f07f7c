"""Shows what idle members cost."""

from __future__ import annotations

from typing import Final

from benchmarks.report.figures import Column, bars_of, table_of
from benchmarks.report.results import Results

COLUMNS: Final = (
    Column("cpu", "CPU, s a minute", ".2f"),
    Column("rss", "memory (RSS), MiB", ".0f"),
    Column("threads", "threads", ".0f"),
    Column("descriptors", "descriptors", ".0f"),
    Column("joined", "all have read, s", ".2f"),
)


def markdown(results: Results, pictures: str) -> str:
    """The section of the page."""
    settings = results.settings
    about = (
        f"{settings['members']} members in one process, each in a group of its own, with nothing to"
        " read. The heartbeat interval is each client's own default. The figures are those of the"
        " whole process. The last column is the time from the start of the process, with imports,"
        " until each member had read its first record.\n"
    )
    shown = [f"![{name}]({pictures}/{name}.svg)\n" for name in PICTURES]
    return "\n".join([about, *shown, table_of(results, COLUMNS)])


PICTURES: Final = {
    "idle-cpu": (COLUMNS[0], "Processor time of idle members", "CPU seconds a minute"),
    "idle-memory": (COLUMNS[1], "Memory of idle members", "MiB"),
}


def pictures(results: Results) -> dict[str, str]:
    """Bars of processor time and memory."""
    return {
        f"{name}.svg": bars_of(results, column, title, f"{unit}; shorter is better")
        for name, (column, title, unit) in PICTURES.items()
    }
