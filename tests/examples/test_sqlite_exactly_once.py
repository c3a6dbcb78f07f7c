"""The SQLite example: each record is in the table once, whatever is killed or left behind."""

from __future__ import annotations

import importlib.util
import signal
import sqlite3
from collections.abc import Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import attrs
import pytest

from kgroup.errors import StaleGenerationError
from kgroup.interfaces import Batch
from kgroup.types import TopicPartition
from tests.brokers import Kafka
from tests.examples.fence import check_fence
from tests.examples.reader import Reader
from tests.examples.topic import Record, Topic
from tests.examples.worker import Worker, wait_until

EXAMPLE: Final = "examples/sqlite_exactly_once.py"
BACKLOG: Final = 1000
"""Records of each partition that are produced before each kill."""
KILLS: Final = 3
P0: Final = TopicPartition("orders", 0)
OLD: Final[Any] = SimpleNamespace(generation_id=7, end=None)
NEW: Final[Any] = SimpleNamespace(generation_id=8, end=None)


def in_table(path: Path) -> list[Record]:
    """The records that the table has."""
    with closing(sqlite3.connect(path, timeout=60)) as database:
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = 'records'").fetchall():
            return []
        rows = database.execute("SELECT topic, partition, offset FROM records").fetchall()
    return sorted((TopicPartition(topic, number), at) for topic, number, at in rows)


def test_workers_that_are_killed(reader: Reader, topic: Topic, tmp_path: Path) -> None:
    """Two workers are killed again and again in the middle of the backlog, with kill -9."""
    path = tmp_path / "orders.db"

    def start(name: str) -> Worker:
        arguments = (topic.bootstrap_servers, topic.name, str(path), name)
        return Worker(reader, EXAMPLE, *arguments)

    produced: list[Record] = []
    for _ in range(KILLS):
        before = len(in_table(path))
        produced += topic.produce(BACKLOG)
        with start("a") as a, start("b") as b:
            wait_until(lambda: len(in_table(path)) > before)  # noqa: B023 # called at once
            a.send(signal.SIGKILL)
            b.send(signal.SIGKILL)
            assert (a.ended(), b.ended()) == (-signal.SIGKILL, -signal.SIGKILL)
    with ExitStack() as stack:
        workers = [stack.enter_context(start(name)) for name in ("a", "b")]
        # Everything may be done already; a worker that has not begun would be killed by SIGTERM.
        topic.wait_until_shared(f"{topic.name}-sqlite", len(workers))
        topic.wait_until_committed(f"{topic.name}-sqlite")
        for worker in workers:
            worker.send(signal.SIGTERM)
            assert worker.ended() == 0
    assert in_table(path) == sorted(produced)


@attrs.frozen
class FakeMessage:
    """What the example reads of a message."""

    at: int

    def offset(self) -> int:
        """Its offset."""
        return self.at

    def value(self) -> bytes:
        """Its value."""
        return b"%d" % self.at


def a_batch(start: int, offsets: Sequence[int]) -> Batch:
    """A batch that continues at an offset."""
    messages: Any = [FakeMessage(at) for at in offsets]
    return Batch(
        partition=P0, messages=messages, next_offset=offsets[-1] + 1, start_offset=start, epoch=1
    )


