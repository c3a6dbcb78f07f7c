"""Requests about rules of access; what Kafka answers to them is in ``tests/conformance``."""

from __future__ import annotations

from typing import Any

import pytest

from kgroup.broker import Acl
from tests.broker.handlers.test_unsupported import ACL, NEW
from tests.broker.security.logins import log_in, secured

ALTERS = Acl("alice", "alter", "cluster")
DESCRIBES = Acl("alice", "describe", "cluster")


@pytest.mark.parametrize(
    ("api", "fields"),
    [
        ("describe_acls", {**ACL, "operation": 0}),
        ("describe_acls", {**ACL, "pattern_type_filter": 0}),
        ("create_acls", {"creations": [NEW, {**NEW, "resource_type": 0}]}),
        ("delete_acls", {"filters": [{**ACL, "permission_type": 0}]}),
    ],
)
async def test_a_number_for_nothing_closes_the_connection(api: str, fields: dict[str, Any]) -> None:
    """Kafka does not answer it either, and nothing of the request is done."""
    async with secured(acls=[ALTERS, DESCRIBES]) as (broker, client):
        await log_in(client)
        with pytest.raises(EOFError):
            await client.request(api, 3, **fields)
        assert list(broker.cluster.security.authorizer) == [ALTERS, DESCRIBES]


async def test_rules_about_every_operation() -> None:
    """Clients can create rules about each operation of Kafka 4.3, by its number, and no other."""
    numbers = range(2, 17)
    async with secured(acls=[ALTERS]) as (broker, client):
        await log_in(client)
        rules = [{**NEW, "operation": number} for number in numbers]
        created = (await client.request("create_acls", 3, creations=rules)).results
        assert [int(one.error_code) for one in created] == [0] * 14 + [42]
        assert len(list(broker.cluster.security.authorizer)) == 15


async def test_rules_count_at_once() -> None:
    """A rule that was created decides about the next request, and one that was deleted does not."""
    async with secured(acls=[ALTERS, DESCRIBES]) as (broker, client):
        await broker.create_topic("t", 1)
        await log_in(client)

        async def topics() -> list[str]:
            return [one.name for one in (await client.request("metadata", 1, topics=None)).topics]

        assert await topics() == []
        rule = {**NEW, "principal": "User:alice"}
        (created,) = (await client.request("create_acls", 3, creations=[rule])).results
        assert (int(created.error_code), await topics()) == (0, ["t"])
        assert Acl("alice", "read", "topic", "t") in broker.cluster.security.authorizer
        meant = {**ACL, "resource_type_filter": 2}
        (deleted,) = (await client.request("delete_acls", 3, filters=[meant])).filter_results
        assert [one.resource_name for one in deleted.matching_acls] == ["t"]
        assert await topics() == []
