"""Access control under many rules and long requests: other clients are served meanwhile."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator

import pytest

from kgroup.broker import Acl, BrokerSecurity, EmbeddedBroker, in_memory
from kgroup.error_codes import ErrorCode
from tests.broker.handlers.test_unsupported import ACL, NEW
from tests.broker.wire import Client
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


async def test_others_are_served_beside_many_rules(broker: EmbeddedBroker) -> None:
    """Clients can bring the rules to kgroup.max.acls, and responses have a limit of items."""
    authorizer = broker.cluster.security.authorizer
    have = len(authorizer)
    new = [{**NEW, "resource_name": f"r-{number}"} for number in range(10_000)]
    created = await overtaken(
        broker, lambda client: client.request("create_acls", 3, creations=new)
    )
    codes = Counter(int(one.error_code) for one in created.results)
    assert codes == {0: 10_000 - have, ErrorCode.POLICY_VIOLATION: have}
    async with (client := await Client.open(broker)).stream:
        again = await client.request("create_acls", 3, creations=new[:1])
    assert int(again.results[0].error_code) == 0  # it is there already

    described = await overtaken(broker, lambda client: client.request("describe_acls", 3, **ACL))
    assert sum(len(one.acls) for one in described.resources) == len(authorizer) == 10_000
    of_a = {**ACL, "principal_filter": "User:a"}
    refused = await overtaken(
        broker, lambda client: client.request("delete_acls", 3, filters=[of_a] * 20)
    )
    assert {int(one.error_code) for one in refused.filter_results} == {ErrorCode.POLICY_VIOLATION}
    assert len(authorizer) == 10_000
    deleted = await overtaken(
        broker, lambda client: client.request("delete_acls", 3, filters=[of_a])
    )
    assert len(deleted.filter_results[0].matching_acls) == 10_000 - have
    assert len(authorizer) == have


async def test_others_are_served_beside_many_filters(broker: EmbeddedBroker) -> None:
    """Each filter is held against all rules, in slices."""
    none = {**ACL, "principal_filter": "User:nobody"}
    deleted = await overtaken(
        broker, lambda client: client.request("delete_acls", 3, filters=[none] * 1000)
    )
    assert {one.matching_acls for one in deleted.filter_results} == {()}


@pytest.mark.parametrize("field", ["principal", "host", "resource_name"])
async def test_rules_with_long_texts_are_refused(broker: EmbeddedBroker, field: str) -> None:
    """Rules stay in memory, so clients cannot create ones of any length."""
    client = await Client.open(broker)
    codes = []
    for length in (1024, 1025):
        text = "User:".ljust(length, "x")
        answer = await client.request("create_acls", 3, creations=[{**NEW, field: text}])
        codes.append(int(answer.results[0].error_code))
    assert codes == [0, ErrorCode.POLICY_VIOLATION]
    await client.stream.aclose()


async def test_others_are_served_beside_many_passwords(broker: EmbeddedBroker) -> None:
    """Clients can bring the users with passwords to kgroup.max.scram.users."""
    salted = {"iterations": 4096, "salt": b"salt", "salted_password": b"x" * 32}
    new = [{"name": f"user-{number}", "mechanism": 1, **salted} for number in range(10_001)]
    altered = await overtaken(
        broker,
        lambda client: client.request(
            "alter_user_scram_credentials", 0, deletions=[], upsertions=new
        ),
    )
    codes = Counter(int(one.error_code) for one in altered.results)
    assert codes == {0: 10_000, ErrorCode.POLICY_VIOLATION: 1}
    described = await overtaken(
        broker,
        lambda client: client.request("describe_user_scram_credentials", 0, users=None),
    )
    assert len(described.results) == 10_000


@pytest.mark.parametrize("field", ["name", "salt", "salted_password"])
async def test_long_passwords_are_refused(broker: EmbeddedBroker, field: str) -> None:
    """A name and a salt stay in memory, and a salted password is hashed in one piece."""
    client = await Client.open(broker)
    codes = []
    for length in (1024, 1025):
        value = "n" * length if field == "name" else b"x" * length
        new = {"name": "n", "salt": b"", "salted_password": b"x", field: value}
        change = {"mechanism": 2, "iterations": 4096, **new}
        answer = await client.request(
            "alter_user_scram_credentials", 0, deletions=[], upsertions=[change]
        )
        codes.append(int(answer.results[0].error_code))
    assert codes == [0, ErrorCode.UNACCEPTABLE_CREDENTIAL]
    await client.stream.aclose()
