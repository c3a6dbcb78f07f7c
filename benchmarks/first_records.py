"""Measures how long a member waits for its first records once it has its partitions.

    python benchmarks/first_records.py [--rounds N] [--bootstrap-servers HOST:PORT]

Starts a real Kafka (or uses the given one) and measures the time from the event ``Assigned`` to the
first record: of a new member, and of partitions that are added to a topic, where the other
partition has traffic and where it has none. Each is measured as kgroup is, and without its requests
for leaders (``kgroup.records.topic_requests``), when librdkafka's timer has to find them. Medians
are printed with the lowest and the highest round.

Without traffic an added partition waits in both cases for the Fetch under way, in which Kafka waits
for records up to ``fetch.wait.max.ms`` (100 ms; 500 by librdkafka's default).
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from collections.abc import Awaitable, Callable
from contextlib import ExitStack
from functools import partial
from typing import Final
from unittest import mock
from uuid import uuid4

import trio
from confluent_kafka import Producer

from kgroup import ConsumerGroup, Generation, GroupConfig, TopicPartition
from kgroup.events import Assigned, Event
from kgroup.records import consumer_fetches
from kgroup.testing.admin import add_partitions, create_topic, produce
from kgroup.testing.kafka import RealKafka

PAUSE: Final = 0.005
"""Seconds between two records of the traffic."""


class Stopwatch:
    """Measures from the last assignment on."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    def on_event(self, event: Event) -> None:
        """Start at an assignment."""
        if isinstance(event, Assigned):
            self._began = time.perf_counter()

    def stop(self) -> None:
        """Note the time since then."""
        self.seconds.append(time.perf_counter() - self._began)


def config_for(servers: str, topic: str) -> GroupConfig:
    """A group of its own, which notices added partitions soon."""
    return GroupConfig(
        bootstrap_servers=servers,
        group_id=f"first-records-{uuid4().hex}",
        topics=[topic],
        partition_watch_interval=0.2,
    )


async def first_batch(generation: Generation, partition: TopicPartition) -> int:
    """Wait for the first batch of a partition; return its next offset."""
    async for batch in generation.records(partition):
        return batch.next_offset
    raise RuntimeError(f"the generation ended before a record of {partition} came")


async def new_member(servers: str, rounds: int) -> list[float]:
    """Members that join one after the other, each in a group of its own."""
    topic, watch = f"first-records-{uuid4().hex}", Stopwatch()
    create_topic(servers, topic, 1)
    produce(servers, topic, ["x"])
    for _ in range(rounds):
        async with ConsumerGroup(config_for(servers, topic), on_event=watch.on_event) as group:
            # So that the assignment comes at any moment between two turns of librdkafka's timer.
            await trio.sleep(0.3 + random.random())
            await first_batch(await group.next(), TopicPartition(topic, 0))
            watch.stop()
    return watch.seconds


async def added_partitions(servers: str, rounds: int, *, traffic: bool) -> list[float]:
    """Partitions that are added to a topic one after the other, while the first one is read."""
    topic, watch = f"first-records-{uuid4().hex}", Stopwatch()
    create_topic(servers, topic, 1)
    first, producer = TopicPartition(topic, 0), Producer({"bootstrap.servers": servers})

    def add(number: int) -> None:
        add_partitions(servers, topic, number + 1)
        produce(servers, topic, ["x"], partition=number)

    async def write() -> None:
        while traffic:
            producer.produce(topic, b"x", partition=0)
            producer.poll(0)
            await trio.sleep(PAUSE)

    async def read(generation: Generation) -> None:
        async for batch in generation.records(first):
            await generation.commit({first: batch.next_offset})

    async with trio.open_nursery() as nursery:
        nursery.start_soon(write)
        async with ConsumerGroup(config_for(servers, topic), on_event=watch.on_event) as group:
            await group.next()
            for number in range(1, rounds + 1):
                await trio.to_thread.run_sync(add, number)
                added = TopicPartition(topic, number)
                while added not in (generation := await group.next()).assignment:
                    await generation.ending.wait()
                generation.start_soon(read, generation)
                next_offset = await first_batch(generation, added)
                watch.stop()
                await generation.commit({added: next_offset})
                await trio.sleep(random.random())
        nursery.cancel_scope.cancel()
    producer.flush()
    return watch.seconds


CASES: Final[dict[str, Callable[[str, int], Awaitable[list[float]]]]] = {
    "new member": new_member,
    "added partition, traffic": partial(added_partitions, traffic=True),
    "added partition, none": partial(added_partitions, traffic=False),
}


def report(name: str, seconds: list[float]) -> None:
    """Print one line."""
    low, median, high = (1000 * of(seconds) for of in (min, statistics.median, max))
    print(f"  {name:26} {median:6.0f} ms ({low:.0f} to {high:.0f})")


def main() -> None:
    """Parse the arguments, start a broker, measure, and report."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--bootstrap-servers", help="a running Kafka; by default one is started")
    arguments = parser.parse_args()
    with ExitStack() as stack:
        servers = arguments.bootstrap_servers
        if servers is None:
            servers = stack.enter_context(RealKafka()).bootstrap_servers
        print(f"{arguments.rounds} rounds, as kgroup is")
        for name, measure in CASES.items():
            report(name, trio.run(measure, servers, arguments.rounds))
        print("without requests for leaders")
        with mock.patch.object(consumer_fetches, "request_leaders"):
            for name, measure in CASES.items():
                report(name, trio.run(measure, servers, arguments.rounds))


if __name__ == "__main__":
    main()
