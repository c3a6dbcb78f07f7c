"""CreateTopics, DeleteTopics, CreatePartitions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from tests.broker.wire import Client, connected

PATIENCE = timedelta(seconds=5)


async def create(
    client: Client, *topics: dict[str, Any], version: int = 7, validate_only: bool = False
) -> dict[str, Any]:
    """Create topics; return the result of each by name."""
    plain = {"num_partitions": -1, "replication_factor": -1, "assignments": [], "configs": []}
    answer = await client.request(
        "create_topics",
        version,
        topics=[{**plain, **topic} for topic in topics],
        timeout=PATIENCE,
        validate_only=validate_only,
    )
    return {topic.name: topic for topic in answer.topics}


def placed(*brokers: int) -> list[dict[str, Any]]:
    """A manual assignment of the partitions 0, 1, ..."""
    return [{"partition_index": number, "broker_ids": (one,)} for number, one in enumerate(brokers)]


@pytest.mark.parametrize("version", range(2, 8))
async def test_topics_are_created_in_every_version(version: int) -> None:
    """The topic exists; later versions return id, partitions and configs."""
    async with connected() as (broker, client):
        done = (await create(client, {"name": "t", "num_partitions": 3}, version=version))["t"]
        assert int(done.error_code) == 0
        assert broker.cluster.topics.partitions("t") == 3
        if version >= 5:
            assert (done.num_partitions, done.replication_factor) == (3, 1)
            assert {"cleanup.policy", "retention.bytes"} <= {one.name for one in done.configs}
        if version >= 7:
            assert done.topic_id == broker.log.topic_id("t")


async def test_each_topic_succeeds_or_fails_by_itself() -> None:
    """A refused topic does not affect another, and the message says why."""
    async with connected() as (broker, client):
        done = await create(
            client,
            {"name": "good", "configs": [{"name": "max.message.bytes", "value": "10"}]},
            {"name": "b/d"},
            {"name": "twice"},
            {"name": "twice"},
            {"name": "factor", "replication_factor": 3},
        )
        assert {name: int(one.error_code) for name, one in done.items()} == {
            "good": 0,
            "b/d": 17,
            "twice": 42,
            "factor": 38,
        }
        assert "brokers: 1, 1 up" in done["factor"].error_message
        assert broker.cluster.topics.get("twice") is None


async def test_replicas_can_be_chosen_by_the_request() -> None:
    """An assignment must name this broker for partitions 0, 1, ..., and nothing else."""
    async with connected() as (broker, client):
        done = await create(
            client,
            {"name": "good", "assignments": placed(1, 1)},
            {"name": "elsewhere", "assignments": placed(1, 2)},
            {"name": "both", "assignments": placed(1), "num_partitions": 1},
        )
        assert [int(done[name].error_code) for name in ("good", "elsewhere", "both")] == [0, 39, 42]
        assert broker.cluster.topics.partitions("good") == 2


async def test_validate_only_creates_nothing() -> None:
    """The response is complete, but no topic or partition is created."""
    async with connected() as (broker, client):
        done = await create(client, {"name": "t"}, validate_only=True)
        assert int(done["t"].error_code) == 0
        assert broker.cluster.topics.get("t") is None


@pytest.mark.parametrize("version", [1, 5])
async def test_topics_are_deleted_by_name(version: int) -> None:
    """An unknown topic has its own error."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        answer = await client.request(
            "delete_topics", version, topic_names=["t", "u"], timeout=PATIENCE
        )
        assert [(one.name, int(one.error_code)) for one in answer.responses] == [("t", 0), ("u", 3)]
        assert broker.log.topic_id("t") is None


