"""docs/transactions.md: the producers' settings. tests/examples runs the programs themselves."""

from __future__ import annotations

import ast
from typing import Any

import pytest
from confluent_kafka import Producer

from kgroup.testing.admin import end_offsets
from kgroup.testing.embedded import EmbeddedKafka
from kgroup.types import TopicPartition
from tests.examples.test_transactions_in_docs import THREADS, TRIO

PRICES = TopicPartition("prices", 0)
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
