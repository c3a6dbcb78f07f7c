"""A broker in memory and groups of other event loops than its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager

import pytest
import trio

import kgroup
from kgroup.broker import (
    EmbeddedBroker,
    in_memory,
    in_memory_cluster,
    serve,
    serve_cluster,
)
from kgroup.config import GroupConfig
from kgroup.errors import UsageError
from kgroup.testing.memory import config_for, memory_runtime


def with_threads(config: GroupConfig, broker: EmbeddedBroker) -> None:
    """Wait for a generation."""
    with kgroup.threaded.ConsumerGroup(config, runtime=memory_runtime(broker)) as group:
        group.next(100)


def with_asyncio(config: GroupConfig, broker: EmbeddedBroker) -> None:
    """Wait for a generation."""

    async def main() -> None:
        async with kgroup.aio.ConsumerGroup(config, runtime=memory_runtime(broker)) as group:
            await group.next()

    asyncio.run(main())


def with_trio(config: GroupConfig, broker: EmbeddedBroker) -> None:
    """Wait for a generation."""

    async def main() -> None:
        async with kgroup.ConsumerGroup(config, runtime=memory_runtime(broker)) as group:
            await group.next()

    trio.run(main)


@pytest.mark.parametrize("run", [in_memory, in_memory_cluster, serve, serve_cluster])
def test_a_broker_under_asyncio_is_refused(
    run: Callable[[], AbstractAsyncContextManager[object]],
) -> None:
    """The error names the broker that programs without trio use."""

    async def main() -> None:
        async with run():
            pytest.fail("it runs")

    with pytest.raises(UsageError, match=r"kgroup\.testing\.embedded\.EmbeddedKafka"):
        asyncio.run(main())


@pytest.mark.parametrize("use", [with_threads, with_asyncio, with_trio])
async def test_a_group_of_another_event_loop_is_refused(
    use: Callable[[GroupConfig, EmbeddedBroker], None],
) -> None:
    """The group fails at once, says which broker it needs, and causes no error in the broker."""
    async with in_memory() as broker:
        await broker.create_topic("topic")
        with pytest.raises(UsageError, match=r"embedded_kafka, or kgroup\.testing\.embedded"):
            await trio.to_thread.run_sync(use, config_for(broker), broker)
        assert broker.cluster.internal_errors.seen == 0
