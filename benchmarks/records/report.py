"""Shows how fast records are read, and how that compares with confluent-kafka without a group."""

from __future__ import annotations

from typing import Final

from benchmarks.report.figures import FAILED, Column, bars_of, ratio_of, values_of
from benchmarks.report.markdown import spread, table
from benchmarks.report.results import Results

RAW: Final = "confluent-raw"
RATE: Final = Column("rate", "M records/s", ".2f", 1e-6)
CPU: Final = Column("cpu", "CPU, ns a record", ".0f")
ABOUT: Final = """\
Each client reads a backlog, without work and without commits. The time is that from the first
batch to the last, so that joining a group does not count. *confluent-raw* is confluent-kafka
without a group and the measure for all others; ratios compare figures of the same round.
*confluent-checked* is the same with `check.crcs`: it verifies the checksum of every batch. kgroup
always does; Kafka's client in Java, franz-go and aiokafka do by default, and confluent-kafka does
not.
*kgroup-source* is kgroup's record source without a group. Where *each record is read*, the handler
looks at the value and the offset of every record. CPU is that of the whole process, with the
threads of librdkafka, Java or Go.
"""


def markdown(results: Results, pictures: str) -> str:
    """The section of the page."""
    parts = [ABOUT]
    for case in cases_of(results):
        parts.append(f"### {case}\n\n![{case}]({pictures}/{_file(case)})\n")
        parts.append(_table(results, case))
    return "\n".join(parts)


def pictures(results: Results) -> dict[str, str]:
    """Bars of the rates."""
    return {
        _file(case): bars_of(
            results, RATE, f"Records of {case}", "millions a second; longer is better", case
        )
        for case in cases_of(results)
    }


def cases_of(results: Results) -> list[str]:
    """The cases in the order of the run."""
    return list(dict.fromkeys(row["case"] for row in results.rows))


def _table(results: Results, case: str) -> str:
    rows = []
    for client in results.versions:
        cells = []
        for column in (RATE, CPU):
            values = values_of(results, client, case, column)
            raw = values_of(results, RAW, case, column)
            cells.append(FAILED if values is None else spread(values, column.form))
            if values is None or raw is None:
                cells.append("-")
            else:
                cells.append(ratio_of(results, column, (client, case), (RAW, case)))
        rows.append([client, *cells])
    return table(["client", RATE.heading, "of raw", CPU.heading, "of raw"], rows)


def _file(case: str) -> str:
    return f"records-{'-'.join(case.replace(',', '').split())}.svg"
