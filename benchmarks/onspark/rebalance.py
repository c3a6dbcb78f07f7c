"""Measures a rebalance: a second driver joins and leaves; the time until the next first batches.

Both drivers use the Spark session of this process. Otherwise the start of a second Spark would
dominate the figures.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, final

from pyspark.sql import DataFrame

from benchmarks.onspark.bench import Bench, Feed, Marks, line, load, spread, title
from kgroup.config import GroupConfig
from kgroup.spark.threaded import MicroBatch, foreach_batch
from kgroup.threaded import ConsumerGroup

EVERY: Final = 0.1
RECORDS: Final = 24
"""Of each feed: two for each partition."""


@final
class Driver:
    """A member that records the times of its batches."""

    def __init__(self, bench: Bench, config: GroupConfig, marks: Marks, name: str) -> None:
        self._bench, self._marks, self._name = bench, marks, name
        self._group = ConsumerGroup(config)
        self._thread = threading.Thread(target=self._drive, name=name)

    def start(self) -> None:
        """Join the group."""
        self._thread.start()

    def leave(self) -> None:
        """Begin to leave."""
        self._group.shutdown()

    def end(self) -> None:
        """Leave, and wait until the member has left."""
        self._group.shutdown()
        self._thread.join()

    def _drive(self) -> None:
        def write(df: DataFrame, batch: MicroBatch) -> None:
            df.select("value").collect()
            self._marks.add(
                who=self._name, generation=batch.generation_id, partitions=len(batch.ranges)
            )

        with self._group as group:
            for generation in group:
                foreach_batch(generation, self._bench.spark, write)


@contextmanager
def driving(*arguments: Any) -> Iterator[Driver]:
    """Run a driver within a block."""
    driver = Driver(*arguments)
    driver.start()
    try:
        yield driver
    finally:
        driver.end()


def _is(who: str, generation: int, what: Mapping[str, Any]) -> bool:
    return bool(what["who"] == who and what["generation"] >= generation)


def measure(bench: Bench) -> None:
    """Run the cell."""
    title("rebalance: a second driver joins, and leaves; 12 partitions, a batch all the time")
    found: dict[str, list[float]] = {
        "join: first batch of the one that came": [],
        "join: first batch of the other": [],
        "leave: first batch of the one that stays": [],
    }
    came, other, stays = found.values()
    topic, marks = bench.topic(), Marks()
    feed, config = Feed(bench.servers, topic), bench.config(topic)
    with (
        feed.steady(RECORDS, EVERY),
        driving(bench, config, marks, "first"),
    ):
        marks.wait(partial(_is, "first", 0))
        for number in range(bench.times(10, 2)):
            name = f"second-{number}"
            began = time.perf_counter()
            with driving(bench, config, marks, name) as second:
                at, what = marks.wait(partial(_is, name, 0))
                generation = what["generation"]
                came.append(at - began)
                at, _ = marks.wait(partial(_is, "first", generation))
                other.append(at - began)
                time.sleep(1)
                began = time.perf_counter()
                second.leave()
                at, _ = marks.wait(partial(_is, "first", generation + 1))
                stays.append(at - began)
            time.sleep(1)
    for name, seconds in found.items():
        line(f"{name:42} {spread(seconds)} s")
    line(
        f"({len(came)} rounds, heartbeat_interval {config.heartbeat_interval:g} s;"
        f" {load()} at the end)"
    )
