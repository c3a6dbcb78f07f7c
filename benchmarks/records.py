"""Measures how fast kgroup reads, compared with confluent-kafka's consume loop.

    python benchmarks/records.py [--records N] [--rounds N] [--partitions N] [--sizes N ...]
                                 [--readers NAME ...] [--bootstrap-servers HOST:PORT]

Starts a real Kafka (or uses the given one), produces records of 100 B and of 1 KB, and reads them
by a loop over ``Consumer.poll`` and ``consume``, the fastest that confluent-kafka has ("raw"), and
by kgroup: by its record source alone, by a group with one stream for all partitions ("batches"),
with a task for each partition ("tasks"), and with a thread for each ("threads"). The readers whose
names end in "each" read the value and the offset of every record, too. Each reader is a separate
process, all kinds take turns within a round, and librdkafka's settings are the same. CPU is that of
the whole process from the first record on, librdkafka's threads included. Medians are printed with
the lowest and the highest round, and each round's ratio to raw; on a busy machine, look at the
spread first.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final, cast, final
from uuid import uuid4

import attrs
import confluent_kafka
import trio

from kgroup import threaded
from kgroup.config import GroupConfig
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.interfaces import Message
from kgroup.records.consumer_thread import CHUNK
from kgroup.records.librdkafka import LibrdkafkaSource
from kgroup.records.librdkafka_settings import consumer_settings
from kgroup.testing.admin import create_topic
from kgroup.testing.kafka import RealKafka
from kgroup.types import TopicPartition

SIZES: Final = (100, 1000)
POLL: Final = 0.1
BATCH: Final = 5000


class Meter:
    """Measures time and CPU from the first record to the last one wanted."""

    def __init__(self, wanted: int) -> None:
        self._wanted = wanted
        self._got = self._early = 0
        self._began = self._ended = (0.0, 0.0)
        self._lock = threading.Lock()

    def count(self, records: int) -> bool:
        """Count records; return whether more are expected."""
        with self._lock:
            now = time.perf_counter(), time.process_time()
            if not self._got:
                self._began, self._early = now, records
            if self._got < self._wanted:
                self._got += records
                self._ended = now
            return self._got < self._wanted

    def result(self) -> dict[str, float]:
        """Records per second, and nanoseconds of CPU per record."""
        records = self._got - self._early
        wall, cpu = (after - before for before, after in zip(self._began, self._ended, strict=True))
        return {"rate": records / wall, "cpu": cpu / records * 1e9}


def read_each(messages: Iterable[Message]) -> None:
    """Read the value and the offset of each record."""
    for message in messages:
        message.value()
        message.offset()


def pass_by(messages: Iterable[Message]) -> None:
    """Read nothing of the records."""


Handle = Callable[[Iterable[Message]], None]


@final
@attrs.frozen
class Job:
    """What a reader reads, and what it does with each batch."""

    config: GroupConfig
    topic: str
    partitions: int
    meter: Meter
    handle: Handle


def read_raw(job: Job) -> None:
    """Read by confluent-kafka's loop."""
    consumer = confluent_kafka.Consumer(consumer_settings(job.config))
    consumer.assign(
        [confluent_kafka.TopicPartition(job.topic, number, 0) for number in range(job.partitions)]
    )
    more = True
    while more:
        first = consumer.poll(POLL)
        if first is None:
            continue
        batch = [first]
        batch += consumer.consume(CHUNK - 1, 0)
        job.handle(cast("list[Message]", batch))
        more = job.meter.count(len(batch))
    consumer.close()


def read_source(job: Job) -> None:
    """Read by kgroup's source, in one task."""

    async def read() -> None:
        all_of_them = [TopicPartition(job.topic, number) for number in range(job.partitions)]
        async with LibrdkafkaSource(job.config, lambda _, reason: print(reason)) as source:
            source.assign(1, dict.fromkeys(all_of_them, 0))
            source.open(1, all_of_them)
            while job.meter.count(len(await source.receive(1, all_of_them, BATCH))):
                pass

    trio.run(read)


def read_batches(job: Job) -> None:
    """Read by a group, with one stream for all partitions."""

    async def read() -> None:
        async with ConsumerGroup(job.config) as group:
            async for generation in group:
                async for batch in generation.records():
                    job.handle(batch)
                    if not job.meter.count(len(batch)):
                        return

    trio.run(read)


def read_tasks(job: Job) -> None:
    """Read by a group, with a task for each partition."""

    async def read_partition(generation: Generation, partition: TopicPartition) -> None:
        async for batch in generation.records(partition):
            job.handle(batch)
            if not job.meter.count(len(batch)):
                return

    async def read() -> None:
        async with ConsumerGroup(job.config) as group:
            async for generation in group:
                for partition in generation.assignment:
                    generation.start_soon(read_partition, generation, partition)
                await generation.ending.wait()
                return

    trio.run(read)


