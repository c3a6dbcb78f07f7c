"""DescribeConfigs, ListConfigResources, AlterConfigs, IncrementalAlterConfigs."""

from __future__ import annotations

from typing import Any

import pytest

from kgroup.broker.handlers.configs import broker_config_type
from kgroup.broker.internal_topics import INTERNAL_TOPICS
from tests.broker.record_batches import append, batch
from tests.broker.wire import Client, connected

TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)


async def described(
    client: Client, kind: int, name: str, *keys: str, synonyms: bool = False
) -> Any:
    """Describe one resource, all of its configs or some."""
    requested = {
        "resource_type": kind,
        "resource_name": name,
        "configuration_keys": keys or None,
    }
    answer = await client.request(
        "describe_configs",
        4,
        resources=[requested],
        include_synonyms=synonyms,
        include_documentation=False,
    )
    return answer.results[0]


async def test_a_topics_configs_are_described() -> None:
    """The response distinguishes configs that the topic sets from defaults."""
    async with connected() as (broker, client):
        await broker.create_topic("t", configs={"retention.ms": "5"})
        configs = {one.name: one for one in (await described(client, 2, "t")).configs}
        assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", 1)
        assert configs["cleanup.policy"].config_source == 5
        (one,) = (await described(client, 2, "t", "cleanup.policy")).configs
        assert one.value == "delete"


async def test_an_empty_list_of_names_means_all_configs() -> None:
    """As in Kafka, it is the same as none."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        resource = {"resource_type": TOPIC, "resource_name": "t", "configuration_keys": ()}
        answer = await client.request(
            "describe_configs",
            4,
            resources=[resource],
            include_synonyms=False,
            include_documentation=False,
        )
        assert answer.results[0].configs == (await described(client, TOPIC, "t")).configs


async def test_the_configs_of_a_coordinators_topic_are_described_only() -> None:
    """A tool that describes every topic that is listed succeeds; one that changes them does not."""
    async with connected() as (_, client):
        for key_type, name in enumerate(sorted(INTERNAL_TOPICS)):
            await client.request("find_coordinator", 3, key="k", key_type=key_type)
            configs = {one.name: one for one in (await described(client, TOPIC, name)).configs}
            policy = configs["cleanup.policy"]
            assert (policy.value, policy.config_source) == ("compact", 1)
            refused = await altered(client, ("retention.ms", SET, "1"), name=name)
            assert int(refused.error_code) == 44
            assert name in refused.error_message


async def test_the_brokers_configs_are_described() -> None:
    """Every property is listed with its value, the coordinator's too."""
    async with connected(group_max_size=7) as (_, client):
        configs = {one.name: one for one in (await described(client, 4, "1")).configs}
        assert (configs["group.max.size"].value, configs["group.max.size"].config_source) == (
            "7",
            4,
        )
        assert configs["group.initial.rebalance.delay.ms"].value == "3000"
        assert configs["offsets.retention.minutes"].value == "10080"
        assert configs["num.partitions"].read_only


@pytest.mark.parametrize(
    ("kind", "name", "code"),
    [(2, "nope", 3), (2, "no pe", 17), (2, "", 17), (4, "9", 42), (8, "1", 42), (32, "", 42)],
)
async def test_resources_without_configs_are_refused(kind: int, name: str, code: int) -> None:
    """Unknown and impossible topics, another broker and other kinds of resources get an error."""
    async with connected() as (_, client):
        assert int((await described(client, kind, name)).error_code) == code


async def test_synonyms_have_the_value_as_it_is_read() -> None:
    """The value that the topic has set is the same in the config and among its synonyms."""
    async with connected() as (broker, client):
        await broker.create_topic("t", configs={"message.timestamp.type": " LogAppendTime "})
        (one,) = (
            await described(client, TOPIC, "t", "message.timestamp.type", synonyms=True)
        ).configs
        assert (one.value, one.synonyms[0].value) == ("LogAppendTime", "LogAppendTime")


