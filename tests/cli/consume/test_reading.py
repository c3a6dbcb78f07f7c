"""How ``kgroup consume`` commits and ends, with a consumer that answers as the test says."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import attrs
import pytest
from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException
from confluent_kafka import TopicPartition as Position

from kgroup.cli.admin_client import ClusterError
from kgroup.cli.consume import reading
from kgroup.cli.consume.formats import Record
from kgroup.cli.consume.reading import ConsumeOptions, Reading
from kgroup.security.settings import Security
from kgroup.types import IsolationLevel

AWAY = KafkaException(KafkaError(KafkaError._WAIT_COORD))


@pytest.fixture(autouse=True)
def _no_thread_remains() -> Iterator[None]:
    """Once what a reading waits for has come, its thread ends."""
    yield
    for one in threading.enumerate():
        if one.name == "kgroup-consume":
            one.join(60)
            assert not one.is_alive()


class Scripted:
    """A consumer; each commit meets the next outcome, an exception or None.

    Attributes:
        commits: the offsets of each commit.
        closed: whether it was closed.
        hangs: what a commit waits for, if it is to hang.
        closing_hangs: what closing waits for, if it is to hang.
        messages: what the next call returns.
    """

    def __init__(self, *outcomes: Exception | None) -> None:
        self.commits: list[list[int]] = []
        self.closed = False
        self.hangs: threading.Event | None = None
        self.closing_hangs: threading.Event | None = None
        self.on_assign: Callable[[Any, Any], None] | None = None
        self.on_revoke: Callable[[Any, Any], None] | None = None
        self.messages: list[object] = []
        self._outcomes = list(outcomes)

    def subscribe(self, _: list[str], *, on_assign: Any, on_revoke: Any, **__: object) -> None:
        """As a ``confluent_kafka.Consumer``."""
        self.on_assign = on_assign
        self.on_revoke = on_revoke

    def consume(self, *_: object) -> list[object]:
        """As a ``confluent_kafka.Consumer``; there is no record, unless the test gives some."""
        found, self.messages = self.messages, []
        return found

    def commit(self, *, offsets: list[Any], asynchronous: bool) -> list[Any]:
        """As a ``confluent_kafka.Consumer``."""
        assert not asynchronous
        self.commits.append([one.offset for one in offsets])
        if self.hangs is not None:
            self.hangs.wait()
        outcome = self._outcomes.pop(0) if self._outcomes else None
        if outcome is not None:
            raise outcome
        return offsets

    def close(self) -> None:
        """As a ``confluent_kafka.Consumer``."""
        if self.closing_hangs is not None:
            self.closing_hangs.wait()
        self.closed = True


def opened(
    monkeypatch: pytest.MonkeyPatch, consumer: Scripted, timeout: float
) -> tuple[Reading, list[str]]:
    """A reading in a group by this consumer, and its warnings."""
    monkeypatch.setattr(reading, "Consumer", lambda _: consumer)
    monkeypatch.setattr(reading, "_COMMIT_INTERVAL", 0.0)
    options = ConsumeOptions(
        bootstrap_servers="127.0.0.1:1",
        security=Security(),
        isolation=IsolationLevel.READ_UNCOMMITTED,
        topics=("orders",),
        group_id="readers",
        from_beginning=True,
        positions={},
        timeout=timeout,
    )
    said: list[str] = []
    return Reading(options, said.append), said


RECORD = Record(topic="orders", partition=0, offset=4)


def test_a_commit_that_fails_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """With the next one, and at the end at the latest."""
    consumer = Scripted(AWAY, None)
    opening, said = opened(monkeypatch, consumer, 60)
    with opening as open_reading:
        open_reading.printed([RECORD])
        open_reading.next()
    assert (consumer.commits, consumer.closed) == ([[5], [5]], True)
    assert len(said) == 1
    assert not open_reading.uncommitted


def test_a_last_commit_that_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reading says so, because that commit is not sent again."""
    consumer = Scripted(AWAY)
    opening, said = opened(monkeypatch, consumer, 60)
    with opening as open_reading:
        open_reading.printed([RECORD])
    assert (consumer.closed, open_reading.uncommitted, len(said)) == (True, True, 1)


