"""Broker settings: Kafka's names, their values, and which ones are refused."""

from __future__ import annotations

import pytest

from kgroup.broker.broker_settings import PROPERTIES, BrokerSettings
from kgroup.broker.groups.coordinator_settings import GROUP_PROPERTIES
from kgroup.errors import ConfigError


def test_every_property_sets_its_field() -> None:
    """Each property of the table sets its own field."""
    given = {
        "auto.create.topics.enable": ("false", "auto_create_topics", False),
        "broker.rack": ("r1", "rack", "r1"),
        "connections.max.idle.ms": ("1500", "connections_max_idle", 1.5),
        "default.replication.factor": ("2", "default_replication_factor", 2),
        "delete.topic.enable": ("False", "delete_topics", False),
        "fetch.max.bytes": ("2048", "fetch_max_bytes", 2048),
        "kgroup.answer.max.items": ("7", "answer_max_items", 7),
        "kgroup.max.acls": ("7", "max_acls", 7),
        "kgroup.max.partitions": ("7", "max_partitions", 7),
        "kgroup.max.scram.users": ("7", "max_scram_users", 7),
        "kgroup.max.transactional.ids": ("7", "max_transactional_ids", 7),
        "kgroup.message.max.decompressed.bytes": ("7", "max_decompressed_bytes", 7),
        "kgroup.request.max.items": ("7", "request_max_items", 7),
        "log.message.timestamp.after.max.ms": ("7", "timestamp_after_max", 7),
        "log.message.timestamp.before.max.ms": ("7", "timestamp_before_max", 7),
        "log.message.timestamp.type": ("LogAppendTime", "append_time", True),
        "log.retention.bytes": ("9", "retention_bytes", 9),
        "max.connections": ("7", "max_connections", 7),
        "max.connections.per.ip": ("7", "max_connections_per_ip", 7),
        "max.request.partition.size.limit": ("7", "describe_max_partitions", 7),
        "message.max.bytes": ("99", "max_message_bytes", 99),
        "node.id": ("4", "node_id", 4),
        "num.partitions": ("3", "default_partitions", 3),
        "offsets.topic.replication.factor": ("2", "offsets_topic_replication_factor", 2),
        "queued.max.request.bytes": ("7", "queued_max_bytes", 7),
        "socket.request.max.bytes": ("77", "request_max_bytes", 77),
        "transaction.max.timeout.ms": ("1500", "transaction_max_timeout", 1.5),
        "transaction.state.log.num.partitions": ("5", "transaction_log_partitions", 5),
        "transaction.state.log.replication.factor": ("1", "transaction_log_replication_factor", 1),
    }
    assert given.keys() == PROPERTIES.keys()
    settings = BrokerSettings.from_properties({name: text for name, (text, _, _) in given.items()})
    for _, field, value in given.values():
        assert getattr(settings, field) == value


def test_the_defaults_of_the_table_are_those_of_the_class() -> None:
    """DescribeConfigs returns the defaults that apply without a setting."""
    texts = {name: text for name, (_, _, text) in PROPERTIES.items() if text}
    assert BrokerSettings.from_properties(texts) == BrokerSettings()


def test_the_coordinator_s_properties_are_read_too() -> None:
    """The coordinator's settings are set, and values need not be texts."""
    settings = BrokerSettings.from_properties(
        {"group.initial.rebalance.delay.ms": 0, "auto.create.topics.enable": False}
    )
    assert settings.groups.initial_rebalance_delay == 0
    assert not settings.auto_create_topics
    assert settings.properties["auto.create.topics.enable"] == "false"


def test_an_unknown_property_is_refused_by_name() -> None:
    """The error names the property, similar ones, and all known ones."""
    with pytest.raises(ConfigError, match=r"did you mean 'num\.partitions'\?") as refused:
        BrokerSettings.from_properties({"num.partition": "3"})
    assert refused.value.field == "num.partition"
    for name in (*PROPERTIES, *GROUP_PROPERTIES):
        assert name in refused.value.allowed
    with pytest.raises(ConfigError, match=r"no such property; it has"):
        BrokerSettings.from_properties({"zzz": "3"})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("num.partitions", "0"),
        ("num.partitions", "many"),
        ("num.partitions", str(2**31)),
        ("auto.create.topics.enable", "yes"),
        ("log.message.timestamp.type", "createtime"),
        ("log.retention.bytes", "-2"),
        ("broker.rack", ""),
        ("transaction.max.timeout.ms", "0"),
    ],
)
def test_a_bad_value_is_refused_by_name(name: str, text: str) -> None:
    """The error names the property, its value, and what is allowed."""
    with pytest.raises(ConfigError, match="it must be") as refused:
        BrokerSettings.from_properties({name: text})
    assert (refused.value.field, refused.value.value) == (name, text)


def test_minus_one_keeps_everything() -> None:
    """A retention of -1 bytes means no limit."""
    assert BrokerSettings.from_properties({"log.retention.bytes": -1}).retention_bytes is None