async def test_synonyms_are_listed_on_request() -> None:
    """The topic's config comes first, then the broker's, then the default."""
    async with connected(message_max_bytes=77) as (broker, client):
        await broker.create_topic("t", configs={"max.message.bytes": "5", "retention.ms": "9"})
        (plain,) = (await described(client, TOPIC, "t", "max.message.bytes")).configs
        assert plain.synonyms == ()
        keys = ("max.message.bytes", "retention.bytes", "retention.ms", "segment.ms")
        found = {
            one.name: [(synonym.name, synonym.value, synonym.source) for synonym in one.synonyms]
            for one in (await described(client, TOPIC, "t", *keys, synonyms=True)).configs
        }
        assert found == {
            "max.message.bytes": [("max.message.bytes", "5", 1), ("message.max.bytes", "77", 4)],
            "retention.bytes": [("log.retention.bytes", "-1", 5)],
            "retention.ms": [("retention.ms", "9", 1)],
            "segment.ms": [],
        }
        (own,) = (await described(client, BROKER, "1", "message.max.bytes", synonyms=True)).configs
        assert [(one.value, one.source) for one in own.synonyms] == [("77", 4), ("1048588", 5)]


@pytest.mark.parametrize(
    ("name", "default", "kind"),
    [
        ("auto.create.topics.enable", "true", 1),
        ("log.message.timestamp.type", "CreateTime", 2),
        ("num.partitions", "1", 3),
        ("log.retention.bytes", "-1", 5),
    ],
)
def test_the_type_of_a_broker_setting(name: str, default: str, kind: int) -> None:
    """The types are Kafka's: boolean, text, int, long."""
    assert broker_config_type(name, default) == kind


async def altered(
    client: Client,
    *configs: tuple[str, int, str | None],
    kind: int = TOPIC,
    name: str = "t",
    validate_only: bool = False,
    version: int = 1,
) -> Any:
    """Change some configs of one resource."""
    requested = {
        "resource_type": kind,
        "resource_name": name,
        "configs": [
            {"name": config, "config_operation": operation, "value": value}
            for config, operation, value in configs
        ],
    }
    answer = await client.request(
        "incremental_alter_configs", version, resources=[requested], validate_only=validate_only
    )
    (response,) = answer.responses
    assert (response.resource_type, response.resource_name) == (kind, name)
    return response


@pytest.mark.parametrize("version", [0, 1])
async def test_configs_are_changed_one_by_one(version: int) -> None:
    """A set config applies, also to the log; a deleted one has its default; others stay."""
    async with connected() as (broker, client):
        await broker.create_topic("t", configs={"retention.ms": "5", "segment.ms": "6"})
        change = (("retention.ms", DELETE, None), ("max.message.bytes", SET, "10"))
        done = await altered(client, *change, version=version)
        assert (int(done.error_code), done.error_message) == (0, None)
        topic = broker.cluster.topics.get("t")
        assert topic is not None
        assert topic.configs == {"segment.ms": "6", "max.message.bytes": "10"}
        with pytest.raises(Exception, match="more than 10"):
            append(topic.logs[0], batch(b"larger than ten bytes"))


async def test_lists_are_added_to_and_taken_from() -> None:
    """APPEND and SUBTRACT change lists, which have no item twice."""
    async with connected() as (broker, client):
        await broker.create_topic("t", configs={"cleanup.policy": "delete"})
        topic = broker.cluster.topics.get("t")
        assert topic is not None
        for operation, value, after in (
            (APPEND, "compact,delete", "delete,compact"),
            (SUBTRACT, "delete", "compact"),
        ):
            assert (
                int((await altered(client, ("cleanup.policy", operation, value))).error_code) == 0
            )
            assert topic.configs["cleanup.policy"] == after
        refused = await altered(client, ("retention.ms", APPEND, "1"))
        assert int(refused.error_code) == 40
        assert "its type is not LIST" in refused.error_message


