"""Shards that move between coordinators: records stay, and later changes reach them."""

from __future__ import annotations

import random
from typing import Any

import pytest
import trio
import trio.testing

from kgroup.broker import BrokerSettings
from kgroup.broker.cluster_state import ClusterState
from kgroup.broker.groups import requests, responses
from kgroup.broker.groups.coordinator_settings import CoordinatorSettings
from kgroup.broker.replicas import NO_LEADER
from kgroup.broker.shards import HandOver
from kgroup.types import TopicPartition
from tests.broker.recording_observer import RecordingObserver
from tests.broker.test_purgatory import join

TP = TopicPartition("t", 0)


@pytest.fixture
def cluster() -> ClusterState:
    """Two brokers, one replica of every shard, and a topic."""
    settings = BrokerSettings(
        offsets_topic_replication_factor=1, transaction_log_replication_factor=1
    )
    made = ClusterState(settings, random.Random(1), lambda: 0.0, brokers=2)
    made.topics.create("t", 1)
    return made


def offset(at: int) -> requests.OffsetToCommit:
    """An offset of t-0."""
    return requests.OffsetToCommit(topic="t", partition=0, offset=at, leader_epoch=-1, metadata="")


async def commit(cluster: ClusterState, at: int, producer_id: int | None = None) -> int:
    """Commit an offset of group ``g``, with a producer id in a transaction; return the error."""
    node = cluster.coordinator_of("g")
    assert node is not None
    common: dict[str, Any] = {
        "group_id": "g",
        "generation_id": -1,
        "member_id": "",
        "group_instance_id": None,
    }
    request: requests.Request = requests.OffsetCommit(
        **common, version=8, retention_time=None, offsets=(offset(at),)
    )
    if producer_id is not None:
        request = requests.TxnOffsetCommit(
            **common, version=3, producer_id=producer_id, offsets=(offset(at),)
        )
    answer = await node.groups.handle(request, responses.OffsetsCommitted)
    return int(answer.partitions[0].error)


def away(cluster: ClusterState) -> tuple[int, HandOver]:
    """Take the group's coordinator away; return its id and the shards to load elsewhere."""
    node = cluster.coordinator_of("g")
    assert node is not None
    return node.node_id, cluster.broker_stopped(node.node_id, answer=True)


async def test_a_transaction_that_ends_meanwhile_decides(
    cluster: ClusterState, autojump_clock: trio.testing.MockClock
) -> None:
    """A pending offset is committed or dropped even while no broker coordinates the group."""
    for number, committed in enumerate((True, False)):
        assert await commit(cluster, 10 + number, producer_id=number) == 0
        node_id, hand_over = away(cluster)
        cluster.shards.load(hand_over)
        assert cluster.coordinator_of("g") is None
        cluster.shards.complete_transaction(number, committed=committed)
        cluster.shards.load(cluster.broker_started(node_id))
        assert cluster.shards.committed("g")[TP].offset == 10


async def test_records_are_in_one_place(
    cluster: ClusterState, autojump_clock: trio.testing.MockClock
) -> None:
    """Committed offsets are found while no broker has the shard, and after it is loaded."""
    assert await commit(cluster, 5) == 0
    node_id, _ = away(cluster)
    assert cluster.coordinator_of("g") is None
    assert cluster.shards.replicas_of("g").leader == NO_LEADER
    assert cluster.shards.committed("g")[TP].offset == 5
    hand_over = cluster.broker_started(node_id)
    cluster.shards.begin_loading(hand_over)
    assert await commit(cluster, 6) == 14
    cluster.shards.load(hand_over)
    assert await commit(cluster, 6) == 0
    assert cluster.shards.committed("g")[TP].offset == 6
    assert cluster.shards.committed("unknown") == {}


