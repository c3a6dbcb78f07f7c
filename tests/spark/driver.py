"""A Spark driver of a group that tests stop, freeze or kill: it prints a line for each step.

Run as ``python driver.py SERVERS TOPIC GROUP FOLDER NAME SECONDS``. Its sink is plain: each attempt
of a batch writes its own files, in a folder named for the driver and the attempt. A task works for
SECONDS, and then for as long as there is a file ``FOLDER/hold-NAME``, to which it adds its attempt.
When a task begins, it writes to ``FOLDER/working`` how many times Spark has tried it before.
Between the write to the sink and the commit the driver waits for as long as there is a file
``FOLDER/uncommitted-NAME``, to which it adds the batch.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyspark.sql import DataFrame, SparkSession

from kgroup.config import GroupConfig
from kgroup.errors import StaleGenerationError
from kgroup.events import BatchCancelled, Event
from kgroup.spark.threaded import MicroBatch, batches
from kgroup.threaded import ConsumerGroup

if TYPE_CHECKING:
    import pyarrow

PATIENCE: Final = 200.0
"""Seconds for what has no part in the tests: a busy machine may need half a minute for a batch."""
PAUSE: Final = 0.05


def worked(
    parts: Iterable[pyarrow.RecordBatch], place: str, work: float
) -> Iterator[pyarrow.RecordBatch]:
    """Work for some seconds in an executor."""
    from pyspark import TaskContext

    yield from parts
    context = TaskContext.get()
    assert context is not None  # this is a task
    driver = Path(place).parent
    with (driver.parent / "working").open("a") as working:
        working.write(f"{place} {context.attemptNumber()}\n")
    time.sleep(work)
    wait_while_held(driver.parent / driver.name.replace("driver=", "hold-"), place)


def wait_while_held(file: Path, line: str) -> None:
    """Wait for as long as there is a file, and add a line to it meanwhile."""
    with suppress(FileNotFoundError):
        while True:
            with file.open("r+") as held:
                held.seek(0, os.SEEK_END)
                held.write(f"{line}\n")
            time.sleep(PAUSE)


def write(df: DataFrame, batch: MicroBatch, place: str, work: float) -> None:
    """Write the batch."""
    say("began", *batch.ranges, place)
    work_on = partial(worked, place=place, work=work)
    rows = df.select("partition", "offset").mapInArrow(work_on, "partition int, offset long")
    rows.write.json(place)


def say(*words: object) -> None:
    """Print a line for the test."""
    sys.stdout.write(" ".join(map(str, words)) + "\n")
    sys.stdout.flush()


def print_cancelled(event: Event) -> None:
    """Print a line for each cancelled batch."""
    if isinstance(event, BatchCancelled):
        say("cancelled", event)


def main(servers: str, topic: str, group_id: str, folder: str, name: str, work: str) -> None:
    """Be a member of the group until SIGTERM."""
    spark = SparkSession.builder.appName(name).getOrCreate()
    config = GroupConfig(
        bootstrap_servers=servers,
        group_id=group_id,
        topics=[topic],
        client_id=name,
        session_timeout=12.0,
        rebalance_timeout=PATIENCE,
        drain_timeout=PATIENCE,
    )
    with ConsumerGroup(config, on_event=print_cancelled) as group:
        signal.signal(signal.SIGTERM, lambda *_: group.shutdown())
        for generation in group:
            say("generation", *sorted(map(str, generation.assignment)))
            with generation.scope():
                for batch in batches(generation, spark):
                    attempt = f"driver={name}/attempt={generation.epoch}-{batch.number}"
                    batch.run(write, batch, f"{folder}/{attempt}", float(work))
                    say("written", *batch.ranges)
                    ranges = " ".join(map(str, batch.ranges))
                    wait_while_held(Path(folder, f"uncommitted-{name}"), ranges)
                    try:
                        batch.commit()
                    except StaleGenerationError as error:
                        say("refused", *batch.ranges, type(error).__name__)
                        raise
                    say("committed", *batch.ranges)


if __name__ == "__main__":
    main(*sys.argv[1:])
