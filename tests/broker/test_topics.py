"""Topics: Kafka's checks, configs, and ids that are never used again."""

from __future__ import annotations

import random
from uuid import UUID

import pytest

from kgroup.broker.broker_settings import BrokerSettings
from kgroup.broker.request_error import RequestError
from kgroup.broker.topic_configs import TOPIC_CONFIGS
from kgroup.broker.topics import Topics
from kgroup.error_codes import ErrorCode
from kgroup.types import TopicPartition
from tests.broker.record_batches import append, batch


@pytest.fixture
def topics() -> Topics:
    """The topics of a new broker."""
    random_or_default = random.Random(1)
    return Topics(BrokerSettings(), lambda: UUID(int=random_or_default.getrandbits(128), version=4))


def error(topics: Topics, name: str, partitions: int = 1, **details: object) -> ErrorCode:
    """The error with which a new topic is refused."""
    with pytest.raises(RequestError) as refused:
        topics.create(name, partitions, **details)  # type: ignore[arg-type]
    return refused.value.code


def test_a_topic_is_found_by_name_and_by_id(topics: Topics) -> None:
    """A created topic has its partitions, and each its own log."""
    topic = topics.create("a", 3)
    assert topics.get("a") is topics.by_id(topic.topic_id) is topic
    assert topics.partitions("a") == 3
    assert len({id(topics.log("a", number)) for number in range(3)}) == 3
    assert topics.by_id(None) is None
    assert topics.partitions("b") is None


@pytest.mark.parametrize(("name", "number"), [("b", 0), ("a", 1), ("a", -1)])
def test_an_unknown_partition_is_refused(topics: Topics, name: str, number: int) -> None:
    """A partition that does not exist has no log."""
    topics.create("a")
    with pytest.raises(RequestError) as refused:
        topics.log(name, number)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topic_can_be_refused(topics: Topics) -> None:
    """Each invalid topic gets Kafka's error code."""
    topics.create("a.b")
    assert error(topics, "a/b") is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert error(topics, "a.b") is ErrorCode.TOPIC_ALREADY_EXISTS
    assert error(topics, "a_b") is ErrorCode.INVALID_TOPIC_EXCEPTION
    assert error(topics, "c", 0) is ErrorCode.INVALID_PARTITIONS
    assert error(topics, "c", 10_001) is ErrorCode.INVALID_PARTITIONS
    assert error(topics, "c", replication_factor=2) is ErrorCode.INVALID_REPLICATION_FACTOR
    assert error(topics, "c", configs={"nope": "1"}) is ErrorCode.INVALID_CONFIG
    assert error(topics, "c", configs={"retention.ms": None}) is ErrorCode.INVALID_CONFIG
    assert error(topics, "c", configs={"retention.bytes": "x"}) is ErrorCode.INVALID_CONFIG
    assert topics.get("c") is None


def test_validate_only_creates_nothing(topics: Topics) -> None:
    """The response is complete, but the topic does not exist."""
    assert len(topics.create("a", 4, validate_only=True).logs) == 4
    assert topics.get("a") is None


def test_a_recreated_topic_is_another(topics: Topics) -> None:
    """It has a new id and empty logs; the old id is unknown."""
    old = topics.create("a", 2)
    append(topics.log("a", 0), batch(b"x"))
    assert topics.delete(old) == [TopicPartition("a", 0), TopicPartition("a", 1)]
    new = topics.create("a")
    assert new.topic_id != old.topic_id
    assert topics.by_id(old.topic_id) is None
    assert topics.log("a", 0).end_offset == 0


def test_partitions_can_only_be_added(topics: Topics) -> None:
    """Existing partitions stay; a lower or equal number is refused."""
    topics.create("a", 2)
    log = topics.log("a", 1)
    topics.grow("a", 4, validate_only=True)
    assert topics.partitions("a") == 2
    topics.grow("a", 4)
    assert topics.partitions("a") == 4
    assert topics.log("a", 1) is log
    for count in (4, 3, 10_001):
        with pytest.raises(RequestError) as refused:
            topics.grow("a", count)
        assert refused.value.code is ErrorCode.INVALID_PARTITIONS
    with pytest.raises(RequestError) as refused:
        topics.grow("b", 4)
    assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_topics_configs_go_before_the_brokers() -> None:
    """A config of the topic overrides the broker's for its logs."""
    settings = BrokerSettings(max_message_bytes=500, retention_bytes=9)
    topics = Topics(settings, lambda: UUID(int=1))
    own = topics.create(
        "own",
        configs={
            "max.message.bytes": "10",
            "message.timestamp.type": "LogAppendTime",
            "retention.bytes": "-1",
            "retention.ms": "1",
        },
    ).log_settings
    assert (own.max_message_bytes, own.append_time, own.retention_bytes) == (10, True, None)
    plain = topics.create("plain").log_settings
    assert (plain.max_message_bytes, plain.append_time, plain.retention_bytes) == (500, False, 9)
    for policy, most in (("compact", None), ("compact,delete", 9)):
        kept = Topics(settings, lambda: UUID(int=2)).create("k", configs={"cleanup.policy": policy})
        assert (kept.log_settings.retention_bytes, kept.log_settings.needs_keys) == (most, True)
    assert topics.config_defaults().keys() == TOPIC_CONFIGS.keys()
    assert [topic.name for topic in topics] == ["own", "plain"]


def test_deletion_can_be_switched_off() -> None:
    """With delete.topic.enable=false no topic can be deleted."""
    topics = Topics(BrokerSettings(delete_topics=False), lambda: UUID(int=1))
    topic = topics.create("a")
    with pytest.raises(RequestError) as refused:
        topics.delete(topic)
    assert refused.value.code is ErrorCode.TOPIC_DELETION_DISABLED
    assert topics.get("a") is topic
