"""Java's command-line tools against the embedded broker: topics, configs, offsets of groups."""

from __future__ import annotations

from functools import partial

import pytest

from kgroup.broker import EmbeddedBroker, serve
from kgroup.types import TopicPartition
from tests.broker.interop.tools import printed, table, together

pytestmark = pytest.mark.real_kafka

RECORDS = 10


async def test_topics() -> None:
    """Topics are created, described, listed, extended, configured and deleted."""
    async with serve() as broker:
        topics = partial(printed, broker, "kafka-topics")
        configs = partial(printed, broker, "kafka-configs", "--topic", "t")
        await topics("--create", "--topic", "t", "--partitions", "2", "--config", "retention.ms=7")
        listed, described = await together(
            partial(topics, "--list"),
            partial(topics, "--describe", "--topic", "t"),
        )
        assert listed.split() == ["t"]
        title, *partitions = described.splitlines()
        assert "PartitionCount: 2" in title
        assert "retention.ms=7" in title
        assert [line.split("\t")[2:6] for line in partitions] == [
            [f"Partition: {number}", "Leader: 1", "Replicas: 1", "Isr: 1"] for number in range(2)
        ]
        await together(
            partial(topics, "--alter", "--topic", "t", "--partitions", "3"),
            partial(configs, "--alter", "--add-config", "max.message.bytes=99,segment.ms=8"),
        )
        assert broker.cluster.topics.partitions("t") == 3
        found = await configs("--describe")
        assert "max.message.bytes=99 " in found
        assert "DEFAULT_CONFIG:message.max.bytes=1048588" in found
        assert "segment.ms=8 " in found
        assert "retention.ms=7 " in found
        await topics("--delete", "--topic", "t")
        assert broker.cluster.topics.get("t") is None


async def committed(broker: EmbeddedBroker) -> dict[int, int]:
    """The offsets that group g has committed for t, by partition."""
    return {tp.partition: at.offset for tp, at in (await broker.committed("g")).items()}


async def test_offsets_of_a_group() -> None:
    """Offsets are reset in every way, described with their lag, and deleted with the group."""
    async with serve() as broker:
        await broker.create_topic("t", 3)
        for number in range(3):
            await broker.append("t", number, [b"x"] * RECORDS)
        groups = partial(printed, broker, "kafka-consumer-groups")
        reset = partial(groups, "--reset-offsets", "--group", "g", "--topic")
        for topic, how, wanted in (
            ("t", ("--to-earliest",), {0: 0, 1: 0, 2: 0}),
            ("t:0", ("--to-offset", "5"), {0: 5, 1: 0, 2: 0}),
            ("t", ("--shift-by", "2"), {0: 7, 1: 2, 2: 2}),
        ):
            moved = table(await reset(topic, *how, "--execute"))
            assert await committed(broker) == wanted
            assert all(wanted[int(row["PARTITION"])] == int(row["NEW-OFFSET"]) for row in moved)
        described, states = await together(
            partial(groups, "--describe", "--group", "g"),
            partial(groups, "--list", "--state"),
        )
        assert [(row["CURRENT-OFFSET"], row["LAG"]) for row in table(described)] == [
            ("7", "3"),
            ("2", "8"),
            ("2", "8"),
        ]
        assert table(states) == [{"GROUP": "g", "STATE": "Empty"}]
        deleted = await groups("--delete-offsets", "--group", "g", "--topic", "t:0")
        assert deleted.split()[-3:] == ["t", "0", "Successful"]
        assert TopicPartition("t", 0) not in await broker.committed("g")
        found = await groups("--delete", "--group", "g")
        assert "Deletion of requested consumer groups ('g') was successful" in found
        assert await broker.groups() == ()
