"""The parts that all cells share: a Kafka, a Spark session, filled topics, spreads and ratios."""

from __future__ import annotations

import os
import statistics
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, final
from uuid import uuid4

import attrs
import psutil
from confluent_kafka import Producer
from pyspark.sql import DataFrame, SparkSession

from kgroup import GroupConfig
from kgroup.events import Event
from kgroup.testing.admin import create_topic
from kgroup.threaded import ConsumerGroup, Generation

PARTITIONS: Final = 12
PATIENCE: Final = 120.0
"""Seconds after which what should have come will not."""
NONE: Final[Mapping[str, str]] = {}
PROMPT: Final[Mapping[str, str]] = {"kafka.fetch.max.wait.ms": "10"}
"""For Spark's own source, whose consumers by default wait half a second at the end of a log before
they ask for anything else; kgroup's readers wait as long as this says."""


@final
@attrs.frozen(kw_only=True)
class Bench:
    """The environment of the cells.

    Attributes:
        servers: Kafka's bootstrap servers.
        spark: a session in this process.
        folder: where sinks write; removed at the end.
        rounds: how often each variant is measured; None for the default of the cell.
        quick: whether the cell only has to run, without useful figures.
        scale: a factor for the number of records in ``rows``.
        real: whether the broker is Apache Kafka.
    """

    servers: str
    spark: SparkSession
    folder: Path
    rounds: int | None
    quick: bool
    scale: float
    real: bool

    def times(self, full: int, quick: int = 2) -> int:
        """The number of rounds."""
        return self.rounds or (quick if self.quick else full)

    def config(self, topic: str, group_id: str | None = None, **settings: Any) -> GroupConfig:
        """The settings of a member of a new group."""
        return GroupConfig(
            bootstrap_servers=self.servers,
            group_id=group_id or f"benchmark-{uuid4().hex[:12]}",
            topics=[topic],
            **settings,
        )

    def topic(self, partitions: int = PARTITIONS) -> str:
        """Create an empty topic."""
        name = f"benchmark-{uuid4().hex[:12]}"
        create_topic(self.servers, name, partitions)
        return name

    def place(self) -> str:
        """The path of a folder that does not exist yet."""
        return str(self.folder / uuid4().hex)

    @contextmanager
    def generation(
        self, config: GroupConfig, on_event: Callable[[Event], None] | None = None
    ) -> Iterator[Generation]:
        """Join, give the first generation, then leave."""
        with ConsumerGroup(config, on_event=on_event) as group:
            yield next(group)

    def stream(self, topic: str, **options: object) -> DataFrame:
        """A stream by Spark's own source, from the beginning of a topic."""
        reader = self.spark.readStream.format("kafka").options(**self.source(topic))
        return reader.options(**{name: str(value) for name, value in options.items()}).load()

    def source(self, topic: str) -> dict[str, str]:
        """The options of Spark's own source."""
        return {
            "kafka.bootstrap.servers": self.servers,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "includeHeaders": "true",
        }


@final
class Feed:
    """Produces a few records at a time, and waits until they are acknowledged."""

    def __init__(self, servers: str, topic: str, size: int = 100) -> None:
        self._producer = Producer({"bootstrap.servers": servers, "linger.ms": 0})
        self._topic = topic
        self._value = os.urandom(size)
        self._producer.list_topics(topic)

    def send(self, records: int, partitions: int = PARTITIONS) -> None:
        """Produce records, spread over the partitions."""
        for number in range(records):
            self._producer.produce(self._topic, self._value, partition=number % partitions)
        if left := self._producer.flush(PATIENCE):
            raise SystemExit(f"{left} records were not written")

    @contextmanager
    def steady(self, records: int, every: float) -> Iterator[None]:
        """Produce records at an interval until the block is left."""
        over = threading.Event()

        def feed() -> None:
            while not over.wait(every):
                self.send(records)

        thread = threading.Thread(target=feed, name="feed")
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def fill(servers: str, topic: str, records: int, size: int) -> None:
    """Produce records with distinct keys and values, spread evenly over 12 partitions."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "linger.ms": 50,
            "batch.size": 500_000,
            "queue.buffering.max.messages": 200_000,
        }
    )
    pool = os.urandom(size + 65_536)
    for number in range(records):
        at = number * 7919 % 65_536
        while True:
            try:
                producer.produce(
                    topic,
                    pool[at : at + size],
                    key=b"%012d" % number,
                    partition=number % PARTITIONS,
                )
                break
            except BufferError:
                producer.poll(0.05)
        if number % 10_000 == 0:
            producer.poll(0)
    if left := producer.flush(PATIENCE):
        raise SystemExit(f"{left} records were not written")


@final
class Marks:
    """Records the times of events in other threads, and waits for them."""

    def __init__(self) -> None:
        self._marks: list[tuple[float, Mapping[str, Any]]] = []
        self._changed = threading.Condition()

    def add(self, **what: Any) -> None:
        """Record that an event has just happened."""
        with self._changed:
            self._marks.append((time.perf_counter(), what))
            self._changed.notify_all()

    def wait(self, wanted: Callable[[Mapping[str, Any]], bool]) -> tuple[float, Mapping[str, Any]]:
        """Wait for the first matching event."""

        def found() -> tuple[float, Mapping[str, Any]] | None:
            return next((mark for mark in self._marks if wanted(mark[1])), None)

        with self._changed:
            mark = self._changed.wait_for(found, PATIENCE)
        if mark is None:
            raise SystemExit(f"it did not happen in {PATIENCE:g} s; what did: {self._marks[-5:]}")
        return mark

    def total(self, name: str) -> int:
        """The sum of a figure over all events."""
        with self._changed:
            return sum(what.get(name, 0) for _, what in self._marks)

    def wait_total(self, name: str, least: int) -> float:
        """Wait until the sum of a figure has reached a value; return that time."""
        deadline = time.monotonic() + PATIENCE
        with self._changed:
            while True:
                so_far = 0
                for at, what in self._marks:
                    so_far += what.get(name, 0)
                    if so_far >= least:
                        return at
                if not self._changed.wait(deadline - time.monotonic()):
                    raise SystemExit(f"{so_far} of {least} {name} in {PATIENCE:g} s")


def cpu_seconds() -> float:
    """CPU seconds of this process and its children: Python, the JVM and workers, not the broker."""
    processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
    total = 0.0
    for process in processes:
        try:
            if "kafka.Kafka" not in process.cmdline():
                times = process.cpu_times()
                total += times.user + times.system
        except psutil.Error:
            continue  # it has just ended
    return total


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """Median, lowest and highest."""
    median = format(statistics.median(values), form)
    return f"{median} ({min(values):{form}} to {max(values):{form}})"


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> str:
    """The ratio of two figures, round by round."""
    return spread([mine / other for mine, other in zip(ours, theirs, strict=True)])


def load() -> str:
    """The load average of the last minute, and the number of cores."""
    return f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores"


def title(text: str) -> None:
    """Print the title of a cell."""
    print(f"\n== {text}; {load()}", flush=True)


def line(text: str) -> None:
    """Print one line of a cell."""
    print(f"  {text}", flush=True)
