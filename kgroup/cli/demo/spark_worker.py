"""A Spark driver of the demo: a member of the group that counts the words of lines on Spark.

It uses ``kgroup.spark`` as any program does. Spark's Python workers count; the driver's journal is
the sink. One thing is there for the demo only: a batch is written in two halves, with a pause
before each.

It is started and stopped as ``kgroup.cli.demo.worker`` is.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trio

from kgroup.batch_handler import commit_until_answered
from kgroup.cli.demo.journal import Journal
from kgroup.cli.demo.text import words_of
from kgroup.cli.demo.worker import (
    Task,
    close_on_request,
    config_of,
    task_from_arguments,
    watch_parent,
)
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.spark.api import batches
from kgroup.testing.spark.session import session

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import DataFrame, SparkSession

BATCH: Final = 1.5
"""Seconds that the pauses of one batch may take together; this bounds the lines of a batch."""
COUNTED: Final = "partition int, offset long, words map<string, int>"

Counted = tuple[int, int, dict[str, int]]
"""Partition, offset, and the words of a line."""


async def drive(task: Task, journal: Journal, spark: SparkSession) -> None:
    """Join the group, and in each generation count the words of all partitions' lines."""
    async with (
        ConsumerGroup(config_of(task), on_event=journal.event) as group,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(close_on_request, group)
        async for generation in group:
            journal.started(generation)
            with generation.scope():
                await count_words(generation, spark, task, journal)
        nursery.cancel_scope.cancel()


async def count_words(
    generation: Generation, spark: SparkSession, task: Task, journal: Journal
) -> None:
    """Count the words of each batch, and commit it."""
    columns = ("partition", "offset", "value")
    seconds_per_line = task.seconds_per_line / max(1, len(generation.assignment))
    lines = max(2, round(BATCH / seconds_per_line))
    async for batch in batches(generation, spark, max_records=lines, columns=columns):
        for part in batch.ranges:
            journal.received(generation, part.topic_partition, part.start, part.end)
        pause = batch.span * seconds_per_line / 2
        await batch.run(count, partial(journal.processed, generation), pause)
        with journal.committing(generation, batch.offsets):
            await commit_until_answered(batch.commit)


def count(df: DataFrame, put: Callable[[int, int, dict[str, int]], None], pause: float) -> None:
    """Count on Spark and write the result to the journal; runs in a thread."""
    rows: list[Counted] = [tuple(row) for row in df.mapInArrow(counted, COUNTED).collect()]
    for half in halves(sorted(rows, key=lambda row: row[:2])):
        time.sleep(pause)
        for row in half:
            put(*row)


def counted(lines: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Count the words of lines, in an executor."""
    import pyarrow

    for batch in lines:
        words = [list(words_of(line.as_py().decode()).items()) for line in batch.column("value")]
        columns = [
            batch.column("partition"),
            batch.column("offset"),
            pyarrow.array(words, pyarrow.map_(pyarrow.string(), pyarrow.int32())),
        ]
        yield pyarrow.RecordBatch.from_arrays(columns, ["partition", "offset", "words"])


def halves(rows: Sequence[Counted]) -> Iterator[list[Counted]]:
    """The first half of each partition's rows, then the second half of each."""
    ends: dict[int, list[Counted]] = {}
    for row in rows:
        ends.setdefault(row[0], []).append(row)
    yield [row for part in ends.values() for row in part[: len(part) // 2]]
    yield [row for part in ends.values() for row in part[len(part) // 2 :]]


def main() -> None:
    """Run the task that the command line gives."""
    task = task_from_arguments()
    watch_parent(task)
    with session("local[1]", app_name=task.name) as spark, Journal(Path(task.journal)) as journal:
        trio.run(partial(drive, task, journal, spark))


if __name__ == "__main__":
    main()
