"""Several brokers in virtual time: they stop, are killed, restart, and have faults one by one."""

from __future__ import annotations

import random

import pytest
import trio
import trio.testing

from kgroup.broker import EmbeddedCluster, in_memory_cluster
from kgroup.broker.embedded_broker import SHUTDOWN_TIMEOUT
from kgroup.broker.memory_pipe import pipe
from kgroup.errors import UsageError
from kgroup.types import TopicPartition
from tests.broker.clusters import (
    LEADER_NOT_AVAILABLE,
    NOT_COORDINATOR,
    SETTINGS,
    T0,
    T1,
    beat,
    leaders,
    metadata,
    to,
)
from tests.broker.wire import joining


async def test_what_a_stopped_broker_leads_moves_to_replicas(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """Replicas lead at once; partitions without another one wait; preferred leaders return."""
    await cluster.create_topic("single", 3)
    client = await to(cluster, 2)
    await cluster.nodes[1].stop()
    assert [b.node_id for b in (await metadata(client)).brokers] == [2, 3]
    assert await leaders(client) == [(0, 2, 1), (0, 2, 0), (0, 3, 0)]
    assert (LEADER_NOT_AVAILABLE, -1, 1) in await leaders(client, "single")
    (found,) = (await metadata(client, "t")).topics
    assert list(found.partitions[0].offline_replicas) == [1]
    assert list(found.partitions[0].isr_nodes) == [2, 3]
    with pytest.raises(ConnectionRefusedError):
        await to(cluster, 1)
    with pytest.raises(UsageError, match="broker 1 is stopped"):
        await cluster.move_leader(T1, 1)
    await cluster.nodes[1].start()
    assert {leader for _, leader, _ in await leaders(client, "single")} == {1, 2, 3}
    assert (await leaders(client))[0] == (0, 2, 1)
    await cluster.rebalance_leaders()
    assert await leaders(client) == [(0, 1, 2), (0, 2, 0), (0, 3, 0)]


async def test_the_last_in_sync_leads_first(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """After all brokers stopped, there is no leader until one starts that was in sync."""
    for node_id in (1, 2, 3):
        await cluster.nodes[node_id].stop()
    assert cluster.leader_of(T0) is None
    with pytest.raises(UsageError, match="0 up"):
        await cluster.create_topic("u")
    await cluster.nodes[1].start()
    assert cluster.leader_of(T0) is None
    await cluster.nodes[3].start()
    assert cluster.leader_of(T0) == 3
    await cluster.nodes[3].stop()
    assert cluster.leader_of(T0) == 1


async def test_the_same_seed_gives_the_same_ids(autojump_clock: trio.testing.MockClock) -> None:
    """The ids depend only on the injected random source."""

    async def play() -> tuple[object, ...]:
        async with in_memory_cluster(3, SETTINGS, random=random.Random(7)) as cluster:
            at = cluster.coordinator_of("g")
            assert at is not None
            client = await to(cluster, at)
            given = (await client.request("join_group", 4, **joining())).member_id
            return cluster.cluster.cluster_id, given, trio.current_time()

    first = await play()
    assert (await play())[:2] == first[:2]


async def test_mistakes_are_usage_errors(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """Impossible calls raise a UsageError that says what is wrong."""
    with pytest.raises(UsageError, match="no broker 9"):
        await cluster.move_leader(T0, 9)
    with pytest.raises(UsageError, match="no t-3"):
        cluster.leader_of(TopicPartition("t", 3))
    with pytest.raises(UsageError, match="no shard 50"):
        await cluster.move_coordinator(50, 1)
    with pytest.raises(ValueError, match="brokers=0 is refused: .* from 1 to 100"):
        async with in_memory_cluster(0):
            pass
    with pytest.raises(ConnectionRefusedError):
        await cluster.open_stream("nowhere", 1)
    assert "EmbeddedBroker 1 at broker-1:9092, up" in repr(cluster)


async def test_a_broker_that_stops_answers_what_it_is_serving(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """A slow request is answered first; one without a response delays the stop by 5 s at most."""
    client, silent = await to(cluster, 1), await to(cluster, 2)
    began = trio.current_time()
    cluster.nodes[1].slow(2)
    await client.send("metadata", 1, topics=[])
    await trio.testing.wait_all_tasks_blocked()
    await cluster.nodes[1].stop()
    assert trio.current_time() - began == 2
    assert [node.node_id for node in (await client.answer("metadata", 1)).brokers] == [2, 3]
    assert await client.is_closed()
    cluster.nodes[2].set_reachable(reachable=False)
    await silent.send("metadata", 1, topics=[])
    await trio.testing.wait_all_tasks_blocked()
    await cluster.nodes[2].stop()
    assert trio.current_time() - began == 7
    assert await silent.is_closed()
    for _ in range(2):
        await cluster.nodes[2].stop()
        cluster.nodes[2].kill()
        assert not cluster.nodes[2].is_up
        await cluster.nodes[3].start()


async def test_faults_are_of_one_broker(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """Faults that are injected at one broker do not affect the others."""
    at = cluster.coordinator_of("g")
    assert at is not None
    here, there = await to(cluster, at), await to(cluster, at % 3 + 1)
    cluster.nodes[at].inject("heartbeat", 27)
    assert [await beat(there), await beat(here), await beat(here)] == [NOT_COORDINATOR, 27, 25]
    assert cluster.nodes[at].cut_connections() == 1
    assert await here.is_closed()
    assert await beat(there) == NOT_COORDINATOR


async def test_a_connection_of_a_killed_brokers_last_moment_is_cut(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """A connection that the killed broker had not yet begun to serve is closed too."""
    stream, theirs = pipe()
    cluster.nodes[1].accept(theirs, "127.0.0.1")
    cluster.nodes[1].kill()
    with trio.fail_after(1):
        assert await stream.receive_some() == b""


async def test_a_slow_stop_keeps_the_connections_of_the_next_start(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """A restarted broker keeps its new connections while the old ones are finished."""
    node = cluster.nodes[1]
    old = await to(cluster, 1)
    node.slow(60, times=1)
    await old.send("heartbeat", 0, group_id="g", generation_id=1, member_id="m")
    await trio.testing.wait_all_tasks_blocked()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.stop)
        await trio.testing.wait_all_tasks_blocked()
        await node.start()
        new = await to(cluster, 1)
        await trio.sleep(SHUTDOWN_TIMEOUT + 1)
        assert await old.is_closed()
        assert await leaders(new)
