"""Partitions of several brokers: leaders, errors of other brokers, epochs."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import trio
import trio.testing

from kgroup.broker import EmbeddedCluster
from tests.broker.clusters import (
    FENCED_EPOCH,
    NOT_COORDINATOR,
    NOT_LEADER,
    T0,
    T1,
    T2,
    UNKNOWN_EPOCH,
    beat,
    fetch,
    fetched,
    find,
    leaders,
    metadata,
    to,
)
from tests.broker.record_batches import batch


async def test_every_broker_describes_the_whole_cluster(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """Every broker returns the same brokers, leaders and coordinators, spread evenly."""
    for node_id in cluster.nodes:
        client = await to(cluster, node_id)
        response = await metadata(client, "t")
        assert [(b.node_id, b.host, b.port) for b in response.brokers] == [
            (1, "broker-1", 9092),
            (2, "broker-2", 9092),
            (3, "broker-3", 9092),
        ]
        assert await leaders(client) == [(0, 1, 0), (0, 2, 0), (0, 3, 0)]
        assert [list(p.replica_nodes) for p in response.topics[0].partitions] == [
            [1, 2, 3],
            [2, 3, 1],
            [3, 1, 2],
        ]
        # Java's hashes of these ids: 103, 104, 0, 1871882; there are 50 shards.
        for group, at in (("g", 1), ("h", 2), ("", 1), ("g\U0001f600", 3)):
            assert await find(client, group) == (0, at)
            assert cluster.coordinator_of(group) == at
        described = await client.request(
            "describe_cluster", 0, include_cluster_authorized_operations=False
        )
        assert [b.broker_id for b in described.brokers] == [1, 2, 3]
    assert cluster.bootstrap_servers == "broker-1:9092,broker-2:9092,broker-3:9092"
    assert [cluster.leader_of(tp) for tp in (T0, T1, T2)] == [1, 2, 3]


async def test_a_broker_answers_for_what_it_leads(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """Other brokers refuse requests for partitions and groups that they do not lead."""
    coordinator = cluster.coordinator_of("g")
    for node_id in cluster.nodes:
        client = await to(cluster, node_id)
        for number in range(3):
            wrong = 0 if node_id == number + 1 else NOT_LEADER
            assert await fetched(client, number) == wrong
            produced = await client.request(
                "produce",
                9,
                transactional_id=None,
                acks=-1,
                timeout=timedelta(seconds=1),
                topic_data=[
                    {"name": "t", "partition_data": [{"index": number, "records": batch(b"a")}]}
                ],
            )
            assert int(produced.responses[0].partition_responses[0].error_code) == wrong
            listed = await client.request(
                "list_offsets",
                1,
                replica_id=-1,
                topics=[
                    {"name": "t", "partitions": [{"partition_index": number, "timestamp": -1}]}
                ],
            )
            assert int(listed.topics[0].partitions[0].error_code) == wrong
        assert await beat(client) == (25 if node_id == coordinator else NOT_COORDINATOR)
    assert [cluster.log.end_offset(tp) for tp in (T0, T1, T2)] == [1, 1, 1]


async def test_a_waiting_fetch_ends_when_leadership_moves(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """It is answered at once; the epoch rises, and older or later epochs are refused."""
    old, new = await to(cluster, 1), await to(cluster, 2)
    await old.send("fetch", 11, **fetch(0, wait=60))
    await trio.testing.wait_all_tasks_blocked()
    await cluster.move_leader(T0, 2)
    answer = await old.answer("fetch", 11)
    assert int(answer.responses[0].partitions[0].error_code) == NOT_LEADER
    assert trio.current_time() == 0
    assert (await leaders(old))[0] == (0, 2, 1)
    assert [await fetched(new, 0, epoch) for epoch in (-1, 0, 1, 2)] == [
        0,
        FENCED_EPOCH,
        0,
        UNKNOWN_EPOCH,
    ]
    assert await fetched(old, 0, 0) == FENCED_EPOCH


async def test_a_refusal_names_the_leader(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """Later versions of Produce and Fetch name the leader and its address (KIP-951)."""
    client = await to(cluster, 2)
    answers = []
    for version in (9, 10):
        data = [{"index": number, "records": batch(b"a")} for number in (0, 1)]
        answers.append(
            await client.request(
                "produce",
                version,
                transactional_id=None,
                acks=-1,
                timeout=timedelta(seconds=1),
                topic_data=[{"name": "t", "partition_data": data}],
            )
        )
    assert not hasattr(answers[0], "node_endpoints")
    refused, taken = answers[1].responses[0].partition_responses
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (1, 0)
    assert taken.current_leader.leader_id == -1
    assert [(one.node_id, one.host) for one in answers[1].node_endpoints] == [(1, "broker-1")]
    wanted = fetch(0, epoch=0)
    topic_id = cluster.log.topic_id("t")
    wanted["topics"] = [{"topic_id": topic_id, "partitions": wanted["topics"][0]["partitions"]}]
    del wanted["replica_id"]
    await cluster.move_leader(T0, 3)
    answer = await client.request("fetch", 16, **wanted)
    part = answer.responses[0].partitions[0]
    assert int(part.error_code) == FENCED_EPOCH
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (3, 1)
    assert [one.node_id for one in answer.node_endpoints] == [3]


async def test_epochs_say_where_records_of_one_leader_end(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """OffsetForLeaderEpoch and ListOffsets return the leader epoch of a record."""
    await cluster.append("t", 0, [b"a", b"b"])
    await cluster.move_leader(T0, 3)
    await cluster.move_leader(T0, 2)
    await cluster.append("t", 0, [b"c"])
    client = await to(cluster, 2)
    ends = []
    for epoch in range(4):
        partition = {"partition": 0, "current_leader_epoch": 2, "leader_epoch": epoch}
        answer = await client.request(
            "offset_for_leader_epoch",
            3,
            replica_id=-1,
            topics=[{"topic": "t", "partitions": [partition]}],
        )
        response = answer.topics[0].partitions[0]
        ends.append((response.leader_epoch, response.end_offset))
    assert ends == [(0, 2), (0, 2), (2, 3), (-1, -1)]
    listed = []
    for timestamp in (-2, -1):
        partition = {"partition_index": 0, "current_leader_epoch": 2, "timestamp": timestamp}
        answer = await client.request(
            "list_offsets",
            4,
            replica_id=-1,
            isolation_level=0,
            topics=[{"name": "t", "partitions": [partition]}],
        )
        response = answer.topics[0].partitions[0]
        listed.append((response.offset, response.leader_epoch))
    assert listed == [(0, 0), (3, 2)]


async def test_replicas_can_be_chosen(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """CreateTopics and CreatePartitions place replicas as the request says."""
    client = await to(cluster, 2)

    async def create(**layout: Any) -> tuple[int, int]:
        requested = {
            "num_partitions": -1,
            "replication_factor": -1,
            "assignments": (),
            "configs": (),
        }
        created = await client.request(
            "create_topics",
            5,
            topics=[{"name": f"n{len(list(cluster.cluster.topics))}", **requested, **layout}],
            timeout=timedelta(seconds=1),
            validate_only=False,
        )
        return int(created.topics[0].error_code), created.topics[0].replication_factor

    chosen = [{"partition_index": n, "broker_ids": [3 - n, 1]} for n in (0, 1)]
    assert await create(assignments=chosen) == (0, 2)
    assert [leader for _, leader, _ in await leaders(client, "n1")] == [3, 2]
    assert (await create(assignments=[{"partition_index": 0, "broker_ids": [9]}]))[0] == 39
    assert (await create(assignments=[{"partition_index": 1, "broker_ids": [1]}]))[0] == 39
    uneven = [{"partition_index": 0, "broker_ids": [1]}, chosen[1]]
    assert (await create(assignments=uneven))[0] == 39
    assert (await create(num_partitions=1, replication_factor=4))[0] == 38
    for count, assignments, error in ((3, [[1, 2]], 0), (5, [[1, 2]], 39), (4, None, 0)):
        grown = await client.request(
            "create_partitions",
            3,
            topics=[
                {
                    "name": "n1",
                    "count": count,
                    "assignments": assignments
                    and [{"broker_ids": replicas} for replicas in assignments],
                }
            ],
            timeout=timedelta(seconds=1),
            validate_only=False,
        )
        assert int(grown.results[0].error_code) == error
    assert [leader for _, leader, _ in await leaders(client, "n1")][:3] == [3, 2, 1]
