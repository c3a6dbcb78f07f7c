"""A test of your own worker: no Kafka, no Docker, no sockets, no waiting.

    python -m pytest examples/test_my_worker.py        (with pytest and pytest-trio)

The broker runs in the test's own event loop, and time is virtual: minutes on a real cluster become
milliseconds. The worker is the same code that runs in production.
"""

from collections.abc import Awaitable, Callable

import pytest
import trio
from trio.testing import MockClock

from kgroup import ConsumerGroup, Generation, GroupConfig, Message, TopicPartition
from kgroup.broker import in_memory
from kgroup.testing.memory import memory_runtime


async def work(group: ConsumerGroup, process: Callable[[Message], Awaitable[None]]) -> None:
    """The worker under test; in your project, import yours."""

    async def handle(generation: Generation, partition: TopicPartition) -> None:
        async for batch in generation.records(partition, max_records=10):
            for message in batch:
                await process(message)
            await generation.commit({partition: batch.next_offset})

    async with group:
        async for generation in group:
            for partition in generation.assignment:
                generation.start_soon(handle, generation, partition)


@pytest.mark.trio
@pytest.mark.parametrize("crashes", [False, True])
async def test_another_worker_takes_over(crashes: bool, autojump_clock: MockClock) -> None:
    """Every record is processed, and none of them twice unless a worker crashed."""
    processed: list[int] = []

    async def process(message: Message) -> None:
        await trio.sleep(0.5)
        processed.append(int(message.value() or b""))

    async with in_memory() as broker, trio.open_nursery() as nursery:
        await broker.create_topic("orders", 4)
        for number in range(200):
            await broker.append("orders", number % 4, [str(number).encode()])
        servers = broker.bootstrap_servers
        config = GroupConfig(bootstrap_servers=servers, group_id="test", topics=["orders"])
        first, second = (ConsumerGroup(config, runtime=memory_runtime(broker)) for _ in range(2))
        crash = trio.CancelScope()

        async def first_worker() -> None:
            with crash:
                await work(first, process)

        nursery.start_soon(first_worker)
        await trio.sleep(10)
        nursery.start_soon(work, second, process)
        await trio.sleep(10)
        if crashes:
            crash.cancel()
        else:
            first.shutdown()
        await trio.sleep(60)

        assert set(processed) == set(range(200))
        if not crashes:
            assert len(processed) == 200
        nursery.cancel_scope.cancel()
