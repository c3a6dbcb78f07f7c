"""docs/transactions.md: the producers' settings. tests/examples runs the programs themselves."""

from __future__ import annotations

import ast
from collections.abc import Callable
from contextlib import nullcontext
from time import sleep
from typing import Any

import pytest
from confluent_kafka import KafkaException, Producer

from kgroup.config import GroupConfig
from kgroup.errors import CommitUnknownError, UsageError
from kgroup.testing.admin import end_offsets
from kgroup.testing.embedded import EmbeddedKafka
from kgroup.threaded import ConsumerGroup
from kgroup.types import TopicPartition
from tests.examples.test_transactions_in_docs import THREADS, TRIO

PRICES = TopicPartition("prices", 0)
ORDERS, OTHER = TopicPartition("orders", 0), TopicPartition("orders", 1)
MARKER = 1
"""The end of a transaction takes an offset, too."""


def settings_in(program: str) -> dict[str, Any]:
    """What a program gives to ``Producer``, but for its names; each is a string in its place."""
    (call,) = (
        node
        for node in ast.walk(ast.parse(program))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Producer"
    )
    (given,) = call.args
    assert isinstance(given, ast.Dict)
    return {
        ast.literal_eval(key): value.value if isinstance(value, ast.Constant) else "a-name"
        for key, value in zip(given.keys, given.values, strict=True)
        if key is not None
    }


@pytest.mark.parametrize("program", [THREADS, TRIO], ids=["threads", "trio"])
def test_a_leader_that_was_not_ready(program: str, embedded_kafka: EmbeddedKafka) -> None:
    """The first request to a partition is refused: its results are in the transaction all the same.

    librdkafka would take them for written if it had sent a second request meanwhile.
    """
    embedded_kafka.create_topic(PRICES.topic)
    broker = embedded_kafka.cluster.nodes[1]
    embedded_kafka.call(broker.slow, 0.3, "Produce", 1)
    embedded_kafka.call(broker.inject, "Produce", "NOT_LEADER_OR_FOLLOWER")
    changes = {"bootstrap.servers": embedded_kafka.bootstrap_servers, "log_level": 0}
    producer = Producer({**settings_in(program), **changes, "batch.num.messages": 1})
    producer.init_transactions(30)
    producer.begin_transaction()
    for number in range(5):
        producer.produce(PRICES.topic, str(number))
    producer.commit_transaction(30)
    assert end_offsets(embedded_kafka.bootstrap_servers, [PRICES]) == {PRICES: 5 + MARKER}


def started(servers: str) -> Producer:
    """A producer, always with the same id."""
    settings = {"transactional.id": "a-name", "transaction.timeout.ms": 20_000, "log_level": 0}
    producer = Producer({"bootstrap.servers": servers, "socket.timeout.ms": 2000, **settings})
    producer.init_transactions(30)
    return producer


def finish(call: Callable[[float], object]) -> None:
    """Call again while the producer says that this helps, as the page's programs do."""
    while True:
        try:
            call(10)
        except KafkaException as error:
            if not error.args[0].retriable():
                raise
            sleep(0.1)
        else:
            return


@pytest.mark.parametrize("new", [True, False])
def test_offsets_that_arrive_in_a_later_transaction(
    new: bool, embedded_kafka: EmbeddedKafka
) -> None:
    """Kafka would commit those of an aborted batch with it, if no new producer had made it."""
    servers = embedded_kafka.bootstrap_servers
    embedded_kafka.create_topic(ORDERS.topic, 2)
    broker = embedded_kafka.cluster.nodes[1]
    producer = started(servers)
    config = GroupConfig(
        bootstrap_servers=servers, group_id="pricing", topics=["orders"], commit_timeout=1.0
    )
    with ConsumerGroup(config) as group:
        generation = next(iter(group))
        producer.begin_transaction()
        embedded_kafka.call(broker.slow, 6.0, "TxnOffsetCommit", 1)
        with pytest.raises(CommitUnknownError):
            generation.commit_in_transaction(producer, {ORDERS: 10}, beyond_read=True)
        finish(producer.abort_transaction)
        if new:
            producer = started(servers)
        producer.begin_transaction()
        refused = nullcontext() if new else pytest.raises(UsageError, match="make a new one")
        with refused:
            generation.commit_in_transaction(producer, {OTHER: 7}, beyond_read=True)
        sleep(6)
        finish(producer.commit_transaction if new else producer.abort_transaction)
    committed = {name: at.offset for name, at in embedded_kafka.committed("pricing").items()}
    assert committed == ({OTHER: 7} if new else {})
