"""Kafka's own topics: they are listed, and clients can neither create nor write to them."""

from __future__ import annotations

from time import sleep
from typing import Final

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka._model import TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from kgroup.testing.admin import create_topic
from tests.broker.interop.clients import PATIENCE, until
from tests.brokers import Kafka, unique

OFFSETS: Final = "__consumer_offsets"


@pytest.fixture
def admin(kafka: Kafka) -> AdminClient:
    """A client of a broker on which a group has committed."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    topic = unique("own")
    create_topic(kafka.bootstrap_servers, topic)
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": unique("g")}
    consumer = Consumer(settings)

    def committed() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition(topic, 0, 0)], asynchronous=False)
        except KafkaException:  # a real broker is still loading its coordinator
            return False
        return True

    try:
        until(committed, lambda: sleep(0.1), "a commit")
    finally:
        consumer.close()
    return admin


def test_the_topic_of_commits_is_internal(admin: AdminClient) -> None:
    """It is among all topics, and described as Kafka's own, with a leader for each partition."""
    listed = admin.list_topics().topics
    assert OFFSETS in listed
    described = admin.describe_topics(TopicCollection([OFFSETS]))[OFFSETS].result()
    assert described.is_internal
    assert [one.id for one in described.partitions] == sorted(listed[OFFSETS].partitions)
    assert all(one.leader is not None for one in described.partitions)
    assert str(described.topic_id) != "AAAAAAAAAAAAAAAAAAAAAA"


@pytest.mark.parametrize(
    ("name", "code"),
    [
        (OFFSETS, KafkaError.TOPIC_ALREADY_EXISTS),
        ("__cluster_metadata", KafkaError.INVALID_REQUEST),
    ],
)
def test_none_can_be_created(admin: AdminClient, name: str, code: int) -> None:
    """The request is refused with Kafka's code."""
    with pytest.raises(KafkaException) as refused:
        admin.create_topics([NewTopic(name, 1, 1)])[name].result()
    assert refused.value.args[0].code() == code


def test_none_can_be_written_to(kafka: Kafka, admin: AdminClient) -> None:
    """A record for it is refused."""
    del admin  # it has made the topic
    failures: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    producer.produce(OFFSETS, b"x", on_delivery=lambda error, _: failures.append(error))
    producer.flush(PATIENCE)
    (error,) = failures
    assert error is not None
    assert error.code() == KafkaError.TOPIC_EXCEPTION
