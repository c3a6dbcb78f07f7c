"""Measures the cost of kgroup's record source compared with confluent-kafka's consume loop.

    python benchmarks/records.py [--records N] [--rounds N] [--partitions N]
                                 [--bootstrap-servers HOST:PORT]

Starts a real Kafka (or uses the given one), produces records of 100 B and of 1 KB, and reads them
in two ways: by a loop over ``Consumer.poll`` and ``consume``, the fastest that confluent-kafka has,
and by ``LibrdkafkaSource``. Each reader is a separate process, both kinds take turns within a
round, and librdkafka's settings are the same. CPU is that of the whole process from the first
record on, librdkafka's threads included. Medians are printed with the lowest and the highest round;
on a busy machine, look at the spread first.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import confluent_kafka
import trio

from kgroup.config import GroupConfig
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
    """Measures time and CPU from the first record on."""

    def __init__(self, wanted: int) -> None:
        self.wanted = wanted
        self.got = 0

    def count(self, records: int) -> bool:
        """Count records; return whether more are expected."""
        if not self.got:
            self.wall, self.cpu, self.early = time.perf_counter(), time.process_time(), records
        self.got += records
        return self.got < self.wanted

    def result(self) -> dict[str, float]:
        """Records per second, and nanoseconds of CPU per record."""
        records = self.got - self.early
        wall, cpu = time.perf_counter() - self.wall, time.process_time() - self.cpu
        return {"rate": records / wall, "cpu": cpu / records * 1e9}


def read_raw(config: GroupConfig, topic: str, partitions: int, meter: Meter) -> None:
    """Read by confluent-kafka's loop."""
    consumer = confluent_kafka.Consumer(consumer_settings(config))
    consumer.assign(
        [confluent_kafka.TopicPartition(topic, number, 0) for number in range(partitions)]
    )
    more = True
    while more:
        first = consumer.poll(POLL)
        if first is None:
            continue
        batch = [first]
        batch += consumer.consume(CHUNK - 1, 0)
        more = meter.count(len(batch))
    consumer.close()


def read_source(config: GroupConfig, topic: str, partitions: int, meter: Meter) -> None:
    """Read by kgroup's source, in one task."""

    async def read() -> None:
        all_of_them = [TopicPartition(topic, number) for number in range(partitions)]
        async with LibrdkafkaSource(config, lambda _, reason: print(reason)) as source:
            source.assign(1, dict.fromkeys(all_of_them, 0))
            source.open(1, all_of_them)
            while meter.count(len(await source.receive(1, all_of_them, BATCH))):
                pass

    trio.run(read)


READERS: Final[dict[str, Callable[[GroupConfig, str, int, Meter], None]]] = {
    "confluent-kafka": read_raw,
    "LibrdkafkaSource": read_source,
}


def read(arguments: argparse.Namespace) -> None:
    """Run one reader in this process, and print its result as JSON."""
    config = GroupConfig(
        group_id=f"benchmark-{uuid4().hex}",
        bootstrap_servers=arguments.bootstrap_servers,
        topics=[arguments.topic],
    )
    meter = Meter(arguments.records)
    READERS[arguments.read](config, arguments.topic, arguments.partitions, meter)
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
    results: dict[str, list[Any]] = {name: [] for name in READERS}
    command = [sys.executable, str(Path(__file__).resolve()), "--bootstrap-servers", servers]
    command += ["--topic", topic, "--partitions", str(arguments.partitions)]
    command += ["--records", str(arguments.records)]
    for _ in range(arguments.rounds):
        for name in READERS:
            done = subprocess.run(
                [*command, "--read", name], check=True, capture_output=True, text=True
            )
            results[name].append(json.loads(done.stdout.splitlines()[-1]))
    return results


def spread(values: list[float], form: str) -> str:
    """Median, lowest and highest."""
    median = format(statistics.median(values), form)
    return f"{median} ({min(values):{form}} to {max(values):{form}})"


def report(size: int, results: dict[str, list[Any]]) -> None:
    """Print the figures of one record size."""
    print(f"\n{size} B")
    for name, rounds in results.items():
        rates = spread([result["rate"] / 1e6 for result in rounds], ".2f")
        cpu = spread([result["cpu"] for result in rounds], ".0f")
        print(f"  {name:17} {rates} M records/s, CPU {cpu} ns a record")
    raw, ours = (
        [result["cpu"] for result in results[name]]
        for name in ("confluent-kafka", "LibrdkafkaSource")
    )
    more = [mine / theirs * 100 - 100 for mine, theirs in zip(ours, raw, strict=True)]
    print(f"  more CPU, round by round: {spread(more, '+.0f')} %")


def main() -> None:
    """Parse the arguments, start a broker, measure, and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--partitions", type=int, default=8)
    parser.add_argument("--bootstrap-servers", help="a running Kafka; by default one is started")
    parser.add_argument("--topic", help=argparse.SUPPRESS)
    parser.add_argument("--read", choices=READERS, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
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
        for size in SIZES:
            topic = fill(servers, size, arguments.records, arguments.partitions)
            report(size, measure(servers, topic, arguments))


if __name__ == "__main__":
    main()
