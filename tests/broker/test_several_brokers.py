"""Several brokers in virtual time: who answers what, what moves, a group that lives through it."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
import trio
import trio.testing

from kgroup.broker import EmbeddedCluster, in_memory_cluster
from kgroup.broker.groups.java import shard_of
from kgroup.errors import UsageError
from kgroup.group import ConsumerGroup
from kgroup.model import OffsetAndMetadata, TopicPartition
from kgroup.testing.memory import config_for, memory_environment
from tests.broker.handlers.test_transactions import Producer
from tests.broker.made import batch
from tests.broker.test_connection import join
from tests.broker.wire import Client

NOT_LEADER, FENCED_EPOCH, UNKNOWN_EPOCH = 6, 74, 75
NOT_AVAILABLE, NOT_COORDINATOR, LOADING = 15, 16, 14
LEADER_NOT_AVAILABLE = 5
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
SETTINGS = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Three brokers and a topic with a partition on each, and replicas on all."""
    async with in_memory_cluster(3, SETTINGS, random=random.Random(1)) as made:
        await made.create_topic("t", 3, replication_factor=3)
        yield made


async def to(cluster: EmbeddedCluster, node_id: int) -> Client:
    """A connection to one broker."""
    node = cluster.nodes[node_id]
    return Client(await cluster.open_stream(node.host, node.port))


