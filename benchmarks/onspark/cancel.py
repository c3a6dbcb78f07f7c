"""Measures how long tasks of a batch continue after the membership is lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import reduce
from typing import Final

import pyarrow
import trio
from pyspark.sql import DataFrame, SparkSession

from benchmarks.onspark.bench import Bench, fill, line, load, spread, title
from kgroup import StaleGenerationError
from kgroup.client.cluster import Cluster
from kgroup.client.coordinator import CoordinatorClient
from kgroup.config import GroupConfig
from kgroup.group import default_runtime
from kgroup.spark.threaded import batches
from kgroup.threaded import Generation

RECORDS: Final = 120_000
TIMES: Final = 40
"""How often the job reads the batch, so that it does not end by itself."""


def asleep(found: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Sleep in Python code that does not notice the cancellation."""
    for batch in found:
        time.sleep(600)
        yield batch


def read_on(df: DataFrame) -> None:
    """Read the batch again and again."""
    reduce(DataFrame.unionAll, [df] * TIMES).write.format("noop").mode("overwrite").save()


def sleep_on(df: DataFrame) -> None:
    """Read the batch once, and sleep over it."""
    df.mapInArrow(asleep, "value binary").write.format("noop").mode("overwrite").save()


KINDS: Final[dict[str, tuple[str, Callable[[DataFrame], None]]]] = {
    "JVM job, reading": ("jvm", read_on),
    "Python reader, reading": ("python", read_on),
    "Python code, asleep": ("python", sleep_on),
}


def running(spark: SparkSession) -> int:
    """The number of running tasks, as Spark reports it."""
    tracker = spark.sparkContext.statusTracker()
    infos = map(tracker.getStageInfo, tracker.getActiveStageIds())
    return sum(info.numActiveTasks for info in infos if info is not None)


def evict(config: GroupConfig, member_id: str) -> float:
    """Remove a member from its group as an administrator does; return the time of the answer."""

    async def leave() -> None:
        runtime = default_runtime()
        cluster = Cluster(config, runtime.open_stream, runtime.random)
        coordinator = CoordinatorClient(cluster, config)
        await coordinator.leave(member_id, None, "a benchmark")
        await coordinator.aclose()
        await cluster.aclose()

    trio.run(leave)
    return time.perf_counter()


def one(
    bench: Bench, topic: str, backend: str, fn: Callable[[DataFrame], None]
) -> tuple[float, float, int]:
    """Seconds from the eviction and from its discovery, and the tasks that still run then."""
    noticed: list[float] = []
    evicted: list[float] = []
    config = bench.config(topic)

    def lose(generation: Generation) -> None:
        while not running(bench.spark):
            time.sleep(0.05)
        time.sleep(1)
        evicted.append(evict(config, generation.member_id))
        generation.ending.wait()
        noticed.append(time.perf_counter())

    with bench.generation(config) as generation:
        batch = next(batches(generation, bench.spark, backend=backend, columns=["value"]))
        thread = threading.Thread(target=lose, args=(generation,), name="evict")
        thread.start()
        try:
            batch.run(fn)
        except StaleGenerationError:
            over = time.perf_counter()
        else:
            raise SystemExit("the job ended before it could be cancelled")
        left = running(bench.spark)
        thread.join()
    return over - evicted[0], over - noticed[0], left


def measure(bench: Bench) -> None:
    """Run the cell."""
    title("cancel: an administrator removes the member; until run() raises and no task runs")
    topic = bench.topic()
    fill(bench.servers, topic, RECORDS, 100)
    found: dict[str, list[tuple[float, float, int]]] = {name: [] for name in KINDS}
    for _ in range(bench.times(7)):
        for name, (backend, fn) in KINDS.items():
            found[name].append(one(bench, topic, backend, fn))
    for name, rounds in found.items():
        evicted, noticed, left = zip(*rounds, strict=True)
        line(
            f"{name:24} {spread(evicted)} s after the removal, {spread(noticed)} s after the"
            f" member learnt of it; tasks that Spark's tracker still shows: {max(left)}"
        )
    line(f"({load()} at the end)")
