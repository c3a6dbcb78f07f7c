"""Kills drivers, and counts the records that are twice in the sink and those that are missing.

A driver is a process with its own JVM. Three drivers are killed, one after the other, with all
their processes, each at another step of its second batch; the next driver takes over, and a fourth
finishes. The sink is Parquet in append mode. For kgroup, the example that stores offsets in
PostgreSQL is measured too.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

import pyarrow.dataset

from benchmarks.onspark.bench import Bench, fill, line, load, title
from benchmarks.onspark.driver import FINISH, KINDS, STEPS

RECORDS: Final = 24_000
TIMEOUT: Final = 240.0


def drive(bench: Bench, kind: str, topic: str, place: str, step: str) -> None:
    """Run a driver until it ends in the expected way."""
    log = bench.folder / f"driver-{kind}.log"
    command = [sys.executable, "-m", "benchmarks.onspark.driver"]
    command += [kind, bench.servers, topic, place, step, str(RECORDS)]
    with log.open("ab") as out:
        driver = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,  # it ends when this one is gone
            stdout=out,
            stderr=out,
            start_new_session=True,  # it kills its whole process group
        )
        try:
            status = driver.wait(TIMEOUT)
        finally:
            driver.kill()
            driver.communicate()
    wanted = 0 if step == FINISH else -9
    if status != wanted:
        raise SystemExit(
            f"the driver {kind} ended with {status}, not {wanted}:\n"
            + log.read_text(errors="replace")[-3000:]
        )


def rows_in(place: str) -> list[tuple[int, int]]:
    """The partition and offset of all rows that a reader of the sink gets."""
    if not Path(place).exists():
        return []
    table = pyarrow.dataset.dataset(place, format="parquet").to_table(["partition", "offset"])
    return list(
        zip(table.column("partition").to_pylist(), table.column("offset").to_pylist(), strict=True)
    )


def measure(bench: Bench) -> None:
    """Run the cell."""
    title(f"kill: {RECORDS} records, kill -9 at a step of each driver's second batch")
    steps = STEPS[1:2] if bench.quick else STEPS
    for kind, about in KINDS.items():
        topic, place = bench.topic(), bench.place()
        fill(bench.servers, topic, RECORDS, 100)
        for step in (*steps, FINISH):
            drive(bench, kind, topic, place, step)
        rows = rows_in(place)
        once = len(set(rows))
        line(
            f"{about:42} {len(rows) - once:6} of {RECORDS} rows are there again,"
            f" {RECORDS - once} are missing (killed: {', '.join(steps)})"
        )
    line(f"({load()} at the end)")