async def test_an_empty_text_is_an_item_that_a_list_may_refuse() -> None:
    """An empty item cannot be appended to a cleanup policy; to subtract it changes nothing."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        for operation, code in ((APPEND, 40), (SUBTRACT, 0)):
            answer = await altered(client, ("cleanup.policy", operation, ""))
            assert int(answer.error_code) == code


@pytest.mark.parametrize(
    ("configs", "resource", "code"),
    [
        ([("nothing", SET, "1")], (TOPIC, "t"), 40),
        ([("max.message.bytes", SET, "many")], (TOPIC, "t"), 40),
        ([("retention.ms", SET, None)], (TOPIC, "t"), 42),
        ([("retention.ms", SET, "1"), ("retention.ms", DELETE, None)], (TOPIC, "t"), 42),
        ([("retention.ms", 9, "1")], (TOPIC, "t"), 42),
        ([("retention.ms", SET, "1")], (TOPIC, "nothing"), 3),
        ([("message.max.bytes", SET, "1")], (BROKER, "1"), 42),
        ([("message.max.bytes", SET, "1")], (BROKER, "9"), 42),
        ([("x", SET, "1")], (16, "t"), 42),
    ],
)
async def test_an_invalid_change_is_refused(
    configs: list[tuple[str, int, str | None]], resource: tuple[int, str], code: int
) -> None:
    """Nothing is changed, and the message says why."""
    async with connected() as (broker, client):
        await broker.create_topic("t", configs={"retention.ms": "5"})
        kind, name = resource
        refused = await altered(client, *configs, kind=kind, name=name)
        assert int(refused.error_code) == code
        assert refused.error_message
        topic = broker.cluster.topics.get("t")
        assert topic is not None
        assert topic.configs == {"retention.ms": "5"}


async def test_groups_have_no_configs() -> None:
    """None are listed, a change of none is none, and every name is unknown."""
    async with connected() as (_, client):
        found = await described(client, 32, "g")
        assert (int(found.error_code), found.configs) == (0, ())
        assert int((await altered(client, kind=32, name="g")).error_code) == 0
        refused = await altered(client, ("x", SET, "1"), kind=32, name="g")
        assert int(refused.error_code) == 40
        assert refused.error_message == "Unknown group config name: x"


async def test_a_change_can_be_tried() -> None:
    """With validate_only the change is checked and not made."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        for value, code in (("7", 0), ("x", 40)):
            change = ("max.message.bytes", SET, value)
            assert int((await altered(client, change, validate_only=True)).error_code) == code
        topic = broker.cluster.topics.get("t")
        assert topic is not None
        assert topic.configs == {}


@pytest.mark.parametrize("version", [0, 1, 2])
async def test_all_configs_are_replaced(version: int) -> None:
    """AlterConfigs sets the named configs and resets the rest; a resource may occur once."""
    async with connected() as (broker, client):
        await broker.create_topic("t", configs={"retention.ms": "5"})
        requested = {
            "resource_type": TOPIC,
            "resource_name": "t",
            "configs": [{"name": "segment.ms", "value": "6"}],
        }
        topic = broker.cluster.topics.get("t")
        assert topic is not None
        for resources, codes, after in (
            ([requested, requested], [42, 42], {"retention.ms": "5"}),
            ([requested], [0], {"segment.ms": "6"}),
        ):
            answer = await client.request(
                "alter_configs", version, resources=resources, validate_only=False
            )
            assert [int(one.error_code) for one in answer.responses] == codes
            assert topic.configs == after


async def test_resources_with_configs_are_listed() -> None:
    """One kind or all are listed; version 0 has only client metrics, of which there are none."""
    async with connected() as (broker, client):
        await broker.create_topic("t")
        for kinds, wanted in (
            ((), {(2, "t"), (4, "1"), (8, "1")}),
            ((TOPIC, 32), {(2, "t")}),
            ((16,), set()),
        ):
            answer = await client.request("list_config_resources", 1, resource_types=kinds)
            assert int(answer.error_code) == 0
            found = {(one.resource_type, one.resource_name) for one in answer.config_resources}
            assert found == wanted
        answer = await client.request("list_config_resources", 1, resource_types=(99,))
        assert int(answer.error_code) == 35
        assert (await client.request("list_config_resources", 0)).config_resources == ()
