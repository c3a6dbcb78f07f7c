"""Runs each example that is a worker as its reader does, on both brokers.

Each is stopped in the middle of a backlog and started again, as in a deployment: what it says of
its end is shown by what the second run reads.
"""

from __future__ import annotations

import signal
from collections import Counter
from typing import Final

import pytest

from tests.examples.reader import Reader
from tests.examples.topic import Record, Topic, next_offsets
from tests.examples.worker import Worker

BACKLOG: Final = 3000
"""Records of each partition: more than a worker processes before it is stopped."""
BEGUN: Final = 10
"""A worker that has printed this many lines is in the middle of its work."""


def said(topic: Topic, name: str, number: signal.Signals) -> str:
    """What ``run`` writes on standard error when it ends."""
    group_id = f"{topic.name}-{name.removesuffix('_worker')}"
    return (
        f"kgroup: the worker of group {group_id!r} has finished its work and left: {number.name}\n"
    )


def stopped(reader: Reader, topic: Topic, name: str, number: signal.Signals) -> list[Record]:
    """Run an example until it has begun, stop it by a signal, and return what it has printed."""
    with Worker(reader, f"examples/{name}.py", topic.bootstrap_servers, topic.name) as worker:
        worker.until(lambda lines: len(lines) >= BEGUN)
        worker.send(number)
        assert worker.ended() == 0
        assert worker.errors in ("", said(topic, name, number))
        return topic.printed(worker.lines)


def finished(
    reader: Reader, topic: Topic, name: str, count: int, number: signal.Signals
) -> list[Record]:
    """Run an example until it has printed this number of records, and return them."""
    with Worker(reader, f"examples/{name}.py", topic.bootstrap_servers, topic.name) as worker:
        worker.until(lambda lines: len(lines) >= count)
        worker.send(number)
        assert worker.ended() == 0
        assert worker.errors in ("", said(topic, name, number))
        return topic.printed(worker.lines)


@pytest.mark.parametrize(
    ("name", "group", "backlog", "first", "second"),
    [
        ("trio_worker", "trio", BACKLOG, signal.SIGTERM, signal.SIGINT),
        ("trio_worker", "trio", BACKLOG, signal.SIGINT, signal.SIGTERM),
        ("threaded_worker", "threaded", BACKLOG, signal.SIGTERM, signal.SIGINT),
        ("graceful_shutdown", "graceful", 60, signal.SIGTERM, signal.SIGINT),
        ("simplest_worker", "simplest", BACKLOG, signal.SIGTERM, signal.SIGINT),
        ("pool_worker", "pool", BACKLOG, signal.SIGTERM, signal.SIGINT),
    ],
)
def test_a_worker_that_is_stopped_finishes_what_it_holds(
    reader: Reader,
    topic: Topic,
    name: str,
    group: str,
    backlog: int,
    first: signal.Signals,
    second: signal.Signals,
) -> None:
    """No record is lost or repeated, printed records are committed, and the member has left."""
    group_id = f"{topic.name}-{group}"
    produced = topic.produce(backlog)
    before = stopped(reader, topic, name, first)
    assert topic.members(group_id) == []
    assert topic.committed(group_id) == next_offsets(before)
    after = finished(reader, topic, name, len(produced) - len(before), second)
    assert topic.members(group_id) == []
    assert sorted(before + after) == produced
    assert topic.committed(group_id) == topic.ends()


def test_a_worker_without_tasks_loses_nothing(reader: Reader, topic: Topic) -> None:
    """Ctrl-C ends it at once: the next run repeats the uncommitted records, and no others."""
    name, group_id = "body_worker", f"{topic.name}-body"
    produced = topic.produce(BACKLOG)
    before = stopped(reader, topic, name, signal.SIGINT)
    assert topic.members(group_id) == []
    committed = topic.committed(group_id)
    open_work = [(where, at) for where, at in produced if at >= committed.get(where, 0)]
    after = finished(reader, topic, name, len(open_work), signal.SIGINT)
    assert topic.members(group_id) == []
    assert Counter(after).keys() == set(open_work)
    assert len(after) == len(open_work)
    assert set(before + after) == set(produced)
