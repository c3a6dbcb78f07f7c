"""Measures a small batch, from producing 100 records until the sink's function has returned."""

from __future__ import annotations

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame

from benchmarks.onspark.bench import NONE, PROMPT, Bench, Feed, Marks, line, load, spread, title
from kgroup.spark.threaded import foreach_batch
from kgroup.threaded import ConsumerGroup

RECORDS: Final = 100
WARM: Final = 3
"""Rounds after each start that do not count."""


def sink(marks: Marks, df: DataFrame, _: object) -> None:
    """Collect the values in the driver."""
    marks.add(rows=len(df.select("value").collect()))


@contextmanager
def kgroup_running(bench: Bench, topic: str, marks: Marks, **settings: Any) -> Iterator[None]:
    """Run ``foreach_batch`` as a driver does."""
    with ConsumerGroup(bench.config(topic)) as group:

        def drive() -> None:
            for generation in group:
                foreach_batch(generation, bench.spark, partial(sink, marks), **settings)

        thread = threading.Thread(target=drive, name="driver")
        thread.start()
        try:
            yield
        finally:
            group.shutdown()
            thread.join()


@contextmanager
def spark_running(
    bench: Bench, topic: str, marks: Marks, options: Mapping[str, str] = NONE
) -> Iterator[None]:
    """Run ``readStream`` and ``foreachBatch`` with the default trigger."""
    checkpoint = bench.place()
    query = (
        bench.stream(topic, **options)
        .writeStream.foreachBatch(partial(sink, marks))
        .option("checkpointLocation", checkpoint)
        .start()
    )
    try:
        yield
    finally:
        query.stop()
        shutil.rmtree(checkpoint, ignore_errors=True)


Running = Callable[[Bench, str, Marks], Any]
VARIANTS: Final[dict[str, Running]] = {
    "readStream + foreachBatch": spark_running,
    "the same, prompt": partial(spark_running, options=PROMPT),
    "kgroup, python": kgroup_running,
    "kgroup, python, value only": partial(kgroup_running, columns=["value"]),
    "kgroup, jvm": partial(kgroup_running, backend="jvm"),
}


def block(bench: Bench, running: Running, topic: str, partitions: int, rounds: int) -> list[float]:
    """Start a variant, let it warm up, measure some rounds, and end it."""
    marks, found = Marks(), []
    feed = Feed(bench.servers, topic)
    feed.send(RECORDS, partitions)
    with running(bench, topic, marks):
        rows = RECORDS
        marks.wait_total("rows", rows)
        for number in range(WARM + rounds):
            time.sleep(0.3)  # nothing is under way, on neither side
            began = time.perf_counter()
            feed.send(RECORDS, partitions)
            rows += RECORDS
            ended = marks.wait_total("rows", rows)
            if number >= WARM:
                found.append(ended - began)
    return found


def measure(bench: Bench) -> None:
    """Run the cell; the variants take turns in blocks of five rounds."""
    for partitions in (12, 1):
        title(f"latency: {RECORDS} records of 100 B in {partitions} partitions")
        seconds: dict[str, list[float]] = {name: [] for name in VARIANTS}
        blocks = max(1, bench.times(20, 4) // 4)
        for _ in range(blocks):
            for name, running in VARIANTS.items():
                topic = bench.topic(partitions)
                seconds[name] += block(bench, running, topic, partitions, 4)
        first = next(iter(VARIANTS))
        for name, found in seconds.items():
            held = [mine / other for mine, other in zip(found, seconds[first], strict=True)]
            more = "" if name == first else f"; ratio {spread(held)}"
            line(f"{name:27} {spread([1000 * one for one in found], '.0f'):>20} ms{more}")
        line(f"({len(seconds[first])} rounds; {load()} at the end)")
