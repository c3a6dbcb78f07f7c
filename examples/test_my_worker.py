"""A test of a worker of one's own: no Kafka, no Docker, no sockets, no waiting.

    python -m pytest examples/test_my_worker.py        (with pytest and pytest-trio)

The broker runs in the test's own event loop, and time is virtual: what would take a minute on a
real cluster takes milliseconds, and the worker is the very code that runs in production.
"""

from typing import Any

import trio
from trio.testing import MockClock

from kgroup import ConsumerGroup, Generation, GroupConfig, TopicPartition
from kgroup.broker import in_memory
from kgroup.environment import Environment
from kgroup.testing.memory import memory_environment


async def work(config: GroupConfig, seen: list[bytes], **tests: Any) -> None:
    """The worker under test."""

    async def handle(generation: Generation, partition: TopicPartition) -> None:
        async for batch in generation.records(partition):
            await trio.sleep(1)  # slow work
            seen.extend(message.value() or b"" for message in batch.messages)
            await generation.commit({partition: batch.next_offset})

    async with ConsumerGroup(config, **tests) as group:
        async for generation in group:
            for partition in generation.assignment:
                generation.start_soon(handle, generation, partition)


async def test_two_workers_share_the_topic(autojump_clock: MockClock) -> None:
    """A second worker joins in the middle: every record is handled once, and none is lost."""
    async with in_memory() as broker, trio.open_nursery() as workers:
        await broker.create_topic("orders", 4)
        environment: Environment = memory_environment(broker)
        config = GroupConfig(
            bootstrap_servers=broker.bootstrap_servers, group_id="test", topics=["orders"]
        )
        seen: list[bytes] = []

        async def start() -> None:
            await work(config, seen, environment=environment)

        workers.start_soon(start)
        await trio.sleep(10)
        workers.start_soon(start)
        for number in range(200):
            await broker.append("orders", number % 4, [str(number).encode()])
            await trio.sleep(0.1)
        await trio.sleep(60)
        assert sorted(map(int, seen)) == list(range(200))
        workers.cancel_scope.cancel()