async def test_topics_are_deleted_by_id() -> None:
    """From version 6 on, a topic is named by name or id, and the response has both."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        await broker.create_topic("u")
        topic_id = broker.log.topic_id("t")
        answer = await client.request(
            "delete_topics",
            6,
            topics=[
                {"name": None, "topic_id": topic_id},
                {"name": "u", "topic_id": None},
                {"name": None, "topic_id": UUID(int=5)},
            ],
            timeout=PATIENCE,
        )
        assert [int(one.error_code) for one in answer.responses] == [0, 0, 100]
        assert (answer.responses[0].name, answer.responses[0].topic_id) == ("t", topic_id)
        assert list(broker.cluster.topics) == []


async def test_a_topic_that_is_named_twice_is_not_deleted() -> None:
    """By names, by ids or by both it is answered once; so is a topic with a wrong name and id."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        await broker.create_topic("u")
        topic_id, other = broker.log.topic_id("t"), broker.log.topic_id("u")

        async def delete(*topics: tuple[str | None, UUID | None]) -> list[tuple[Any, ...]]:
            wanted = [{"name": name, "topic_id": named} for name, named in topics]
            answer = await client.request("delete_topics", 6, topics=wanted, timeout=PATIENCE)
            return [(one.name, one.topic_id, int(one.error_code)) for one in answer.responses]

        for topics in ([("t", None)], [(None, topic_id)], [("nowhere", None)]):
            assert await delete(*topics, *topics) == [(*topics[0], 42)]
        for wrong in ((None, None), ("t", topic_id), ("t", other)):
            assert await delete(wrong) == [(*wrong, 42)]
        for both in ([("t", None), (None, topic_id)], [(None, topic_id), ("t", None)]):
            assert await delete(*both) == [("t", topic_id, 42)]
        assert await delete(("t", None), (None, topic_id), (None, topic_id)) == [
            ("t", topic_id, 42),
            (None, topic_id, 42),
        ]
        assert await delete(("t", None), ("t", None), ("u", None)) == [
            ("t", None, 42),
            ("u", other, 0),
        ]
        answer = await client.request("delete_topics", 4, topic_names=["t", "t"], timeout=PATIENCE)
        assert [(one.name, int(one.error_code)) for one in answer.responses] == [("t", 42)]
        assert await delete(("t", None)) == [("t", topic_id, 0)]


@pytest.mark.parametrize("refused", [("t", UUID(int=5)), ("t", None)])
async def test_a_refused_name_does_not_hide_its_topics_id(refused: tuple[str, UUID | None]) -> None:
    """A topic that is named by its id is deleted, though its name is refused beside it."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        topic_id = broker.log.topic_id("t")
        named = [refused, *([refused] if refused[1] is None else []), (None, topic_id)]
        answer = await client.request(
            "delete_topics",
            6,
            topics=[{"name": name, "topic_id": one} for name, one in named],
            timeout=PATIENCE,
        )
        assert [(one.name, one.topic_id, int(one.error_code)) for one in answer.responses] == [
            (*refused, 42),
            ("t", topic_id, 0),
        ]
        assert broker.log.topic_id("t") is None


async def test_a_coordinators_topic_is_neither_deleted_nor_extended() -> None:
    """It is listed, so the error is that it may not be, not that there is none."""
    name = "__consumer_offsets"
    async with connected() as (broker, client):
        await client.request("find_coordinator", 3, key="g", key_type=0)
        topic_id = broker.cluster.internal_topics[name].topic_id
        for named in ({"name": name, "topic_id": None}, {"name": None, "topic_id": topic_id}):
            answer = await client.request("delete_topics", 6, topics=[named], timeout=PATIENCE)
            assert int(answer.responses[0].error_code) == 44
            assert name in answer.responses[0].error_message
        answer = await client.request(
            "create_partitions",
            3,
            topics=[{"name": name, "count": 60, "assignments": None}],
            timeout=PATIENCE,
            validate_only=False,
        )
        assert int(answer.results[0].error_code) == 44
        assert name in broker.cluster.internal_topics


async def test_partitions_are_added() -> None:
    """CreatePartitions has the new total; a topic cannot shrink."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        for count, validate_only, code, has in (
            (4, True, 0, 1),
            (4, False, 0, 4),
            (3, False, 37, 4),
        ):
            answer = await client.request(
                "create_partitions",
                3,
                topics=[{"name": "t", "count": count, "assignments": None}],
                timeout=PATIENCE,
                validate_only=validate_only,
            )
            assert [int(one.error_code) for one in answer.results] == [code]
            assert broker.cluster.topics.partitions("t") == has
