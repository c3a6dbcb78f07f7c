"""Groups and transactions on several brokers: what survives the loss of a coordinator."""

from __future__ import annotations

from typing import Any

import pytest
import trio
import trio.testing

from kgroup.broker import EmbeddedCluster, in_memory_cluster
from kgroup.group import ConsumerGroup
from kgroup.testing.memory import config_for, memory_runtime
from kgroup.types import OffsetAndMetadata, TopicPartition
from tests.broker.clusters import (
    LOADING,
    NOT_AVAILABLE,
    NOT_COORDINATOR,
    SETTINGS,
    T0,
    T1,
    T2,
    beat,
    find,
    to,
)
from tests.broker.handlers.test_transactions import Producer
from tests.broker.wire import commit, joining

NOT_ENOUGH_REPLICAS = 19


@pytest.mark.parametrize("killed", [False, True])
async def test_a_coordinator_fails_over(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock, killed: bool
) -> None:
    """If stopped, it answers parked requests; if killed, none. Written state survives."""
    at = cluster.coordinator_of("g")
    assert at is not None
    client = await to(cluster, at)
    assert await commit(client, partition=1) == 0
    first, second = await to(cluster, at), await to(cluster, at)
    await first.request("join_group", 3, **joining())
    await second.send("join_group", 3, **joining())
    await trio.testing.wait_all_tasks_blocked()
    if killed:
        cluster.nodes[at].kill(loading=1)
        assert await second.is_closed()
    else:
        await cluster.nodes[at].stop(loading=1)
        assert int((await second.answer("join_group", 3)).error_code) == NOT_COORDINATOR
        assert await second.is_closed()
    now = cluster.coordinator_of("g")
    assert now not in (None, at)
    assert now is not None
    other = await to(cluster, now)
    assert await find(other, "g") == (0, now)
    await other.send("join_group", 3, **joining())
    assert int((await other.answer("join_group", 3)).error_code) == LOADING
    await trio.sleep(1)
    assert (await other.request("join_group", 3, **joining())).error_code == 0
    assert await cluster.committed("g") == {T1: OffsetAndMetadata(7, -1, "m")}
    assert cluster.coordinator_epoch("g") == 1
    assert [group.group_id for group in await cluster.groups()] == ["g"]


