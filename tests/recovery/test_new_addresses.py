"""All brokers get new addresses, one after the other, while a member has no generation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
from trio.testing import MockClock

from kgroup.broker import EmbeddedBroker, EmbeddedCluster, in_memory_cluster
from kgroup.error_codes import ErrorCode
from kgroup.group import ConsumerGroup
from kgroup.testing.memory import config_for, memory_runtime
from kgroup.watchers.brokers import MAX_AGE

PAUSE = 1.5 * MAX_AGE
"""Seconds between two brokers that move."""


async def move(broker: EmbeddedBroker) -> None:
    """Start a broker again at another address; nothing listens at the old one any more."""
    await broker.stop()
    await trio.sleep(5)
    broker._endpoint._address = (f"moved-{broker.node_id}", 9092)
    await broker.start()


async def move_all(cluster: EmbeddedCluster) -> None:
    """Move all brokers, the coordinator last; it takes some minutes."""
    coordinator = cluster.coordinator_of("group")
    for number in sorted(cluster.nodes, key=lambda one: one == coordinator):
        await trio.sleep(PAUSE)
        await move(cluster.nodes[number])
    await trio.sleep(PAUSE)


@asynccontextmanager
async def cluster_of_three() -> AsyncIterator[EmbeddedCluster]:
    """Three brokers with a topic."""
    settings = {"group.initial.rebalance.delay.ms": 0, "group.max.session.timeout.ms": 3_600_000}
    async with in_memory_cluster(3, settings) as cluster:
        await cluster.create_topic("topic", 1)
        yield cluster


def group_of(cluster: EmbeddedCluster, **settings: object) -> ConsumerGroup:
    """A group whose only bootstrap server is the present address of one broker."""
    first = min(cluster.nodes)
    servers = cluster.nodes[first].bootstrap_servers
    return ConsumerGroup(
        config_for(cluster, bootstrap_servers=servers, **settings),
        runtime=memory_runtime(cluster),
    )


async def test_while_the_program_does_not_call_next(autojump_clock: MockClock) -> None:
    """It may do something else for an hour between two generations."""
    async with cluster_of_three() as cluster, group_of(cluster) as group:
        generation = await group.next()
        group.release()
        generation.start_soon(trio.lowlevel.checkpoint)
        await generation.wait_ended()
        await move_all(cluster)
        with trio.fail_after(60):
            await group.next()


async def test_while_the_program_is_not_subscribed(autojump_clock: MockClock) -> None:
    """It may subscribe again an hour later."""
    async with cluster_of_three() as cluster, group_of(cluster) as group:
        await group.next()
        group.release()
        group.unsubscribe()
        await move_all(cluster)
        group.subscribe(["topic"])
        with trio.fail_after(60):
            await group.next()


@pytest.mark.parametrize("at_first", [True, False])
async def test_while_there_is_no_coordinator(autojump_clock: MockClock, at_first: bool) -> None:
    """No broker knows a coordinator, as if replicas of the offsets topic were missing."""
    async with cluster_of_three() as cluster, group_of(cluster) as group:
        if not at_first:
            generation = await group.next()
            group.release()
        faults = [
            node.inject("find_coordinator", ErrorCode.COORDINATOR_NOT_AVAILABLE, times=None)
            for node in cluster.nodes.values()
        ]
        if not at_first:
            generation.start_soon(trio.lowlevel.checkpoint)
            coordinator = cluster.coordinator_of("group")
            assert coordinator is not None
            for api in ("heartbeat", "join_group"):
                cluster.nodes[coordinator].inject(api, ErrorCode.NOT_COORDINATOR)
        async with trio.open_nursery() as nursery:
            joined = trio.Event()

            async def join() -> None:
                await group.next()
                joined.set()

            nursery.start_soon(join)
            await move_all(cluster)
            assert not joined.is_set()
            for fault in faults:
                fault.cancel()
            with trio.fail_after(60):
                await joined.wait()


async def test_while_a_join_waits(autojump_clock: MockClock) -> None:
    """A JoinGroup waits for a member that drains for long."""
    async with cluster_of_three() as cluster:
        coordinator = cluster.coordinator_of("group")
        assert coordinator is not None
        cluster.nodes[coordinator].slow(10 * PAUSE, "join_group", times=1)
        async with (
            group_of(cluster, rebalance_timeout=5 * PAUSE) as group,
            trio.open_nursery() as nursery,
        ):
            nursery.start_soon(move_all, cluster)
            with trio.fail_after(4 * PAUSE + 60):
                await group.next()
