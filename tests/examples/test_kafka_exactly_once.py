"""The example with Kafka transactions: each result is read once, whatever is killed."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from typing import Final

import confluent_kafka
from confluent_kafka import Consumer

from kgroup.types import TopicPartition
from tests.brokers import Kafka
from tests.conftest import ROOT
from tests.docs.test_code_blocks import block
from tests.examples.reader import Reader
from tests.examples.topic import Record, Topic
from tests.examples.worker import Worker, wait_until

EXAMPLE: Final = "examples/kafka_exactly_once.py"
BACKLOG: Final = 500
"""Records of each partition that are produced before each kill."""
KILLS: Final = 2


def results(target: Topic) -> list[Record]:
    """What a consumer that reads committed records finds in the topic; each names its record."""
    consumer = Consumer(
        {
            "bootstrap.servers": target.bootstrap_servers,
            "group.id": "unused",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    everything = [
        confluent_kafka.TopicPartition(one.topic, one.partition, 0) for one in target.partitions
    ]
    consumer.assign(everything)
    found: list[Record] = []
    ended: set[int | None] = set()
    while len(ended) < len(target.partitions):
        message = consumer.poll(30.0)
        assert message is not None, "the end of the results is not reached"
        if message.error() is not None:
            ended.add(message.partition())  # the only error is that a partition ends
            continue
        topic, number, offset = (message.value() or b"").decode().split()
        found.append((TopicPartition(topic, int(number)), int(offset)))
    consumer.close()
    return sorted(found)


def test_workers_that_are_killed(reader: Reader, topic: Topic, kafka: Kafka) -> None:
    """Two workers are killed again and again in the middle of the backlog, with kill -9."""
    target = Topic.create(kafka, partitions=2)
    group_id = f"{topic.name}-to-{target.name}"

    def start(name: str) -> Worker:
        arguments = (topic.bootstrap_servers, topic.name, target.name, name)
        return Worker(reader, EXAMPLE, *arguments)

    produced: list[Record] = []
    for _ in range(KILLS):
        produced += topic.produce(BACKLOG)
        with start("a") as a, start("b") as b:
            wait_until(lambda: a.catch_up() + b.catch_up() > 1)  # called at once
            for worker in (a, b):
                worker.send(signal.SIGKILL)
                assert worker.ended() == -signal.SIGKILL
    with ExitStack() as stack:
        workers = [stack.enter_context(start(name)) for name in ("a", "b")]
        topic.wait_until_committed(group_id)
        for worker in workers:
            worker.send(signal.SIGTERM)
            assert worker.ended() == 0
    assert results(target) == sorted(produced)


def test_the_page_shows_the_example() -> None:
    """The code in docs/transactions.md is a part of the example, which the test above runs."""
    example = (ROOT / EXAMPLE).read_text(encoding="utf-8")
    assert block("docs/transactions.md", 0) in example
