"""Access control: what a user may not use is refused, and the rest of a request is served."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import pytest
import trio.testing

from kgroup.broker import Acl, BrokerSecurity, in_memory
from kgroup.broker.apis import APIS
from kgroup.broker.authorization import FREE, RIGHTS
from kgroup.broker.security.acls import Authorizer, Operation, ResourceType
from kgroup.errors import ConfigError, UsageError
from tests.broker.handlers.test_unsupported import ACL, NEW
from tests.broker.record_batches import batch
from tests.broker.security.logins import log_in, secured
from tests.broker.wire import Client, commit, connected

READS = (Acl("alice", "read", "topic", "open"), Acl("alice", "read", "group", "g"))
EVERYTHING = Acl("*", "all", "topic", "*")
TOPIC = ResourceType.TOPIC
_SECOND = timedelta(seconds=1)


def test_every_api_has_a_row() -> None:
    """An API that is added to the broker needs rights, or is named as free."""
    assert set(RIGHTS) | FREE | {"find_coordinator"} == set(APIS)


@pytest.mark.parametrize(
    ("acls", "operation", "allowed"),
    [
        ([], "READ", False),
        ([Acl("alice", "read", "topic", "t")], "READ", True),
        ([Acl("alice", "read", "topic", "t")], "DESCRIBE", True),
        ([Acl("alice", "read", "topic", "t")], "WRITE", False),
        ([Acl("alice", "describe", "topic", "t")], "READ", False),
        ([Acl("alice", "all", "topic", "*")], "DELETE", True),
        ([Acl("*", "write", "topic", "t")], "WRITE", True),
        ([Acl("bob", "write", "topic", "t")], "WRITE", False),
        ([Acl("alice", "write", "topic", "t", host="10.0.0.1")], "WRITE", True),
        ([Acl("alice", "write", "topic", "t", host="10.0.0.2")], "WRITE", False),
        ([Acl("alice", "write", "topic", "t", principal_type="Group")], "WRITE", False),
        ([Acl("alice", "write", "topic", "tt", prefix=True)], "WRITE", False),
        ([Acl("alice", "write", "group", "t")], "WRITE", False),
        ([Acl("alice", "write", "topic", "t", prefix=True)], "WRITE", True),
        ([EVERYTHING, Acl("alice", "read", "topic", "t", deny=True)], "READ", False),
        ([EVERYTHING, Acl("alice", "read", "topic", "t", deny=True)], "DESCRIBE", True),
        ([EVERYTHING, Acl("alice", "all", "topic", "t", deny=True)], "WRITE", False),
    ],
)
def test_what_rules_allow(acls: list[Acl], operation: str, allowed: bool) -> None:
    """Denials count more than permissions; READ and the like include DESCRIBE."""
    made = Authorizer(acls, ())
    wanted = ("alice", "10.0.0.1", Operation[operation], TOPIC, "t")
    assert made.allows(*wanted) == allowed
    assert Authorizer(acls, ["alice"]).allows(*wanted)
    for acl in acls:
        assert made.remove(acl)
    assert not made.allows(*wanted)


def test_what_a_decision_costs() -> None:
    """It depends on how many lengths prefixes have, not on how many rules there are."""
    same = [Acl("bob", "read", "topic", f"{number:05}", prefix=True) for number in range(10_000)]
    longer = [Acl("bob", "read", "topic", "x" * length, prefix=True) for length in range(6, 206)]
    made = Authorizer([*same, *longer, *longer], ())
    assert (made.steps(TOPIC), made.steps(ResourceType.GROUP)) == (11, 1)
    assert made.allows("bob", "10.0.0.1", Operation.READ, TOPIC, "00042-a")
    for acl in longer:
        assert made.remove(acl)
        assert not made.remove(acl)
    assert made.steps(TOPIC) == 1


@pytest.mark.parametrize(
    ("acls", "allowed"),
    [
        ([], False),
        ([Acl("alice", "write", "topic", "t")], True),
        ([Acl("alice", "read", "topic", "t")], False),
        ([Acl("alice", "write", "topic", "t"), Acl("*", "all", "topic", "t", deny=True)], False),
        ([Acl("alice", "write", "topic", "*"), Acl("*", "write", "topic", "*", deny=True)], False),
        (
            [
                Acl("alice", "write", "topic", "*"),
                Acl("*", "write", "topic", "t", prefix=True, deny=True),
            ],
            True,
        ),
        (
            [
                Acl("alice", "write", "topic", "tt"),
                Acl("alice", "write", "topic", "ttt", prefix=True),
                Acl("*", "write", "topic", "t", prefix=True, deny=True),
                Acl("*", "write", "topic", "tt", prefix=True, deny=True),
            ],
            False,
        ),
        (
            [
                Acl("alice", "write", "topic", "tt", prefix=True),
                Acl("*", "write", "topic", "tt", deny=True),
            ],
            True,
        ),
        (
            [
                Acl("alice", "write", "topic", "s"),
                Acl("alice", "write", "topic", "u"),
                Acl("*", "write", "topic", "s", prefix=True, deny=True),
                Acl("*", "write", "topic", "t", prefix=True, deny=True),
            ],
            True,
        ),
    ],
)
def test_what_rules_allow_somewhere(acls: list[Acl], allowed: bool) -> None:
    """A permission counts unless a denial of the same name, or of its beginning, covers it."""
    made = Authorizer(acls, ())
    assert made.allows_somewhere("alice", "10.0.0.1", Operation.WRITE, TOPIC) == allowed
    assert Authorizer([], ["alice"]).allows_somewhere("alice", "", Operation.WRITE, TOPIC)


async def test_topics_in_metadata() -> None:
    """A topic without the right is 29 where it is named, even if it does not exist, else absent."""
    async with secured(acls=READS) as (broker, client):
        for name in ("open", "closed"):
            await broker.create_topic(name, 1)
        await log_in(client)
        for version in (1, 3):
            answer = await client.request("metadata", version, topics=None)
            assert [topic.name for topic in answer.topics] == ["open"]
            names = [{"name": name} for name in ("open", "closed", "missing")]
            answer = await client.request("metadata", version, topics=names)
            found = {topic.name: int(topic.error_code) for topic in answer.topics}
            assert found == {"open": 0, "closed": 29, "missing": 29}
        only = await client.request("metadata", 0, topics=[{"name": "closed"}])
        assert [int(topic.error_code) for topic in only.topics] == [29]


async def pages(client: Client, names: Sequence[str], limit: int) -> list[dict[str, Any]]:
    """The pages of DescribeTopicPartitions: what is answered about each topic, by its name."""
    found: list[dict[str, Any]] = []
    cursor = None
    while not found or cursor is not None:
        answer = await client.request(
            "describe_topic_partitions",
            0,
            topics=[{"name": name} for name in names],
            response_partition_limit=limit,
            cursor=cursor
            and {"topic_name": cursor.topic_name, "partition_index": cursor.partition_index},
        )
        cursor = answer.next_cursor
        page = {
            topic.name: [part.partition_index for part in topic.partitions]
            if topic.error_code == 0
            else int(topic.error_code)
            for topic in answer.topics
        }
        found.append(page)
    return found


async def test_pages_of_partitions_leave_out_topics_without_the_right() -> None:
    """They count nothing, no cursor points to one, and they are 29 where they are named."""
    acls = [Acl("alice", "describe", "topic", name) for name in ("b", "d", "missing")]
    async with secured(acls=acls) as (broker, client):
        for name in ("a", "b", "c", "d", "e"):
            await broker.create_topic(name, 2)
        await log_in(client)
        assert await pages(client, [], 2) == [{"b": [0, 1]}, {"d": [0, 1]}]
        assert await pages(client, [], 3) == [{"b": [0, 1], "d": [0]}, {"d": [1]}]
        assert await pages(client, ["a", "c", "e"], 1) == [{"a": 29, "c": 29, "e": 29}]
        assert await pages(client, ["a", "b", "c", "d", "e", "missing"], 2) == [
            {"a": 29, "b": [0, 1], "c": 29},
            {"d": [0, 1], "e": 29},
            {"missing": 3},
        ]
        for acl in acls:
            broker.remove_acl(acl)
        assert await pages(client, [], 2) == [{}]


async def begin(client: Client, *topics: str) -> dict[str, int]:
    """Begin transaction x with partition 0 of topics; the error of each."""
    begun = await client.request(
        "init_producer_id", 0, transactional_id="x", transaction_timeout=60 * _SECOND
    )
    assert int(begun.error_code) == 0
    answer = await client.request(
        "add_partitions_to_txn",
        3,
        v3_and_below_transactional_id="x",
        v3_and_below_producer_id=begun.producer_id,
        v3_and_below_producer_epoch=begun.producer_epoch,
        v3_and_below_topics=[{"name": name, "partitions": [0]} for name in topics],
    )
    return {
        topic.name: int(topic.results_by_partition[0].partition_error_code)
        for topic in answer.results_by_topic_v3_and_below
    }


async def described_transaction(client: Client) -> tuple[str, list[str]]:
    """The state of transaction x, and the topics that are shown."""
    answer = await client.request("describe_transactions", 0, transactional_ids=["x"])
    (found,) = answer.transaction_states
    return found.transaction_state, [topic.topic for topic in found.topics]


async def test_partitions_of_a_transaction_are_added_all_or_none() -> None:
    """Beside a topic that the user may not write to, the others are not attempted."""
    acls = [
        Acl("alice", "write", kind, name)
        for kind, name in (("transactional_id", "x"), ("topic", "open"), ("topic", "missing"))
    ]
    async with secured(acls=acls) as (broker, client):
        for name in ("open", "closed"):
            await broker.create_topic(name, 1)
        await log_in(client)
        assert await begin(client, "open", "closed", "missing") == {
            "open": 55,
            "closed": 29,
            "missing": 3,
        }
        broker.add_acl(Acl("alice", "describe", "topic", "*"))
        assert await described_transaction(client) == ("Empty", [])
        assert await begin(client, "open") == {"open": 0}
        assert await described_transaction(client) == ("Ongoing", ["open"])


async def test_described_transactions_show_topics_with_the_right_only() -> None:
    """A topic of the transaction that the user may not describe is left out."""
    writes = [Acl("alice", "write", "topic", name) for name in ("open", "closed")]
    acls = [Acl("alice", "write", "transactional_id", "x"), *writes]
    async with secured(acls=acls) as (broker, client):
        for name in ("open", "closed"):
            await broker.create_topic(name, 1)
        await log_in(client)
        assert await begin(client, "open", "closed") == {"open": 0, "closed": 0}
        assert await described_transaction(client) == ("Ongoing", ["open", "closed"])
        broker.remove_acl(writes[1])
        assert await described_transaction(client) == ("Ongoing", ["open"])


async def test_configs_of_a_created_topic() -> None:
    """They are withheld from a user who may create the topic, but not describe its configs."""
    acls = [
        Acl("alice", "create", "topic", "new", prefix=True),
        Acl("alice", "describe_configs", "topic", "new-1"),
    ]
    async with secured(acls=acls) as (_, client):
        await log_in(client)
        new = {"num_partitions": 2, "replication_factor": 1, "assignments": [], "configs": []}
        answer = await client.request(
            "create_topics",
            7,
            timeout=_SECOND,
            validate_only=False,
            topics=[{"name": name, **new} for name in ("new-1", "new-2")],
        )
        first, second = answer.topics
        assert (int(first.error_code), int(second.error_code)) == (0, 0)
        assert (first.topic_config_error_code, second.topic_config_error_code) == (0, 29)
        assert (first.num_partitions, first.replication_factor) == (2, 1)
        assert (second.num_partitions, second.replication_factor, second.configs) == (-1, -1, ())
        assert first.configs


async def produced(client: Client, *, transactional: bool, **fields: Any) -> dict[str, int]:
    """The errors of a Produce of one batch to each of two topics."""
    producer = {"producer_id": 1, "producer_epoch": 0, "base_sequence": 0}
    records = batch(b"x", transactional=True, **producer) if transactional else batch(b"x")
    answer = await client.request(
        "produce",
        7,
        **{"transactional_id": None, "acks": 1, **fields},
        timeout=_SECOND,
        topic_data=[
            {"name": name, "partition_data": [{"index": 0, "records": records}]}
            for name in ("open", "closed")
        ],
    )
    return {topic.name: int(topic.partition_responses[0].error_code) for topic in answer.responses}


async def test_produce_needs_the_right_to_write_to_a_transaction_for_batches_of_one() -> None:
    """A transactional id alone needs none; without the right the whole request is refused."""
    async with secured(acls=[Acl("alice", "write", "topic", "open")]) as (broker, client):
        for name in ("open", "closed"):
            await broker.create_topic(name, 1)
        await log_in(client)
        served, refused = {"open": 0, "closed": 29}, {"open": 53, "closed": 53}
        assert await produced(client, transactional=False) == served
        assert await produced(client, transactional=False, transactional_id="x") == served
        assert await produced(client, transactional=True) == refused
        assert await produced(client, transactional=True, transactional_id="x") == refused
        broker.add_acl(Acl("alice", "write", "transactional_id", "x"))
        assert await produced(client, transactional=True) == refused
        assert await produced(client, transactional=True, transactional_id="x") == {
            "open": 49,  # the transaction was never begun
            "closed": 29,
        }
        with pytest.raises(EOFError):
            await produced(client, transactional=True, acks=0)


async def test_names_of_topics_that_are_deleted_by_id() -> None:
    """A user who may not describe a topic does not get its name."""
    acls = [Acl("alice", "describe", "topic", "seen"), Acl("alice", "delete", "topic", "gone")]
    async with secured(acls=acls) as (broker, client):
        for name in ("seen", "hidden", "gone"):
            await broker.create_topic(name, 1)
        await log_in(client)
        ids = {topic.topic_id: topic.name for topic in broker.cluster.topics}
        answer = await client.request(
            "delete_topics",
            6,
            timeout=_SECOND,
            topics=[{"name": None, "topic_id": topic_id} for topic_id in ids],
        )
        found = {ids[one.topic_id]: (one.name, int(one.error_code)) for one in answer.responses}
        assert found == {"seen": ("seen", 29), "hidden": (None, 29), "gone": ("gone", 0)}


async def test_topics_that_metadata_may_create() -> None:
    """A user who may describe a missing topic, but not create it, is answered 29."""
    acls = [
        Acl("alice", "describe", "topic", "new", prefix=True),
        Acl("alice", "create", "topic", "new-1"),
        Acl("alice", "create", "topic", "old"),
    ]
    async with secured(acls=acls) as (broker, client):
        await log_in(client)

        async def codes(*, creates: bool) -> dict[str, int]:
            topics = [{"name": name} for name in ("new-1", "new-2", "old")]
            answer = await client.request(
                "metadata", 4, topics=topics, allow_auto_topic_creation=creates
            )
            return {topic.name: int(topic.error_code) for topic in answer.topics}

        assert await codes(creates=False) == {"new-1": 3, "new-2": 3, "old": 29}
        assert await codes(creates=True) == {"new-1": 3, "new-2": 29, "old": 29}
        assert [topic.name for topic in broker.cluster.topics] == ["new-1"]
        broker.add_acl(Acl("alice", "create", "cluster"))
        assert await codes(creates=True) == {"new-1": 0, "new-2": 3, "old": 29}
        assert await codes(creates=True) == {"new-1": 0, "new-2": 0, "old": 29}


async def test_groups() -> None:
    """A group without the right is 30 in every request; ListGroups leaves it out."""
    async with secured(acls=READS) as (broker, client):
        await broker.create_topic("open", 1)
        await log_in(client)
        found = await client.request(
            "find_coordinator", 4, key_type=0, coordinator_keys=["g", "other"]
        )
        assert {one.key: int(one.error_code) for one in found.coordinators} == {"g": 0, "other": 30}
        alone = await client.request("find_coordinator", 3, key="other", key_type=0)
        assert int(alone.error_code) == 30
        assert await commit(client, topics=["open"]) == 0
        assert await commit(client, topics=["open"], group_id="other") == 30
        assert await commit(client, topics=["closed"]) == 29
        beat = await client.request(
            "heartbeat", 3, group_id="other", generation_id=1, member_id="m"
        )
        assert int(beat.error_code) == 30


async def test_committed_offsets_of_a_topic_without_the_right() -> None:
    """OffsetFetch answers 29 for its partitions if they are named, and leaves them out if not."""
    async with secured(acls=[*READS, Acl("alice", "read", "topic", "closed")]) as (broker, client):
        await log_in(client)
        for name in ("open", "closed"):
            await broker.create_topic(name, 1)
            assert await commit(client, topics=[name]) == 0
        assert broker.remove_acl(Acl("alice", "read", "topic", "closed"))
        named: list[dict[str, Any]] = [
            {"name": name, "partition_indexes": [0]} for name in ("open", "closed")
        ]
        for topics, expected in ((named, {"open": 0, "closed": 29}), (None, {"open": 0})):
            new = await client.request(
                "offset_fetch", 9, groups=[{"group_id": "g", "topics": topics, "member_id": None}]
            )
            old = await client.request("offset_fetch", 7, group_id="g", topics=topics)
            for found in (new.groups[0].topics, old.topics):
                codes = {one.name: int(one.partitions[0].error_code) for one in found}
                assert codes == expected


async def test_a_right_is_taken_away_and_given_back(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Rules count from the next request on."""
    acl = READS[0]
    async with secured(acls=READS) as (broker, client):
        await broker.create_topic("open", 1)
        await log_in(client)
        wanted = [{"name": "open", "partitions": [{"partition_index": 0, "timestamp": -1}]}]
        codes = []
        for change in (None, broker.remove_acl, broker.add_acl):
            if change is not None:
                change(acl)
            answer = await client.request("list_offsets", 1, replica_id=-1, topics=wanted)
            codes.append(int(answer.topics[0].partitions[0].error_code))
        assert codes == [0, 29, 0]


