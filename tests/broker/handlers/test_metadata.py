"""Metadata, DescribeCluster, FindCoordinator."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from tests.broker.wire import Client, connected

PLAIN = {"include_topic_authorized_operations": False}


async def metadata(client: Client, version: int, *names: str, create: bool = True) -> Any:
    """Request metadata of topics by name."""
    fields: dict[str, Any] = {"topics": [{"name": name} for name in names]}
    if version >= 4:
        fields["allow_auto_topic_creation"] = create
    if version >= 8:
        fields["include_topic_authorized_operations"] = False
    if 8 <= version <= 10:
        fields["include_cluster_authorized_operations"] = False
    if version >= 10:
        for topic in fields["topics"]:
            topic["topic_id"] = None
    return await client.request("metadata", version, **fields)


async def test_all_topics() -> None:
    """Null means all topics; in version 0 an empty list does, later it means none."""
    async with connected() as (broker, client):
        await broker.create_topic("b", 2)
        await broker.create_topic("a")
        assert [t.name for t in (await client.request("metadata", 0, topics=[])).topics] == [
            "a",
            "b",
        ]
        assert [t.name for t in (await client.request("metadata", 1, topics=None)).topics] == [
            "a",
            "b",
        ]
        assert (await client.request("metadata", 1, topics=[])).topics == ()


@pytest.mark.parametrize("version", range(14))
async def test_a_topic_in_every_version(version: int) -> None:
    """Each version has name, partitions, leader and replicas; from 10 on, the id too."""
    async with connected(node_id=7, broker_rack="r") as (broker, client):
        await broker.create_topic("t", 2)
        answer = await metadata(client, version, "t")
        (topic,) = answer.topics
        assert (int(topic.error_code), topic.name) == (0, "t")
        assert [one.partition_index for one in topic.partitions] == [0, 1]
        for one in topic.partitions:
            assert (one.leader_id, one.replica_nodes, one.isr_nodes) == (7, (7,), (7,))
        (node,) = answer.brokers
        assert (node.node_id, node.host, node.port) == (7, broker.host, broker.port)
        if version >= 1:
            assert (node.rack, answer.controller_id) == ("r", 7)
        if version >= 10:
            assert topic.topic_id == broker.log.topic_id("t")


@pytest.mark.parametrize(
    ("version", "wanted", "enabled", "created"),
    [
        (1, True, True, True),
        (1, True, False, False),
        (5, True, True, True),
        (5, False, True, False),
        (5, True, False, False),
    ],
)
async def test_topics_are_created_if_requested_and_allowed(
    version: int, wanted: bool, enabled: bool, created: bool
) -> None:
    """Up to version 3 each request may create topics; later requests have a field for it.

    As in Kafka, the response to the request that creates a topic does not have it yet.
    """
    settings = {"auto_create_topics_enable": enabled, "num_partitions": 3}
    async with connected(**settings) as (broker, client):
        for again in (False, True):
            (topic,) = (await metadata(client, version, "new", create=wanted)).topics
            assert int(topic.error_code) == (0 if created and again else 3)
            assert len(topic.partitions) == (3 if created and again else 0)
        assert (broker.log.topic_id("new") is not None) == created


@pytest.mark.parametrize("create", [True, False])
async def test_a_name_that_cannot_be_created_is_an_error(create: bool) -> None:
    """An invalid name is INVALID_TOPIC_EXCEPTION, whether the topic would be created or not."""
    async with connected() as (_, client):
        (topic,) = (await metadata(client, 5, "a/b", create=create)).topics
        assert int(topic.error_code) == 17


async def test_topics_are_found_by_id() -> None:
    """From version 10 on, a topic can be named by its id; an unknown id creates nothing."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        for topic_id, code, name in (
            (broker.log.topic_id("t"), 0, "t"),
            (UUID(int=5), 100, None),
        ):
            requested = [{"name": None, "topic_id": topic_id}]
            answer = await client.request(
                "metadata", 12, topics=requested, allow_auto_topic_creation=True, **PLAIN
            )
            (topic,) = answer.topics
            assert (int(topic.error_code), topic.name) == (code, name)