def test_a_commit_that_fails_is_not_made_after_the_partition(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its next owner may have read further."""
    consumer = Scripted(AWAY, AWAY)
    opening, _ = opened(monkeypatch, consumer, 60)
    with opening as open_reading:
        open_reading.printed([RECORD])
        open_reading.next()
        assert consumer.on_revoke is not None
        consumer.on_revoke(consumer, [])
    assert (consumer.commits, consumer.closed) == ([[5], [5]], True)


def test_a_signal_while_a_commit_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the wait, and the consumer is not closed while the commit goes on."""
    consumer = Scripted()
    consumer.hangs = threading.Event()
    opening, said = opened(monkeypatch, consumer, 0.1)

    def signalled() -> None:
        raise SystemExit(130)

    with pytest.raises(SystemExit), opening as open_reading:
        open_reading.printed([RECORD])
        open_reading.next(signalled)
    assert (len(said), consumer.closed) == (1, False)
    consumer.hangs.set()


def test_an_end_without_an_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for one no longer than for others, and says what may follow."""
    consumer = Scripted()
    consumer.hangs = threading.Event()
    opening, said = opened(monkeypatch, consumer, 0.1)
    with opening as open_reading:
        open_reading.printed([RECORD])
    (text,) = said
    assert text == (
        "no answer within 0.1 s: the last offsets may not be committed, and the group gives the"
        " partitions to others when the session has ended"
    )
    assert not consumer.closed
    assert open_reading.uncommitted
    consumer.hangs.set()


@pytest.mark.parametrize("records", [[], [RECORD]])
def test_a_coordinator_that_hangs_after_the_last_commit(
    monkeypatch: pytest.MonkeyPatch, records: list[Record]
) -> None:
    """Only leaving the group got no answer: all that was printed is committed."""
    consumer = Scripted()
    consumer.closing_hangs = threading.Event()
    opening, said = opened(monkeypatch, consumer, 0.1)
    with opening as open_reading:
        open_reading.printed(records)
        open_reading.next()
    (text,) = said
    assert text == (
        "no answer within 0.1 s: the group gives the partitions to others when the session has"
        " ended"
    )
    assert not open_reading.uncommitted
    consumer.closing_hangs.set()


@attrs.frozen
class Received:
    """A message of librdkafka, as much of it as is used."""

    place: int
    failure: KafkaError | None = None

    def error(self) -> KafkaError | None:
        """As a ``confluent_kafka.Message``."""
        return self.failure

    def topic(self) -> str:
        """As a ``confluent_kafka.Message``."""
        return "orders"

    def partition(self) -> int:
        """As a ``confluent_kafka.Message``."""
        return 0

    def offset(self) -> int:
        """As a ``confluent_kafka.Message``."""
        return self.place

    def timestamp(self) -> tuple[int, int]:
        """As a ``confluent_kafka.Message``."""
        return TIMESTAMP_NOT_AVAILABLE, -1

    def key(self) -> None:
        """As a ``confluent_kafka.Message``."""

    def value(self) -> None:
        """As a ``confluent_kafka.Message``."""

    def headers(self) -> None:
        """As a ``confluent_kafka.Message``."""


def test_a_failure_behind_the_last_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reading is not finished before it has raised it, also if each end was reached."""
    consumer = Scripted()
    opening, _ = opened(monkeypatch, consumer, 60)
    with opening as open_reading:
        assert consumer.on_assign is not None
        consumer.on_assign(consumer, [Position("orders", 0)])
        consumer.messages = [
            Received(4),
            Received(5, KafkaError(KafkaError._PARTITION_EOF)),
            Received(5, KafkaError(KafkaError._BAD_MSG)),
        ]
        assert [one.offset for one in open_reading.next()] == [4]
        assert not open_reading.finished
        with pytest.raises(ClusterError, match="orders-0 at offset 5 cannot be read"):
            open_reading.next()


def test_a_member_without_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """It says so, and is at the end only if it gets none within the time-out."""
    consumer = Scripted()
    opening, said = opened(monkeypatch, consumer, 3600)
    with opening as open_reading:
        finished = [open_reading.finished]
        assert consumer.on_assign is not None
        consumer.on_assign(consumer, [])
        finished.append(open_reading.finished)
        open_reading._assigned_at -= 3600
        assert [*finished, open_reading.finished] == [False, False, True]
    assert said == ["no partition is assigned yet: the group's other members have them all"]


def test_a_partition_without_a_leader(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once nothing more comes, it is named, once; one whose end has come is not."""
    consumer = Scripted()
    opening, said = opened(monkeypatch, consumer, 3600)
    with opening as open_reading:
        assert consumer.on_assign is not None
        consumer.on_assign(consumer, [Position("orders", number) for number in range(3)])
        open_reading.next()
        assert said == []
        open_reading._assigned_at -= 3600
        consumer.messages = [Received(5, KafkaError(KafkaError._PARTITION_EOF))]
        open_reading.next()
        assert said == []
        for _ in range(2):
            open_reading.next()
        assert not open_reading.finished
    (text,) = said
    assert text.startswith("nothing has come from orders-1, orders-2 within 3600 s: there is no")