def read_threads(job: Job) -> None:
    """Read by a threaded group, with a thread for each partition."""

    def read_partition(generation: threaded.Generation, partition: TopicPartition) -> None:
        for batch in generation.records(partition):
            job.handle(batch)
            if not job.meter.count(len(batch)):
                return

    with threaded.ConsumerGroup(job.config) as group:
        for generation in group:
            for partition in generation.assignment:
                generation.start(read_partition, generation, partition)
            generation.ending.wait()
            return


RAW: Final = "raw"
READERS: Final[dict[str, tuple[Callable[[Job], None], Handle]]] = {
    RAW: (read_raw, pass_by),
    "source": (read_source, pass_by),
    "batches": (read_batches, pass_by),
    "tasks": (read_tasks, pass_by),
    "threads": (read_threads, pass_by),
    "raw, each": (read_raw, read_each),
    "batches, each": (read_batches, read_each),
    "tasks, each": (read_tasks, read_each),
    "threads, each": (read_threads, read_each),
}


def read(arguments: argparse.Namespace) -> None:
    """Run one reader in this process, and print its result as JSON."""
    config = GroupConfig(
        group_id=f"benchmark-{uuid4().hex}",
        bootstrap_servers=arguments.bootstrap_servers,
        topics=[arguments.topic],
    )
    meter = Meter(arguments.records)
    reader, handle = READERS[arguments.read]
    reader(Job(config, arguments.topic, arguments.partitions, meter, handle))
    print(json.dumps(meter.result()))


def fill(servers: str, size: int, records: int, partitions: int) -> str:
    """Create a topic with records of this size, spread evenly; return its name."""
    topic = f"records-{size}-{uuid4().hex[:8]}"
    create_topic(servers, topic, partitions)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": 50})
    value = b"x" * size
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, partition=number * partitions // records)
                break
            except BufferError:
                producer.poll(0.1)
        if number % 10_000 == 0:
            producer.poll(0)
    producer.flush()
    return topic


def measure(servers: str, topic: str, arguments: argparse.Namespace) -> dict[str, list[Any]]:
    """Measure all rounds of one topic; the readers take turns."""
    results: dict[str, list[Any]] = {name: [] for name in arguments.readers}
    command = [sys.executable, str(Path(__file__).resolve()), "--bootstrap-servers", servers]
    command += ["--topic", topic, "--partitions", str(arguments.partitions)]
    command += ["--records", str(arguments.records)]
    for _ in range(arguments.rounds):
        for name, rounds in results.items():
            done = subprocess.run(
                [*command, "--read", name], check=True, capture_output=True, text=True
            )
            rounds.append(json.loads(done.stdout.splitlines()[-1]))
    return results


def spread(values: list[float], form: str) -> str:
    """Median, lowest and highest."""
    median = format(statistics.median(values), form)
    return f"{median} ({min(values):{form}} to {max(values):{form}})"


def report(size: int, results: dict[str, list[Any]]) -> None:
    """Print the figures of one record size."""
    print(f"\n| {size} B | M records/s | of raw | CPU, ns a record | of raw |")
    print("| --- | --- | --- | --- | --- |")
    for name, rounds in results.items():
        cells = [
            spread([result["rate"] / 1e6 for result in rounds], ".2f"),
            spread(ratios(rounds, results[RAW], "rate"), ".2f"),
            spread([result["cpu"] for result in rounds], ".0f"),
            spread(ratios(rounds, results[RAW], "cpu"), ".2f"),
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def ratios(ours: list[Any], raw: list[Any], what: str) -> list[float]:
    """Round by round."""
    return [one[what] / other[what] for one, other in zip(ours, raw, strict=True)]


def main() -> None:
    """Parse the arguments, start a broker, measure, and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--sizes", type=int, nargs="+", default=list(SIZES))
    parser.add_argument("--readers", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--bootstrap-servers", help="a running Kafka; by default one is started")
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    parser.add_argument("--read", choices=READERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.readers = list(dict.fromkeys([RAW, *arguments.readers]))
    if arguments.read:
        read(arguments)
        return
    print(
        f"Python {platform.python_version()}, trio {trio.__version__},"
        f" confluent-kafka {confluent_kafka.__version__},"
        f" librdkafka {confluent_kafka.libversion()[0]}, {platform.platform()}\n"
        f"{arguments.records} records in {arguments.partitions} partitions,"
        f" {arguments.rounds} rounds"
    )
    with ExitStack() as stack:
        servers = arguments.bootstrap_servers
        if servers is None:
            servers = stack.enter_context(RealKafka(java_options=())).bootstrap_servers
        for size in arguments.sizes:
            topic = fill(servers, size, arguments.records, arguments.partitions)
            report(size, measure(servers, topic, arguments))


if __name__ == "__main__":
    main()