@pytest.fixture
def example() -> Any:
    """The example as a module."""
    path = Path(__file__).parents[2] / EXAMPLE
    spec = importlib.util.spec_from_file_location("sqlite_exactly_once", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_an_older_generation_is_refused(example: Any, tmp_path: Path) -> None:
    """It writes until a newer generation has written anything, even no record, and nothing then."""
    path = tmp_path / "orders.db"
    old, new = example.Store(str(path)), example.Store(str(path))
    assert new.starts((P0,)) == {P0: 0}
    old.write(OLD, a_batch(0, range(5)))
    # The new owner does not know that, and goes on where it was.
    new.write(NEW, a_batch(0, range(4)))
    with pytest.raises(StaleGenerationError, match="generation 8 has written to it, and this is 7"):
        old.write(OLD, a_batch(5, range(5, 10)))
    assert in_table(path) == [(P0, at) for at in range(5)]
    new.write(NEW, a_batch(4, range(4, 20)))
    assert in_table(path) == [(P0, at) for at in range(20)]
    assert new.starts((P0,)) == {P0: 20}


def test_a_database_that_was_deleted_gets_every_record_again(example: Any, tmp_path: Path) -> None:
    """It begins where the topic does, not where the group has committed."""
    path = tmp_path / "orders.db"
    example.Store(str(path)).write(OLD, a_batch(0, range(5)))
    path.unlink()
    new = example.Store(str(path))
    assert new.starts((P0,)) == {P0: 0}
    new.write(NEW, a_batch(3, range(3, 8)))  # the log does not begin at 0 any more
    assert in_table(path) == [(P0, at) for at in range(3, 8)]


def test_a_member_whose_generation_id_repeats_repeats_nothing(example: Any, tmp_path: Path) -> None:
    """After a crash of the coordinator two members may have one id: each writes what is new."""
    path = tmp_path / "orders.db"
    one, other = example.Store(str(path)), example.Store(str(path))
    other.write(OLD, a_batch(0, range(10)))
    # It holds records that the other one has written, some or all of them.
    one.write(OLD, a_batch(0, range(5)))
    one.write(OLD, a_batch(5, range(5, 10)))
    assert in_table(path) == [(P0, at) for at in range(10)]
    one.write(OLD, a_batch(10, range(10, 12)))
    other.write(OLD, a_batch(10, range(10, 20)))
    assert in_table(path) == [(P0, at) for at in range(20)]


def test_a_woken_worker_cannot_write(kafka: Kafka, tmp_path: Path) -> None:
    """A worker that SIGSTOP stops just before its transaction writes nothing once it wakes."""
    path = tmp_path / "orders.db"
    check_fence("sqlite_exactly_once", kafka, str(path), lambda _: in_table(path), tmp_path)


def test_offsets_without_records_are_no_gap(example: Any, tmp_path: Path) -> None:
    """A compacted log, or one with transactions, has offsets without records."""
    path = tmp_path / "orders.db"
    store = example.Store(str(path))
    store.write(OLD, a_batch(0, [3, 4]))
    store.write(OLD, a_batch(5, [9]))
    assert in_table(path) == [(P0, at) for at in (3, 4, 9)]


@pytest.mark.parametrize("start", [0, 9, 11])
def test_a_batch_that_does_not_follow_is_refused(example: Any, tmp_path: Path, start: int) -> None:
    """Its partition was reset: records are lost, or the topic was created again."""
    path = tmp_path / "orders.db"
    example.Store(str(path)).write(OLD, a_batch(0, range(10)))
    store = example.Store(str(path))
    assert store.starts((P0,)) == {P0: 10}
    with pytest.raises(example.GapError, match=f"starts at {start}, not at 10"):
        store.write(OLD, a_batch(start, [start]))
    assert len(in_table(path)) == 10
    store.write(OLD, a_batch(10, [10]))
    with pytest.raises(example.GapError, match="not at 11; the database has the records before 11"):
        store.write(OLD, a_batch(12, [12]))


def test_an_older_database_is_refused(example: Any, tmp_path: Path) -> None:
    """It has less than this worker has written."""
    path, copy = tmp_path / "orders.db", tmp_path / "copy.db"
    store = example.Store(str(path))
    copy.write_bytes(path.read_bytes())
    store.write(OLD, a_batch(0, range(10)))
    example.Store(str(copy)).write(OLD, a_batch(0, range(5)))
    copy.replace(path)
    with pytest.raises(example.GapError, match="the database has the records before 5"):
        store.write(OLD, a_batch(10, range(10, 12)))
