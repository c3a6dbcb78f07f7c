"""ElectLeaders chooses the leaders of partitions."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from kgroup.broker.replicas import PartitionReplicas
from tests.broker.wire import Client, connected


async def elect(client: Client, *numbers: int, version: int = 2, kind: int = 0) -> Any:
    """Elect leaders of these partitions of t; of all if none is given."""
    fields: dict[str, Any] = {"election_type": kind} if version else {}
    return await client.request(
        "elect_leaders",
        version,
        topic_partitions=[{"topic": "t", "partitions": numbers}] if numbers else None,
        timeout=timedelta(seconds=5),
        **fields,
    )


def results(answer: Any) -> list[tuple[int, int]]:
    """Partition and error code of each partition in the response."""
    return [
        (one.partition_id, int(one.error_code))
        for topic in answer.replica_election_results
        for one in topic.partition_result
    ]


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_where_the_leader_is_right_no_election_is_needed(version: int) -> None:
    """A named partition gets ELECTION_NOT_NEEDED, an unknown one an error; all get no result."""
    async with connected() as (broker, client):
        await broker.create_topic("t", 2)
        assert results(await elect(client, 0, 1, 2, version=version)) == [(0, 84), (1, 84), (2, 3)]
        assert results(await elect(client, version=version)) == []


async def test_the_preferred_replica_leads_again() -> None:
    """It must run and be in sync; an unclean election needs only a replica that runs."""
    async with connected() as (broker, client):
        await broker.create_topic("t", 3)
        replicas = broker.cluster.topics.get("t").replicas  # type: ignore[union-attr]
        replicas[0] = PartitionReplicas((1, 7), (1, 7), 7)
        replicas[1] = PartitionReplicas((7, 1), (7, 1), 1)
        replicas[2] = PartitionReplicas((7,), (7,), -1)
        assert results(await elect(client)) == [(0, 0), (1, 80), (2, 80)]
        assert (replicas[0].leader, replicas[0].epoch) == (1, 1)
        assert results(await elect(client, 1, 2, kind=1)) == [(1, 84), (2, 83)]
        assert int((await elect(client, kind=9)).error_code) == 42
