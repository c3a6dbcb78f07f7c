"""The PostgreSQL example without Spark: each record is in the table once, whatever is killed."""

from __future__ import annotations

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import psycopg
import pytest

from kgroup.testing.postgres import Postgres
from kgroup.types import TopicPartition
from tests.brokers import Kafka
from tests.examples.fence import Checkout, check_fence
from tests.examples.topic import Record, Topic
from tests.examples.worker import Worker, wait_until

EXAMPLE: Final = "examples/postgres_exactly_once.py"
BACKLOG: Final = 1000
"""Records of each partition that are produced before each kill."""
KILLS: Final = 3


def in_table(url: str, topic: str) -> list[Record]:
    """The records of a topic that the table has."""
    query = 'SELECT topic, partition, "offset" FROM records WHERE topic = %s'
    with psycopg.connect(url) as database:
        if database.execute("SELECT to_regclass('records')").fetchone() == (None,):
            return []
        rows = database.execute(query, [topic]).fetchall()
    return sorted((TopicPartition(name, number), at) for name, number, at in rows)


@pytest.mark.timeout(600)
def test_workers_that_are_killed(kafka: Kafka, postgres: Postgres) -> None:
    """Two workers are killed again and again in the middle of the backlog, with kill -9."""
    topic = Topic.create(kafka, partitions=4)

    def start(name: str) -> Worker:
        arguments = (topic.bootstrap_servers, topic.name, postgres.url, name)
        return Worker(Checkout(), EXAMPLE, *arguments)

    produced: list[Record] = []
    for _ in range(KILLS):
        before = len(in_table(postgres.url, topic.name))
        produced += topic.produce(BACKLOG)
        with start("a") as a, start("b") as b:
            wait_until(lambda: len(in_table(postgres.url, topic.name)) > before)  # noqa: B023 # called at once
            a.send(signal.SIGKILL)
            b.send(signal.SIGKILL)
            assert (a.ended(), b.ended()) == (-signal.SIGKILL, -signal.SIGKILL)
    with ExitStack() as stack:
        workers = [stack.enter_context(start(name)) for name in ("a", "b")]
        # Everything may be done already; a worker that has not begun would be killed by SIGTERM.
        topic.wait_until_shared(f"{topic.name}-postgres", len(workers))
        topic.wait_until_committed(f"{topic.name}-postgres")
        for worker in workers:
            worker.send(signal.SIGTERM)
            assert worker.ended() == 0
    assert in_table(postgres.url, topic.name) == sorted(produced)


def test_a_woken_worker_cannot_write(kafka: Kafka, postgres: Postgres, tmp_path: Path) -> None:
    """A worker that SIGSTOP stops just before its transaction writes nothing once it wakes."""
    url = postgres.url
    check_fence(
        "postgres_exactly_once", kafka, url, lambda topic: in_table(url, topic.name), tmp_path
    )
