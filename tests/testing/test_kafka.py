"""A real Kafka: the one that tests share, and one that is stopped, killed and started again."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import Consumer, Producer, TopicPartition

from kgroup.testing.admin import create_topic
from kgroup.testing.kafka import KafkaAddress, RealKafka


def test_records_come_back(real_kafka: KafkaAddress) -> None:
    """What is produced to the shared broker is read from it."""
    producer = Producer({"bootstrap.servers": real_kafka.bootstrap_servers})
    create_topic(real_kafka.bootstrap_servers, "come-back")
    producer.produce("come-back", b"value")
    assert producer.flush(20) == 0
    consumer = Consumer(
        {"bootstrap.servers": real_kafka.bootstrap_servers, "group.id": "come-back"}
    )
    try:
        consumer.assign([TopicPartition("come-back", 0, 0)])
        message = consumer.poll(20)
        assert message is not None
        assert message.value() == b"value"
    finally:
        consumer.close()


def test_killed_broker_returns(own_kafka: Callable[..., RealKafka]) -> None:
    """A broker that was killed starts again at the same address."""
    kafka = own_kafka(settings={"group.max.size": 4})
    address = kafka.bootstrap_servers
    kafka.kill()
    kafka.start()
    assert kafka.bootstrap_servers == address
