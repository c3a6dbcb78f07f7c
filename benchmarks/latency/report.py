"""Shows latencies."""

from __future__ import annotations

from typing import Final

from benchmarks.report.figures import Column, bars_of, table_of
from benchmarks.report.results import Results

COLUMNS: Final = (
    Column("median", "median, ms", ".2f"),
    Column("p99", "p99, ms", ".1f"),
    Column("longest", "longest, ms", ".1f"),
)
ABOUT: Final = """\
The time from a producer's call until the handler has the record, where a topic of {partitions}
partitions gets {rate:,} records a second. One worker reads it, has no work to do, and commits
nothing; so the figures are those of fetching and handing over. The producer waits up to 1 ms for a
batch (`linger.ms`). *confluent-raw* is confluent-kafka without a group; kgroup reads by one stream
for all partitions (*kgroup-batches*), by a task for each (*kgroup*), or by a thread for each
(*kgroup-threads*).
"""


def markdown(results: Results, pictures: str) -> str:
    """The section of the page."""
    shown = f"![latency]({pictures}/latency.svg)\n"
    return "\n".join([ABOUT.format(**results.settings), shown, table_of(results, COLUMNS)])


def pictures(results: Results) -> dict[str, str]:
    """The medians."""
    title = f"From producer to handler at {results.settings['rate']:,} records/s: median"
    return {"latency.svg": bars_of(results, COLUMNS[0], title, "ms; shorter is better")}