@pytest.mark.parametrize("version", range(6))
@pytest.mark.parametrize("key_type", [0, 1])
async def test_the_coordinator_is_found_in_every_version(version: int, key_type: int) -> None:
    """Groups and transactional ids have one; from version 4 on, a request may name several."""
    async with connected() as (broker, client):
        if version >= 4:
            answer = await client.request(
                "find_coordinator", version, key_type=key_type, coordinator_keys=["a", "b"]
            )
            assert [one.key for one in answer.coordinators] == ["a", "b"]
            found = answer.coordinators
        else:
            kind = {"key_type": key_type} if version else {}
            found = [await client.request("find_coordinator", version, key="a", **kind)]
        for one in found:
            assert (int(one.error_code), one.node_id) == (0, 1)
            assert (one.host, one.port) == (broker.host, broker.port)


async def test_an_unknown_kind_of_coordinator() -> None:
    """An unknown key type is refused."""
    async with connected() as (_, client):
        answer = await client.request("find_coordinator", 3, key="a", key_type=2)
        assert (int(answer.error_code), answer.node_id, answer.port) == (42, -1, -1)


async def test_the_cluster_is_described() -> None:
    """Brokers and the controller are listed; a request for controllers only is refused."""
    async with connected() as (broker, client):
        plain = {"include_cluster_authorized_operations": False}
        answer = await client.request("describe_cluster", 0, **plain)
        assert answer.cluster_id == broker.cluster.cluster_id
        assert [(one.broker_id, one.port) for one in answer.brokers] == [(1, broker.port)]
        refused = await client.request("describe_cluster", 1, endpoint_type=2, **plain)
        assert (int(refused.error_code), refused.brokers) == (114, ())


async def described_partitions(
    client: Client, *names: str, limit: int = 2000, cursor: tuple[str, int] | None = None
) -> tuple[dict[str, list[int]], tuple[str, int] | None]:
    """Partitions by topic in a DescribeTopicPartitions response, and the cursor to continue at."""
    answer = await client.request(
        "describe_topic_partitions",
        0,
        topics=[{"name": name} for name in names],
        response_partition_limit=limit,
        cursor=cursor and {"topic_name": cursor[0], "partition_index": cursor[1]},
    )
    for topic in answer.topics:
        for part in topic.partitions:
            assert (part.eligible_leader_replicas, part.last_known_elr) == ((), ())
    following = answer.next_cursor
    return (
        {one.name: [part.partition_index for part in one.partitions] for one in answer.topics},
        following and (following.topic_name, following.partition_index),
    )


async def test_partitions_are_described_page_by_page() -> None:
    """A response has no more partitions than the limit, and a cursor to the next ones."""
    async with connected() as (broker, client):
        await broker.create_topic("a", 3)
        await broker.create_topic("b", 2)
        assert await described_partitions(client) == ({"a": [0, 1, 2], "b": [0, 1]}, None)
        assert await described_partitions(client, "b", "b") == ({"b": [0, 1]}, None)
        assert await described_partitions(client, limit=2) == ({"a": [0, 1]}, ("a", 2))
        assert await described_partitions(client, limit=1, cursor=("a", 2)) == (
            {"a": [2]},
            ("b", 0),
        )
        assert await described_partitions(client, limit=9, cursor=("b", 1)) == ({"b": [1]}, None)


async def test_topics_that_cannot_be_described() -> None:
    """An unknown name and an invalid name get an error."""
    async with connected() as (_, client):
        answer = await client.request(
            "describe_topic_partitions",
            0,
            topics=[{"name": "a/b"}, {"name": "nothing"}],
            response_partition_limit=9,
            cursor=None,
        )
        assert [int(topic.error_code) for topic in answer.topics] == [17, 3]


@pytest.mark.parametrize("cursor", [("a", -1), ("b", 0)])
async def test_cursors_that_are_refused(cursor: tuple[str, int]) -> None:
    """A cursor must be at a topic that the request names, and at a partition that can be."""
    async with connected() as (broker, client):
        await broker.create_topic("a", 1)
        await broker.create_topic("b", 1)
        answer = await client.request(
            "describe_topic_partitions",
            0,
            topics=[{"name": "a"}],
            response_partition_limit=9,
            cursor={"topic_name": cursor[0], "partition_index": cursor[1]},
        )
        assert [int(topic.error_code) for topic in answer.topics] == [42]
