"""Measures rows per second: one batch of a whole topic, and a loop of micro-batches over it."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from pyspark.sql import DataFrame

from benchmarks.onspark.bench import (
    NONE,
    PARTITIONS,
    PROMPT,
    Bench,
    cpu_seconds,
    fill,
    line,
    load,
    ratio,
    spread,
    title,
)
from kgroup.spark.threaded import batches

RECORDS: Final = {100: 1_200_000, 1000: 360_000}
QUICK: Final = {100: 120_000, 1000: 60_000}
BATCHES: Final = 8
"""How many the loop makes of a topic."""
Sink = Callable[[DataFrame], object]
Variant = Callable[[Bench, str, int, Sink], float]


def kgroup_once(bench: Bench, topic: str, records: int, sink: Sink, **settings: Any) -> float:
    """Seconds of one batch of all records, with planning and commit."""
    with bench.generation(bench.config(topic)) as generation:
        began = time.perf_counter()
        batch = next(batches(generation, bench.spark, **settings))
        batch.run(sink)
        batch.commit()
        seconds = time.perf_counter() - began
        found = sum(part.end - part.start for part in batch.ranges)
        if found != records:
            raise SystemExit(f"{found} of {records} records were in the batch")
    return seconds


def spark_once(
    bench: Bench,
    topic: str,
    records: int,
    sink: Sink,
    columns: Iterable[str] = ("*",),
    options: Mapping[str, str] = NONE,
) -> float:
    """Seconds of Spark's own batch read of the same records."""
    began = time.perf_counter()
    reader = bench.spark.read.format("kafka").options(**bench.source(topic), **options)
    reader = reader.option("endingOffsets", _ends(topic, records))
    sink(reader.load().select(*columns))
    return time.perf_counter() - began


def kgroup_loop(bench: Bench, topic: str, records: int, sink: Sink, **settings: Any) -> float:
    """Seconds from the end of the first micro-batch's sink to that of the last one's."""
    ends: list[float] = []
    with bench.generation(bench.config(topic)) as generation:
        loop = batches(generation, bench.spark, max_records=records // BATCHES, **settings)
        while len(ends) < BATCHES:
            batch = next(loop)
            batch.run(sink)
            ends.append(time.perf_counter())
            batch.commit()
    return (ends[-1] - ends[0]) / (1 - 1 / BATCHES)


def spark_loop(
    bench: Bench,
    topic: str,
    records: int,
    sink: Sink,
    columns: Iterable[str] = ("*",),
    options: Mapping[str, str] = NONE,
) -> float:
    """The same by ``readStream``, ``foreachBatch`` and the trigger ``availableNow``."""
    ends: list[float] = []

    def write(df: DataFrame, _: int) -> None:
        sink(df)
        ends.append(time.perf_counter())

    checkpoint = bench.place()
    stream = bench.stream(topic, maxOffsetsPerTrigger=records // BATCHES, **options)
    query = (
        stream.select(*columns)
        .writeStream.foreachBatch(write)
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    shutil.rmtree(checkpoint, ignore_errors=True)
    return (ends[-1] - ends[0]) / (len(ends) - 1) * len(ends)


ONCE: Final[dict[str, tuple[Variant, str | None]]] = {
    "Spark's own": (spark_once, None),
    "Spark's own, prompt": (partial(spark_once, options=PROMPT), "Spark's own"),
    "kgroup, python": (kgroup_once, "Spark's own"),
    "kgroup, jvm": (partial(kgroup_once, backend="jvm"), "Spark's own"),
    "Spark's own, value only": (partial(spark_once, columns=["value"]), None),
    "kgroup, python, value only": (
        partial(kgroup_once, columns=["value"]),
        "Spark's own, value only",
    ),
}
LOOP: Final[dict[str, tuple[Variant, str | None]]] = {
    "readStream": (spark_loop, None),
    "readStream, prompt": (partial(spark_loop, options=PROMPT), "readStream"),
    "kgroup, python": (kgroup_loop, "readStream"),
    "kgroup, jvm": (partial(kgroup_loop, backend="jvm"), "readStream"),
    "readStream, value only": (partial(spark_loop, columns=["value"]), None),
    "kgroup, python, value only": (
        partial(kgroup_loop, columns=["value"]),
        "readStream, value only",
    ),
}
"""What is measured, and what it is held against. All columns unless the name says otherwise."""


def _ends(topic: str, records: int) -> str:
    each = dict.fromkeys(map(str, range(PARTITIONS)), records // PARTITIONS)
    return json.dumps({topic: each})


def noop(df: DataFrame) -> None:
    """Compute every row and store none."""
    df.write.format("noop").mode("overwrite").save()


def measure(bench: Bench) -> None:
    """Run the cell."""
    for size, wanted in (QUICK if bench.quick else RECORDS).items():
        records = int(wanted * bench.scale) // (PARTITIONS * BATCHES) * PARTITIONS * BATCHES
        topic = bench.topic()
        fill(bench.servers, topic, records, size)

        def parquet(df: DataFrame) -> None:
            place = bench.place()
            df.write.parquet(place)
            shutil.rmtree(place)

        for sink in (noop, parquet):
            for what, variants in (("one batch", ONCE), (f"{BATCHES} micro-batches", LOOP)):
                title(f"rows: {size} B x {records:,}, {sink.__name__}, {what}")
                report(records, *turns(bench, topic, records, sink, variants), variants)


def turns(
    bench: Bench,
    topic: str,
    records: int,
    sink: Sink,
    variants: dict[str, tuple[Variant, str | None]],
) -> tuple[dict[str, list[float]], dict[str, list[float]]]:
    """Seconds and CPU seconds of each round, after one round that does not count."""
    seconds: dict[str, list[float]] = {name: [] for name in variants}
    cpu: dict[str, list[float]] = {name: [] for name in variants}
    for number in range(1 + bench.times(5, 1)):
        for name, (variant, _) in variants.items():
            used = cpu_seconds()
            took = variant(bench, topic, records, sink)
            if number:
                seconds[name].append(took)
                cpu[name].append(cpu_seconds() - used)
    return seconds, cpu


def report(
    records: int,
    seconds: dict[str, list[float]],
    cpu: dict[str, list[float]],
    variants: dict[str, tuple[Variant, str | None]],
) -> None:
    """Print a line for each variant; CPU includes the start and end of driver, JVM and workers."""
    for name, (_, other) in variants.items():
        rates = [records / one / 1000 for one in seconds[name]]
        held = ""
        if other is not None:
            held = (
                f"; to {other}: rate {ratio(seconds[other], seconds[name])},"
                f" CPU {ratio(cpu[name], cpu[other])}"
            )
        each = spread([one / records * 1e6 for one in cpu[name]], ".1f")
        line(f"{name:27} {spread(rates, '.0f'):>16} k rows/s, CPU {each} us a row{held}")
    line(f"({load()} at the end)")
