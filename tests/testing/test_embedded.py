"""The embedded broker in a thread, for clients that block."""

from __future__ import annotations

import threading

import pytest
from confluent_kafka import Consumer, Producer

from kgroup.errors import ConfigError, UsageError
from kgroup.testing.embedded import EmbeddedKafka
from kgroup.types import TopicPartition

P0 = TopicPartition("orders", 0)


def test_clients_that_block_can_use_it(embedded_kafka: EmbeddedKafka) -> None:
    """A producer and a consumer of the same process write and read through it."""
    embedded_kafka.create_topic("orders")
    assert embedded_kafka.append("orders", 0, [b"first"]) == 0
    producer = Producer({"bootstrap.servers": embedded_kafka.bootstrap_servers})
    producer.produce("orders", b"second", partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer(
        {
            "bootstrap.servers": embedded_kafka.bootstrap_servers,
            "group.id": "group",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    messages = [consumer.poll(30) for _ in range(2)]
    assert [one.value() for one in messages if one is not None] == [b"first", b"second"]
    consumer.commit(asynchronous=False)
    consumer.close()
    assert embedded_kafka.committed("group")[P0].offset == 2


def test_calls_in_the_broker_s_thread(embedded_kafka: EmbeddedKafka) -> None:
    """Functions that are async, and those that are not; what they raise comes back."""
    broker = next(iter(embedded_kafka.cluster.nodes.values()))
    fault = embedded_kafka.call(broker.inject, "Heartbeat", "NOT_COORDINATOR", times=1)
    assert fault.error_code == 16
    embedded_kafka.call(fault.cancel)
    embedded_kafka.call(embedded_kafka.cluster.create_topic, "called", 1)
    with pytest.raises(ValueError, match="no API 'nope'"):
        embedded_kafka.call(broker.slow, 1.0, "nope")


def test_several_brokers(own_embedded_kafka: type[EmbeddedKafka]) -> None:
    """It takes settings and a number of brokers, and leaders can be moved."""
    kafka = own_embedded_kafka(brokers=2, settings={"num.partitions": 3})
    assert len(kafka.bootstrap_servers.split(",")) == 2
    kafka.create_topic("orders")
    before = kafka.cluster.leader_of(P0)
    after = next(one for one in kafka.cluster.nodes if one != before)
    kafka.call(kafka.cluster.move_leader, P0, after)
    assert kafka.cluster.leader_of(P0) == after


def test_its_thread_ends_with_it() -> None:
    """Leaving the block joins the thread; before and after, calls are refused."""
    kafka = EmbeddedKafka()
    with pytest.raises(UsageError, match="is not running"):
        kafka.create_topic("orders")
    with kafka:
        names = {one.name for one in threading.enumerate()}
        assert "kgroup-embedded-kafka" in names
        assert "127.0.0.1" in repr(kafka)
    assert "kgroup-embedded-kafka" not in {one.name for one in threading.enumerate()}
    with pytest.raises(UsageError, match="is not running"):
        _ = kafka.bootstrap_servers


def test_a_wrong_setting_is_raised_to_the_caller() -> None:
    """A wrong setting raises in the caller, not in the thread."""
    with pytest.raises(ConfigError, match=r"no\.such\.thing"), EmbeddedKafka({"no.such.thing": 1}):
        pytest.fail("it runs")
