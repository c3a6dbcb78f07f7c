"""Access control under many rules and long requests: other clients are served meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kgroup.broker import Acl, BrokerSecurity, EmbeddedBroker, in_memory
from tests.hostile.test_broker import overtaken

ANONYMOUS = "ANONYMOUS"
LONGEST_NAME = "t" * 249


@pytest.fixture
async def broker() -> AsyncIterator[EmbeddedBroker]:
    """A broker that keeps a rule about each beginning of a long name, and lets all be described."""
    acls = [
        Acl("bob", "read", "topic", LONGEST_NAME[:length], prefix=True) for length in range(1, 250)
    ]
    everything = [Acl(ANONYMOUS, "all", kind, "*") for kind in ("topic", "group")]
    whole = Acl(ANONYMOUS, "all", "cluster")
    security = BrokerSecurity(acls=[*acls, *everything, whole])
    async with in_memory(security=security) as running:
        yield running


async def test_others_are_served_beside_many_decisions(broker: EmbeddedBroker) -> None:
    """A decision that looks at many rules counts as several steps of its request."""
    for number in range(500):
        await broker.create_topic(f"{LONGEST_NAME[:240]}{number}", 1)
    answer = await overtaken(
        broker,
        lambda client: client.request(
            "metadata",
            8,
            topics=None,
            allow_auto_topic_creation=False,
            include_cluster_authorized_operations=True,
            include_topic_authorized_operations=True,
        ),
    )
    assert {one.topic_authorized_operations for one in answer.topics} == {0b110111111000}


async def test_others_are_served_beside_offsets_of_many_groups(broker: EmbeddedBroker) -> None:
    """Each group is looked up once, and every topic is decided about."""
    groups = [
        {
            "group_id": f"g-{number}",
            "member_id": None,
            "topics": [{"name": LONGEST_NAME, "partition_indexes": [0]}],
        }
        for number in range(5_000)
    ]
    answer = await overtaken(
        broker, lambda client: client.request("offset_fetch", 9, groups=groups)
    )
    assert len(answer.groups) == 5_000