async def test_the_cluster() -> None:
    """Requests about the cluster are 31; topics can be created by name."""
    async with secured(acls=[Acl("alice", "create", "topic", "new", prefix=True)]) as (_, client):
        await log_in(client)
        answer = await client.request("list_partition_reassignments", 0, timeout=_SECOND, topics=[])
        assert int(answer.error_code) == 31
        made = await client.request(
            "create_topics",
            4,
            timeout=_SECOND,
            validate_only=False,
            topics=[
                {
                    "name": name,
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
                for name in ("new-1", "old")
            ],
        )
        assert {one.name: int(one.error_code) for one in made.topics} == {"new-1": 0, "old": 29}


async def test_refusals_say_what_kafka_says() -> None:
    """To librdkafka, no text beside the error of ACLs means success."""
    async with secured(acls=[]) as (_, client):
        await log_in(client)
        described = await client.request("describe_acls", 3, **ACL)
        assert described.error_message == "Request DESCRIBE_ACLS v3 needs DESCRIBE permission."
        created = await client.request("create_acls", 3, creations=[NEW, NEW])
        assert {one.error_message for one in created.results} == {
            "Request CREATE_ACLS v3 needs ALTER permission."
        }
        resources = [
            {"resource_type": number, "resource_name": "1", "configuration_keys": None}
            for number in (2, 4, 32)
        ]
        configs = await client.request(
            "describe_configs",
            4,
            resources=resources,
            include_synonyms=False,
            include_documentation=False,
        )
        assert [one.error_message for one in configs.results] == [
            f"{subject} authorization failed." for subject in ("Topic", "Cluster", "Group")
        ]
        found = await client.request("find_coordinator", 3, key="x", key_type=1)
        assert found.error_message == "Transactional Id authorization failed."


async def test_super_users_and_anonymous_ones() -> None:
    """A listener without logins has the user ANONYMOUS, who may be a super user."""
    for super_users, seen in ((["ANONYMOUS"], ["t"]), ([], [])):
        security = BrokerSecurity(acls=[], super_users=super_users)
        async with in_memory(security=security) as broker:
            await broker.create_topic("t", 1)
            client = await Client.open(broker)
            answer = await client.request("metadata", 1, topics=None)
            assert [topic.name for topic in answer.topics] == seen
            await client.stream.aclose()


async def test_without_access_control_no_rule_can_be_added() -> None:
    """The error says which setting is missing."""
    async with connected() as (broker, _):
        with pytest.raises(UsageError, match="BrokerSecurity"):
            broker.add_acl(READS[0])


@pytest.mark.parametrize(
    ("values", "field"),
    [
        (("x" * 32768, "read", "topic"), "user"),
        (("a", "fly", "topic"), "operation"),
        (("a", "read", "moon"), "resource_type"),
        (("a", "read", "topic", ""), "name"),
        (("a", "read", "topic"), "name"),
        (("a", "read", "group"), "name"),
        (("a", "alter", "cluster", ""), "name"),
    ],
)
def test_rules_that_are_refused(values: tuple[Any, ...], field: str) -> None:
    """The error names the field."""
    with pytest.raises(ConfigError, match=f"^{field}="):
        Acl(*values)


@pytest.mark.parametrize("settings", [{"acls": ["x"]}, {"acls": 5}, {"super_users": "alice"}])
def test_settings_that_are_refused(settings: dict[str, Any]) -> None:
    """What is not a list of rules or names is refused."""
    with pytest.raises(ConfigError):
        BrokerSecurity(**settings)