async def test_an_overtaken_hand_over_loads_nothing(
    cluster: ClusterState, autojump_clock: trio.testing.MockClock
) -> None:
    """A coordinator that loses a shard before it was loaded does not load it later."""
    assert await commit(cluster, 5) == 0
    shard = cluster.shards.shard_of("g")
    first = cluster.shards.move(
        [shard], lambda replicas: cluster.live_brokers.move_leader(replicas, 1)
    )
    second = cluster.shards.move(
        [shard], lambda replicas: cluster.live_brokers.move_leader(replicas, 2)
    )
    cluster.shards.load(first)
    assert await commit(cluster, 6) == 16
    cluster.shards.load(second)
    assert await commit(cluster, 6) == 0


async def test_deleted_partitions_are_forgotten_between_coordinators(
    cluster: ClusterState, autojump_clock: trio.testing.MockClock
) -> None:
    """If a topic is deleted meanwhile, its offsets are deleted too."""
    assert await commit(cluster, 5) == 0
    node_id, _ = away(cluster)
    topic = cluster.topics.get("t")
    assert topic is not None
    cluster.delete_topic(topic)
    cluster.shards.load(cluster.broker_started(node_id))
    assert cluster.shards.committed("g") == {}


def test_shards_are_spread_over_the_brokers() -> None:
    """Each broker leads about as many; no shard has more replicas than there are brokers."""
    settings = BrokerSettings(groups=CoordinatorSettings(offsets_topic_partitions=4))
    cluster = ClusterState(settings, random.Random(1), lambda: 0.0, brokers=2)
    assert [replicas.leader for replicas in cluster.shards.replicas] == [1, 2, 1, 2]
    assert {len(replicas.node_ids) for replicas in cluster.shards.replicas} == {2}


@pytest.mark.parametrize("answer", [True, False])
async def test_observers_see_shards_move(
    cluster: ClusterState, autojump_clock: trio.testing.MockClock, answer: bool
) -> None:
    """Observers of both brokers see the move; a killed broker sends no responses."""
    observers = {node_id: RecordingObserver() for node_id in cluster.brokers}
    for node_id, observer in observers.items():
        cluster.brokers[node_id].groups.observer = observer
    led = {
        node_id: [
            n for n, replicas in enumerate(cluster.shards.replicas) if replicas.leader == node_id
        ]
        for node_id in cluster.brokers
    }
    node = cluster.coordinator_of("g")
    assert node is not None
    here, there = observers.pop(node.node_id), next(iter(observers.values()))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(node.groups.handle_parkable, join(), responses.JoinCompleted)
        await trio.testing.wait_all_tasks_blocked()
        cluster.shards.load(cluster.broker_stopped(node.node_id, answer=answer))
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
    ((_, ticket, _),) = here.requests
    ((gone, found),) = here.lost
    assert sorted(gone) == led[node.node_id]
    assert [one.ticket for one in found] == ([ticket] if answer else [])
    assert here.gained == []
    hand_over = cluster.broker_started(node.node_id)
    cluster.shards.begin_loading(hand_over)
    assert here.gained == []
    cluster.shards.load(hand_over)
    assert [sorted(shards) for shards in here.gained] == [led[node.node_id]]
    assert (there.lost, there.gained) == ([], [])


async def test_observers_see_a_shard_that_is_handed_over(
    cluster: ClusterState, autojump_clock: trio.testing.MockClock
) -> None:
    """One broker reports it as lost, the other as gained once it is loaded."""
    one, two = RecordingObserver(), RecordingObserver()
    cluster.brokers[1].groups.observer, cluster.brokers[2].groups.observer = one, two
    shard = next(n for n, replicas in enumerate(cluster.shards.replicas) if replicas.leader == 1)
    hand_over = cluster.shards.move(
        [shard], lambda replicas: cluster.live_brokers.move_leader(replicas, 2)
    )
    assert ([list(gone) for gone, _ in one.lost], two.gained) == ([[shard]], [])
    cluster.shards.load(hand_over)
    assert [list(shards) for shards in two.gained] == [[shard]]
    assert (one.gained, two.lost) == ([], [])