async def test_a_group_without_a_coordinator_keeps_its_offsets(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """With one replica a group waits for its broker; offsets of deleted topics are removed."""
    settings = {**SETTINGS, "offsets.topic.replication.factor": "1"}
    async with in_memory_cluster(2, settings) as cluster:
        await cluster.create_topic("t", 1)
        await cluster.create_topic("u", 1)
        at = cluster.coordinator_of("g")
        assert at is not None
        client = await to(cluster, at)
        assert await commit(client, topics=("t", "u")) == 0
        await cluster.nodes[at].stop()
        other = await to(cluster, 3 - at)
        assert await find(other, "g") == (NOT_AVAILABLE, -1)
        assert await beat(other) == NOT_COORDINATOR
        await cluster.delete_topic("u")
        assert list(await cluster.committed("g")) == [T0]
        await cluster.nodes[at].start()
        assert await find(other, "g") == (0, at)
        assert list(await cluster.committed("g")) == [T0]


async def test_a_group_lives_through_moves(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """Two members read everything once while the coordinator moves, is killed and restarts."""
    for number in range(3):
        await cluster.append("t", number, [b"%d" % n for n in range(30)])
    seen: list[tuple[int, int]] = []
    done = trio.Event()

    async def handle(generation: Any, partition: TopicPartition) -> None:
        async for got in generation.records(partition, max_records=1):
            await trio.sleep(1)
            await generation.commit({partition: got.next_offset})
            seen.extend((partition.partition, message.offset()) for message in got.messages)
            if len(set(seen)) == 90:
                done.set()

    async def member(seed: int) -> None:
        config = config_for(cluster, group_id="g", topics=["t"])
        runtime = memory_runtime(cluster, seed=seed)
        async with ConsumerGroup(config, runtime=runtime) as group:
            async for generation in group:
                for partition in generation.assignment:
                    generation.start_soon(handle, generation, partition)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(member, 1)
        nursery.start_soon(member, 2)
        await trio.sleep(5)
        at = cluster.coordinator_of("g")
        assert at is not None
        await cluster.move_coordinator("g", at % 3 + 1, away=1, loading=1)
        await cluster.move_leader(T0, 3)
        await trio.sleep(5)
        cluster.nodes[at % 3 + 1].kill(loading=2)
        await trio.sleep(5)
        await cluster.nodes[at % 3 + 1].start()
        await cluster.rebalance_leaders(loading=1)
        await done.wait()
        nursery.cancel_scope.cancel()
    assert len(set(seen)) == 90
    assert len(seen) == 90


async def test_a_transaction_outlives_its_coordinator(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """Another broker ends it, with one outcome for records and offsets on all brokers."""
    at = cluster.cluster.transaction_coordinator_of("x")
    assert at is not None
    client = await to(cluster, at.node_id)
    assert await find(client, "x", 1) == (0, at.node_id)
    producer = Producer(client)
    assert await Producer(await to(cluster, at.node_id % 3 + 1)).init() == NOT_COORDINATOR
    assert await producer.init() == 0
    assert await producer.add(0, 1, 2) == [0, 0, 0]
    assert await producer.add_group("g") == 0
    leader = Producer(await to(cluster, 1))
    leader.producer_id, leader.epoch = producer.producer_id, producer.epoch
    assert await leader.write(b"a", 0) == 0
    coordinator = cluster.coordinator_of("g")
    assert coordinator is not None
    group = Producer(await to(cluster, coordinator))
    group.producer_id, group.epoch = producer.producer_id, producer.epoch
    assert await group.commit_offset(5) == 0
    assert await cluster.committed("g") == {}
    cluster.nodes[at.node_id].kill()
    now = cluster.cluster.transaction_coordinator_of("x")
    assert now is not None
    heir = Producer(await to(cluster, now.node_id))
    heir.producer_id, heir.epoch = producer.producer_id, producer.epoch
    assert await heir.end(committed=True) == 0
    assert [cluster.log.end_offset(tp) for tp in (T0, T1, T2)] == [2, 1, 1]
    assert (await cluster.committed("g"))[T0].offset == 5


async def test_an_open_transaction_is_aborted_when_its_coordinator_is_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its time-out passes while the coordinator is away, and is noticed afterwards."""
    settings = {**SETTINGS, "transaction.state.log.replication.factor": "1"}
    async with in_memory_cluster(2, settings) as cluster:
        await cluster.create_topic("t", 1)
        at = cluster.cluster.transaction_coordinator_of("x")
        assert at is not None
        client = await to(cluster, at.node_id)
        producer = Producer(client)
        await producer.init()
        await producer.add(0)
        await cluster.nodes[at.node_id].stop()
        assert await find(await to(cluster, 3 - at.node_id), "x", 1) == (NOT_AVAILABLE, -1)
        await trio.sleep(100)
        assert cluster.log.end_offset(T0) == 0
        await cluster.nodes[at.node_id].start()
        await trio.testing.wait_all_tasks_blocked()
        assert cluster.log.end_offset(T0) == 1


async def test_a_transaction_takes_nothing_new_while_its_coordinator_is_away(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The first batch for another partition fails until there is a coordinator."""
    settings = {**SETTINGS, "transaction.state.log.replication.factor": "1"}
    async with in_memory_cluster(2, settings) as cluster:
        await cluster.create_topic("t", 1)
        at = cluster.cluster.transaction_coordinator_of("x")
        assert at is not None
        other = 3 - at.node_id
        producer = Producer(await to(cluster, at.node_id))
        await producer.init()
        assert await producer.add(0) == [0]
        await cluster.nodes[at.node_id].stop()
        leader = Producer(await to(cluster, other))
        leader.producer_id, leader.epoch = producer.producer_id, producer.epoch
        assert await leader.write(b"a", 0) == NOT_ENOUGH_REPLICAS
        assert await leader.commit_offset(5) == NOT_AVAILABLE
        await cluster.nodes[at.node_id].start()
        assert await leader.write(b"a", 0) == 0
        await cluster.nodes[at.node_id].stop()
        assert await leader.write(b"b", 1) == 0
