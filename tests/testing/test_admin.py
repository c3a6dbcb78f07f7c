"""The helpers for topics, records and offsets on a broker."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import trio
from confluent_kafka import Consumer, KafkaException
from confluent_kafka import TopicPartition as Position

from kgroup.broker import Acl, BrokerSecurity, serve
from kgroup.errors import AuthenticationError
from kgroup.security.credentials import Credentials
from kgroup.security.settings import Security
from kgroup.testing.admin import (
    add_partitions,
    committed_offsets,
    create_topic,
    delete_topic,
    end_offsets,
    produce,
)
from kgroup.testing.embedded import EmbeddedKafka
from kgroup.testing.kafka import KafkaAddress
from kgroup.testing.secure_listener import unsecured_token
from kgroup.types import OffsetAndMetadata, TopicPartition


def test_the_answer_says_where_records_are(real_kafka: KafkaAddress) -> None:
    """Each value's partition and offset are returned in the order of the values."""
    server = real_kafka.bootstrap_servers
    create_topic(server, "admin-produce", 2)
    first = produce(server, "admin-produce", ["a", "b"], partition=1)
    assert first == [(TopicPartition("admin-produce", 1), offset) for offset in (0, 1)]
    keyed = produce(server, "admin-produce", ["c", "d", "e"], keys=["k", "k", "k"])
    assert len({partition for partition, _ in keyed}) == 1
    ends = end_offsets(server, [TopicPartition("admin-produce", p) for p in (0, 1)])
    assert sum(ends.values()) == 5


def test_topics_are_created_extended_and_deleted(real_kafka: KafkaAddress) -> None:
    """A call returns when its effect is visible on the broker."""
    server = real_kafka.bootstrap_servers
    create_topic(server, "admin-grow", 1, {"retention.ms": "1000"})
    add_partitions(server, "admin-grow", 3)
    produce(server, "admin-grow", ["a"], partition=2)
    delete_topic(server, "admin-grow")
    create_topic(server, "admin-grow", 2)
    assert end_offsets(server, [TopicPartition("admin-grow", 1)]) == {
        TopicPartition("admin-grow", 1): 0
    }
    with pytest.raises(KafkaException, match="already exists"):
        create_topic(server, "admin-grow")


def test_committed_offsets_are_returned(real_kafka: KafkaAddress) -> None:
    """A committed offset has its leader epoch, also 0; a partition without one is None."""
    server = real_kafka.bootstrap_servers
    create_topic(server, "admin-commit", 2)
    consumer = Consumer({"bootstrap.servers": server, "group.id": "admin-commit"})
    try:
        consumer.commit(
            offsets=[Position("admin-commit", 0, 7, leader_epoch=0)], asynchronous=False
        )
    finally:
        consumer.close()
    partitions = [TopicPartition("admin-commit", number) for number in (0, 1)]
    assert committed_offsets(server, "admin-commit", partitions) == {
        partitions[0]: OffsetAndMetadata(7, 0),
        partitions[1]: None,
    }


def test_an_unacknowledged_record_is_an_error(real_kafka: KafkaAddress) -> None:
    """A record for a partition that does not exist raises."""
    create_topic(real_kafka.bootstrap_servers, "admin-refused")
    with pytest.raises(KafkaException):
        produce(real_kafka.bootstrap_servers, "admin-refused", ["a"], partition=5)


ALICE = Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN", username="alice", password="a")  # noqa: S106


@pytest.mark.parametrize("mechanism", ["PLAIN", "OAUTHBEARER"])
async def test_logins_that_are_looked_up(mechanism: str) -> None:
    """A function of ``Security`` gives each call its user and password, or its token."""
    looked_up: dict[str, Any] = {
        "PLAIN": {"credentials": lambda: Credentials("alice", "a")},
        "OAUTHBEARER": {"token": lambda: unsecured_token("alice")},
    }
    login = Security(protocol="SASL_PLAINTEXT", mechanism=mechanism, **looked_up[mechanism])
    partition = TopicPartition("orders", 0)
    async with serve(
        security=BrokerSecurity(users={"alice": "a"}, mechanisms=[mechanism])
    ) as broker:
        for call, expected in (
            (partial(create_topic, topic="orders"), None),
            (partial(produce, topic="orders", values=["a"]), [(partition, 0)]),
            (partial(end_offsets, partitions=[partition]), {partition: 1}),
            (
                partial(committed_offsets, group_id="billing", partitions=[partition]),
                {partition: None},
            ),
        ):
            ask = partial(call, broker.bootstrap_servers, security=login, timeout=20.0)
            assert await trio.to_thread.run_sync(ask) == expected


def test_a_login_that_cannot_be_looked_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """The call raises what the function of ``Security`` has raised, and connects to nothing."""
    monkeypatch.setattr("kgroup.wire.logins.FIRST_WAIT", 0.01)

    def fail() -> Credentials:
        raise OSError("the vault is sealed")

    login = Security(protocol="SASL_PLAINTEXT", mechanism="PLAIN", credentials=fail)
    with pytest.raises(AuthenticationError, match="the vault is sealed"):
        end_offsets("127.0.0.1:1", [TopicPartition("orders", 0)], security=login)


async def test_missing_permissions_are_noted() -> None:
    """Each call's error has a note that names the operation, and the topic or the group."""
    rights = (("describe", "t"), ("describe", "u"), ("write", "u"))
    security = BrokerSecurity(
        users={"alice": "a"},
        acls=[Acl("alice", operation, "topic", topic) for operation, topic in rights],
    )
    calls: dict[str, Callable[..., Any]] = {
        "CREATE on topic 'new'": partial(create_topic, topic="new"),
        "ALTER on topic 't'": partial(add_partitions, topic="t", total=2),
        "DELETE on topic 't'": partial(delete_topic, topic="t"),
        "WRITE on topic 't'": partial(produce, topic="t", values=["a"]),
    }
    async with serve(security=security) as broker:
        for topic in ("t", "u", "hidden"):
            await broker.create_topic(topic, 1)
        for needed, call in calls.items():
            ask = partial(call, broker.bootstrap_servers, security=ALICE)
            with pytest.raises(KafkaException) as caught:
                await trio.to_thread.run_sync(ask)
            (note,) = caught.value.__notes__
            assert note.startswith(f"grant the user {needed}")
            assert ("or correct its name" in note) is not needed.startswith("CREATE")
        hidden = [TopicPartition("hidden", 0)]
        ask = partial(end_offsets, broker.bootstrap_servers, hidden, security=ALICE)
        with pytest.raises(KafkaException) as caught:
            await trio.to_thread.run_sync(ask)
        assert "or the user lacks DESCRIBE on 'hidden'" in caught.value.__notes__[0]


def test_records_produced_while_a_leader_is_not_ready(embedded_kafka: EmbeddedKafka) -> None:
    """The first request is refused: its records are written before those of later requests.

    librdkafka would take them for written if it had sent a second request meanwhile.
    """
    embedded_kafka.create_topic("orders")
    broker = embedded_kafka.cluster.nodes[1]
    embedded_kafka.call(broker.slow, 0.3, "Produce", 1)
    embedded_kafka.call(broker.inject, "Produce", "NOT_LEADER_OR_FOLLOWER")
    first = TopicPartition("orders", 0)
    half_a_request = b"x" * 600_000
    placed = produce(embedded_kafka.bootstrap_servers, "orders", [half_a_request] * 4, partition=0)
    assert placed == [(first, offset) for offset in range(4)]