async def metadata(client: Client, *topics: str) -> Any:
    """What a broker tells of topics."""
    return await client.ask(
        "metadata",
        9,
        topics=[{"name": topic} for topic in topics],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


async def leaders(client: Client, topic: str = "t") -> list[tuple[int, int, int]]:
    """(error, leader, leader epoch) of each partition of a topic."""
    (told,) = (await metadata(client, topic)).topics
    return [(int(p.error_code), p.leader_id, p.leader_epoch) for p in told.partitions]


def fetch(number: int, epoch: int = -1, wait: int = 0, offset: int = 0) -> dict[str, Any]:
    """A Fetch of one partition, v11."""
    partition = {
        "partition": number,
        "current_leader_epoch": epoch,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": 1000,
    }
    return {
        "replica_id": -1,
        "max_wait": timedelta(seconds=wait),
        "min_bytes": 1,
        "isolation_level": 0,
        "topics": [{"topic": "t", "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }


async def fetched(client: Client, number: int, epoch: int = -1) -> int:
    """The error of a Fetch."""
    answer = await client.ask("fetch", 11, **fetch(number, epoch))
    return int(answer.responses[0].partitions[0].error_code)


async def find(client: Client, key: str, kind: int = 0) -> tuple[int, int]:
    """(error, broker) of a FindCoordinator."""
    answer = await client.ask("find_coordinator", 4, key_type=kind, coordinator_keys=[key])
    return int(answer.coordinators[0].error_code), answer.coordinators[0].node_id


async def beat(client: Client, group: str = "g") -> int:
    """The error of a heartbeat of nobody."""
    answer = await client.ask("heartbeat", 4, group_id=group, generation_id=1, member_id="m")
    return int(answer.error_code)


async def test_every_broker_tells_of_all(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """Brokers, leaders and coordinators are the same whoever is asked, and spread evenly."""
    for node_id in cluster.nodes:
        client = await to(cluster, node_id)
        told = await metadata(client, "t")
        assert [(b.node_id, b.host, b.port) for b in told.brokers] == [
            (1, "broker-1", 9092),
            (2, "broker-2", 9092),
            (3, "broker-3", 9092),
        ]
        assert await leaders(client) == [(0, 1, 0), (0, 2, 0), (0, 3, 0)]
        assert [list(p.replica_nodes) for p in told.topics[0].partitions] == [
            [1, 2, 3],
            [2, 3, 1],
            [3, 1, 2],
        ]
        for group in ("g", "h", "", "g\U0001f600"):
            at = shard_of(group, 50) % 3 + 1
            assert await find(client, group) == (0, at)
            assert cluster.coordinator_of(group) == at
        described = await client.ask(
            "describe_cluster", 0, include_cluster_authorized_operations=False
        )
        assert [b.broker_id for b in described.brokers] == [1, 2, 3]
    assert cluster.bootstrap_servers == "broker-1:9092,broker-2:9092,broker-3:9092"
    assert [cluster.leader_of(tp) for tp in (T0, T1, T2)] == [1, 2, 3]


async def test_a_broker_answers_for_what_it_leads(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """Records and groups are the leader's; every other broker sends the client on."""
    coordinator = cluster.coordinator_of("g")
    for node_id in cluster.nodes:
        client = await to(cluster, node_id)
        for number in range(3):
            wrong = 0 if node_id == number + 1 else NOT_LEADER
            assert await fetched(client, number) == wrong
            produced = await client.ask(
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
            listed = await client.ask(
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


async def test_a_waiting_fetch_hears_that_leadership_moves(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """It is answered at once; the epoch rises, and an older or later one is refused."""
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


async def test_a_refusal_tells_who_leads(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """Produce and Fetch of versions that can say it name the leader and its address (KIP-951)."""
    client = await to(cluster, 2)
    answers = []
    for version in (9, 10):
        data = [{"index": number, "records": batch(b"a")} for number in (0, 1)]
        answers.append(
            await client.ask(
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
    answer = await client.ask("fetch", 16, **wanted)
    part = answer.responses[0].partitions[0]
    assert int(part.error_code) == FENCED_EPOCH
    assert (part.current_leader.leader_id, part.current_leader.leader_epoch) == (3, 1)
    assert [one.node_id for one in answer.node_endpoints] == [3]


async def test_epochs_say_where_records_of_one_leader_end(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """OffsetForLeaderEpoch and ListOffsets tell by which leader a record was taken."""
    await cluster.append("t", 0, [b"a", b"b"])
    await cluster.move_leader(T0, 3)
    await cluster.move_leader(T0, 2)
    await cluster.append("t", 0, [b"c"])
    client = await to(cluster, 2)
    ends = []
    for epoch in range(4):
        partition = {"partition": 0, "current_leader_epoch": 2, "leader_epoch": epoch}
        answer = await client.ask(
            "offset_for_leader_epoch",
            3,
            replica_id=-1,
            topics=[{"topic": "t", "partitions": [partition]}],
        )
        told = answer.topics[0].partitions[0]
        ends.append((told.leader_epoch, told.end_offset))
    assert ends == [(0, 2), (0, 2), (2, 3), (-1, -1)]
    listed = await client.ask(
        "list_offsets",
        4,
        replica_id=-1,
        isolation_level=0,
        topics=[
            {
                "name": "t",
                "partitions": [
                    {"partition_index": 0, "current_leader_epoch": 2, "timestamp": timestamp}
                    for timestamp in (-2, -1)
                ],
            }
        ],
    )
    assert [(p.offset, p.leader_epoch) for p in listed.topics[0].partitions] == [(0, 0), (3, 2)]


async def test_what_a_stopped_broker_leads_moves_to_replicas(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """Others take over at once; what has one replica waits, and preferred leaders come back."""
    await cluster.create_topic("single", 3)
    client = await to(cluster, 2)
    await cluster.nodes[1].stop()
    assert [b.node_id for b in (await metadata(client)).brokers] == [2, 3]
    assert await leaders(client) == [(0, 2, 1), (0, 2, 0), (0, 3, 0)]
    assert (LEADER_NOT_AVAILABLE, -1, 1) in await leaders(client, "single")
    (told,) = (await metadata(client, "t")).topics
    assert list(told.partitions[0].offline_replicas) == [1]
    assert list(told.partitions[0].isr_nodes) == [2, 3]
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
    """When all have gone, nobody leads until the one comes back that has every record."""
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


@pytest.mark.parametrize("killed", [False, True])
async def test_a_coordinator_fails_over(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock, killed: bool
) -> None:
    """Stopped it sends those who wait away, killed it answers nobody; what was written stays."""
    at = cluster.coordinator_of("g")
    assert at is not None
    client = await to(cluster, at)
    part = {"partition_index": 1, "committed_offset": 7, "committed_metadata": "m"}
    await client.ask(
        "offset_commit",
        8,
        group_id="g",
        generation_id_or_member_epoch=-1,
        member_id="",
        group_instance_id=None,
        topics=[{"name": "t", "partitions": [{**part, "committed_leader_epoch": -1}]}],
    )
    first, second = await to(cluster, at), await to(cluster, at)
    await first.ask("join_group", 3, **join())
    await second.send("join_group", 3, **join())
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
    await other.send("join_group", 3, **join())
    assert int((await other.answer("join_group", 3)).error_code) == LOADING
    await trio.sleep(1)
    assert (await other.ask("join_group", 3, **join())).error_code == 0
    assert await cluster.committed("g") == {T1: OffsetAndMetadata(7, -1, "m")}
    assert cluster.coordinator_epoch("g") == 1
    assert [group.group_id for group in await cluster.groups()] == ["g"]


async def test_a_group_without_a_coordinator_keeps_its_offsets(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """With one replica a group waits for its broker; deleted topics are gone even so."""
    settings = {**SETTINGS, "offsets.topic.replication.factor": "1"}
    async with in_memory_cluster(2, settings) as cluster:
        await cluster.create_topic("t", 1)
        await cluster.create_topic("u", 1)
        at = cluster.coordinator_of("g")
        assert at is not None
        client = await to(cluster, at)
        part = {"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}
        await client.ask(
            "offset_commit",
            5,
            group_id="g",
            generation_id_or_member_epoch=-1,
            member_id="",
            topics=[{"name": name, "partitions": [part]} for name in ("t", "u")],
        )
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
    """Two members read everything once while the coordinator moves, dies and comes back."""
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
        environment = memory_environment(cluster, seed=seed)
        async with ConsumerGroup(config, environment=environment) as group:
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


async def test_the_same_seed_gives_the_same_ids(autojump_clock: trio.testing.MockClock) -> None:
    """Nothing of several brokers is drawn from anything but the injected choices."""

    async def play() -> tuple[object, ...]:
        async with in_memory_cluster(3, SETTINGS, random=random.Random(7)) as cluster:
            at = cluster.coordinator_of("g")
            assert at is not None
            client = await to(cluster, at)
            given = (await client.ask("join_group", 4, **join())).member_id
            return cluster.cluster.cluster_id, given, trio.current_time()

    first = await play()
    assert (await play())[:2] == first[:2]


async def test_mistakes_are_told(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """What a test cannot mean is refused in words."""
    with pytest.raises(UsageError, match="no broker 9"):
        await cluster.move_leader(T0, 9)
    with pytest.raises(UsageError, match="no t-3"):
        cluster.leader_of(TopicPartition("t", 3))
    with pytest.raises(UsageError, match="no shard 50"):
        await cluster.move_coordinator(50, 1)
    with pytest.raises(ValueError, match="brokers=0"):
        async with in_memory_cluster(0):
            pass
    with pytest.raises(ConnectionRefusedError):
        await cluster.open_stream("nowhere", 1)
    assert "broker 1 at broker-1:9092, up" in repr(cluster)


async def test_a_transaction_outlives_its_coordinator(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """Another broker ends it; records on other brokers and offsets of a group get the outcome."""
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


async def test_an_open_transaction_is_aborted_by_who_has_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its time-out runs out while its coordinator is away, and is noticed when it is back."""
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


async def test_replicas_can_be_chosen(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """CreateTopics and CreatePartitions put partitions where they are told to."""
    client = await to(cluster, 2)

    async def create(**layout: Any) -> tuple[int, int]:
        asked = {"num_partitions": -1, "replication_factor": -1, "assignments": (), "configs": ()}
        created = await client.ask(
            "create_topics",
            5,
            topics=[{"name": f"n{len(list(cluster.cluster.topics))}", **asked, **layout}],
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
        grown = await client.ask(
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


async def test_a_broker_that_stops_answers_what_it_is_serving(
    cluster: EmbeddedCluster, autojump_clock: trio.testing.MockClock
) -> None:
    """A slow request is answered first; one that can reach nobody is waited for up to 5 s."""
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
    """What is injected, cut or slowed at one broker is nothing to the others."""
    at = cluster.coordinator_of("g")
    assert at is not None
    here, there = await to(cluster, at), await to(cluster, at % 3 + 1)
    cluster.nodes[at].inject("heartbeat", 27)
    assert [await beat(there), await beat(here), await beat(here)] == [NOT_COORDINATOR, 27, 25]
    assert cluster.nodes[at].cut_connections() == 1
    assert await here.is_closed()
    assert await beat(there) == NOT_COORDINATOR
