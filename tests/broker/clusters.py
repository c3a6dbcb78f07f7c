"""Three brokers in memory, connections to each of them, and requests that several tests send."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any, Final

from kgroup.broker import EmbeddedCluster, in_memory_cluster
from kgroup.types import TopicPartition
from tests.broker.wire import Client

LEADER_NOT_AVAILABLE, NOT_LEADER, FENCED_EPOCH, UNKNOWN_EPOCH = 5, 6, 74, 75
LOADING, NOT_AVAILABLE, NOT_COORDINATOR = 14, 15, 16
T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
SETTINGS: Final = {"group.initial.rebalance.delay.ms": "0", "auto.create.topics.enable": "false"}


@asynccontextmanager
async def three_brokers() -> AsyncIterator[EmbeddedCluster]:
    """Three brokers and a topic with a partition on each, and replicas on all."""
    async with in_memory_cluster(3, SETTINGS, random=random.Random(1)) as made:
        await made.create_topic("t", 3, replication_factor=3)
        yield made


async def to(cluster: EmbeddedCluster, node_id: int) -> Client:
    """Open a connection to one broker."""
    node = cluster.nodes[node_id]
    return Client(await cluster.open_stream(node.host, node.port))


async def metadata(client: Client, *topics: str) -> Any:
    """Request a broker's Metadata of topics."""
    return await client.request(
        "metadata",
        9,
        topics=[{"name": topic} for topic in topics],
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=False,
        include_topic_authorized_operations=False,
    )


async def leaders(client: Client, topic: str = "t") -> list[tuple[int, int, int]]:
    """(error, leader, leader epoch) of each partition of a topic."""
    (found,) = (await metadata(client, topic)).topics
    return [(int(p.error_code), p.leader_id, p.leader_epoch) for p in found.partitions]


def fetch(number: int, epoch: int = -1, wait: int = 0, offset: int = 0) -> dict[str, Any]:
    """Send a Fetch v11 of one partition."""
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
    """Fetch, and return the error."""
    answer = await client.request("fetch", 11, **fetch(number, epoch))
    return int(answer.responses[0].partitions[0].error_code)


async def find(client: Client, key: str, kind: int = 0) -> tuple[int, int]:
    """Find the coordinator; return (error, broker)."""
    answer = await client.request("find_coordinator", 4, key_type=kind, coordinator_keys=[key])
    return int(answer.coordinators[0].error_code), answer.coordinators[0].node_id


async def beat(client: Client, group: str = "g") -> int:
    """Send a heartbeat of an unknown member; return the error."""
    answer = await client.request("heartbeat", 4, group_id=group, generation_id=1, member_id="m")
    return int(answer.error_code)
