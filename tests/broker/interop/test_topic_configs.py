"""The configs of topics: what values they take, what they default to, and how lists change."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from time import sleep
from typing import Final

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import (
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
)
from confluent_kafka.cimpl import NewTopic

from kgroup.testing.admin import create_topic
from tests.broker.interop.clients import until
from tests.brokers import Kafka, unique

#: For each config the values that Kafka 4.3 accepted, and what it said of the others.
RECORDED: Final = json.loads(
    (Path(__file__).parents[2] / "data" / "topic_configs.json").read_text(encoding="utf-8")
)
APPEND: Final = AlterConfigOpType.APPEND
SUBTRACT: Final = AlterConfigOpType.SUBTRACT
PAUSE: Final = 0.05


@pytest.fixture
def admin(kafka: Kafka) -> AdminClient:
    """A client of librdkafka's."""
    return AdminClient({"bootstrap.servers": kafka.bootstrap_servers})


def created(kafka: Kafka, configs: Mapping[str, str]) -> str:
    """Create a topic with these configs, and return its name."""
    topic = unique("configs")
    create_topic(kafka.bootstrap_servers, topic, config=configs)
    return topic


def described(admin: AdminClient, topic: str) -> dict[str, ConfigEntry]:
    """The configs of a topic."""
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic)
    found: dict[str, ConfigEntry] = admin.describe_configs([resource])[resource].result()
    return found


def alter(admin: AdminClient, topic: str, name: str, value: str, how: AlterConfigOpType) -> None:
    """Change one config."""
    entry = ConfigEntry(name, value, incremental_operation=how)
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result()


@pytest.mark.parametrize("name", RECORDED)
def test_a_value_is_accepted_or_refused_as_recorded(admin: AdminClient, name: str) -> None:
    """What a config takes, and what is said of other values, is what Kafka said."""
    values = [*RECORDED[name]["accepted"], *RECORDED[name]["refused"]]
    topics = {value: NewTopic(unique("v"), 1, 1, config={name: value}) for value in values}
    answers = admin.create_topics(list(topics.values()), validate_only=True)
    refused = {}
    for value, topic in topics.items():
        try:
            answers[topic.topic].result()
        except KafkaException as error:
            refused[value] = error.args[0]
    assert {value: error.str() for value, error in refused.items()} == RECORDED[name]["refused"]
    assert {error.name() for error in refused.values()} == {"INVALID_CONFIG"}


def test_configs_that_contradict_each_other(kafka: Kafka) -> None:
    """The shortest lag of the compaction is not longer than the longest one."""
    with pytest.raises(KafkaException, match=r"min\.compaction\.lag\.ms \(10\) >"):
        created(kafka, {"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


def test_every_config_is_described(kafka: Kafka, admin: AdminClient) -> None:
    """A topic has the recorded configs, none is read-only, and most name the broker's property."""
    configs = described(admin, created(kafka, {}))
    assert configs.keys() == RECORDED.keys()
    assert not any(config.is_read_only or config.is_sensitive for config in configs.values())
    for name, synonym in {
        "cleanup.policy": "log.cleanup.policy",
        "segment.bytes": "log.segment.bytes",
        "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
        "unclean.leader.election.enable": "unclean.leader.election.enable",
    }.items():
        assert list(configs[name].synonyms) == [synonym]
        assert ConfigSource(configs[name].source) is ConfigSource.DEFAULT_CONFIG
    assert configs["flush.ms"].synonyms == {}


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("cleanup.policy", "delete, compact", "delete,compact"),
        ("cleanup.policy", "compact,compact", "compact"),
        ("retention.ms", " +5", "5"),
        ("preallocate", "TRUE", "true"),
        ("min.cleanable.dirty.ratio", "1", "1.0"),
    ],
)
def test_a_value_is_described_in_its_plain_form(
    kafka: Kafka, admin: AdminClient, name: str, given: str, value: str
) -> None:
    """Kafka reads the text of a config, and shows what it has read."""
    config = described(admin, created(kafka, {name: given}))[name]
    assert config.value == value
    assert ConfigSource(config.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG


@pytest.mark.parametrize(
    ("before", "how", "item", "after"),
    [
        (None, APPEND, "compact", "delete,compact"),
        (None, APPEND, "delete", "delete"),
        (None, SUBTRACT, "compact", "delete"),
        (None, SUBTRACT, "delete", ""),
        ("compact", APPEND, "delete", "compact,delete"),
        ("compact,delete", SUBTRACT, "compact", "delete"),
    ],
)
def test_a_list_changes_item_by_item(
    kafka: Kafka,
    admin: AdminClient,
    before: str | None,
    how: AlterConfigOpType,
    item: str,
    after: str,
) -> None:
    """A list that the topic has not set begins as its default."""
    topic = created(kafka, {} if before is None else {"cleanup.policy": before})
    alter(admin, topic, "cleanup.policy", item, how)
    # A real broker learns of it from its controller.
    until(
        lambda: described(admin, topic)["cleanup.policy"].value == after,
        lambda: sleep(PAUSE),
        f"the list is {after!r}",
    )


def test_a_list_never_gets_an_impossible_item(kafka: Kafka, admin: AdminClient) -> None:
    """What an alteration would lead to is checked as a new topic's config is."""
    topic = created(kafka, {})
    with pytest.raises(KafkaException, match="String must be one of: compact, delete"):
        alter(admin, topic, "cleanup.policy", "bogus", APPEND)
    assert described(admin, topic)["cleanup.policy"].value == "delete"
