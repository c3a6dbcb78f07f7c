"""AlterPartitionReassignments moves partitions at once; none is ever in progress."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any, Final

import pytest
from trio.testing import MockClock

from kgroup.broker import EmbeddedCluster
from tests.broker.clusters import leaders, metadata, to
from tests.broker.wire import Client, connected

_SECOND: Final = timedelta(seconds=1)


async def moved(
    client: Client,
    topic: str,
    replicas: Sequence[int] | None,
    number: int = 0,
    version: int = 0,
    **fields: Any,
) -> int:
    """Move one partition, and return its error code."""
    partition = {"partition_index": number, "replicas": replicas}
    answer = await client.request(
        "alter_partition_reassignments",
        version,
        timeout=_SECOND,
        topics=[{"name": topic, "partitions": [partition]}],
        **fields,
    )
    assert int(answer.error_code) == 0
    ((one,),) = [topic.partitions for topic in answer.responses]
    assert one.partition_index == number
    return int(one.error_code)


@pytest.mark.parametrize(
    ("topic", "number", "replicas", "code"),
    [
        ("t", 0, [1], 0),
        ("t", 0, None, 85),
        ("t", 0, [], 39),
        ("t", 0, [1, 1], 39),
        ("t", 0, [9], 39),
        ("t", 1, [1], 3),
        ("other", 0, [1], 3),
    ],
)
async def test_what_can_be_moved(
    topic: str, number: int, replicas: list[int] | None, code: int
) -> None:
    """An unknown partition or broker is refused, and there is never a move to be cancelled."""
    async with connected() as (broker, client):
        await broker.create_topic("t", 1)
        assert await moved(client, topic, replicas, number) == code
        listed = await client.request(
            "list_partition_reassignments", 0, timeout=_SECOND, topics=None
        )
        assert listed.topics == ()


async def test_a_partition_has_moved_when_the_request_is_answered(
    cluster: EmbeddedCluster, autojump_clock: MockClock
) -> None:
    """A leader that keeps its replica leads on; otherwise the first broker does."""
    await cluster.create_topic("single", 1)
    client = await to(cluster, 1)
    ((_, first, epoch),) = await leaders(client, "single")
    second, third = (one for one in (1, 2, 3) if one != first)
    assert await moved(client, "single", [second, first]) == 0
    assert await leaders(client, "single") == [(0, first, epoch)]
    assert await moved(client, "single", [second, third]) == 0
    assert await leaders(client, "single") == [(0, second, epoch + 1)]
    (found,) = (await metadata(client, "single")).topics
    assert list(found.partitions[0].replica_nodes) == [second, third]
    assert list(found.partitions[0].isr_nodes) == [second, third]


async def test_the_number_of_replicas_may_have_to_stay(
    cluster: EmbeddedCluster, autojump_clock: MockClock
) -> None:
    """From version 1 on, a request can say so: then another number is refused."""
    await cluster.create_topic("single", 1)
    client = await to(cluster, 1)
    for allowed, code in ((False, 38), (True, 0)):
        wanted = {"allow_replication_factor_change": allowed}
        assert await moved(client, "single", [1, 2, 3], version=1, **wanted) == code
