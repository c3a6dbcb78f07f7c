"""The consumers of a worker: reused, closed when idle or failed, left alone after a fork."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from kgroup.errors import FetchError
from kgroup.spark import OffsetRange
from kgroup.spark.consumer_pool import (
    FETCH_SIZES,
    RECORD_OVERHEAD,
    ConsumerPool,
    consumer_settings,
    fetch_bytes_for,
)
from kgroup.spark.reader_settings import ReaderSettings
from kgroup.spark.size_estimates import ReadCounts
from kgroup.types import TopicPartition

A = ReaderSettings(bootstrap_servers="a:1")
B = ReaderSettings(bootstrap_servers="b:1")
SMALL = [OffsetRange("t", 0, 0, 10)]


class FakeConsumer:
    """A consumer that records its calls."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.unassigned = 0
        self.closed = threading.Event()

    def unassign(self) -> None:
        """Count the call."""
        self.unassigned += 1

    def close(self) -> None:
        """Close the consumer, which may happen once."""
        assert not self.closed.is_set()
        self.closed.set()


@pytest.fixture
def made() -> list[FakeConsumer]:
    """The consumers that the test's pool has created."""
    return []


@pytest.fixture
def pool(made: list[FakeConsumer]) -> Iterator[ConsumerPool]:
    """A pool of fakes that keeps them."""
    with closing(ConsumerPool(opener(made), idle_timeout=3600.0)) as pool:
        yield pool


def opener(made: list[FakeConsumer]) -> Callable[[dict[str, Any]], FakeConsumer]:
    """A function that makes fakes and records them."""

    def open_consumer(settings: dict[str, Any]) -> FakeConsumer:
        made.append(FakeConsumer(settings))
        return made[-1]

    return open_consumer


def test_tasks_with_the_same_settings_share_one(
    pool: ConsumerPool, made: list[FakeConsumer]
) -> None:
    """They use one consumer in turn, idle in between; tasks with other settings get others."""
    for settings in (A, A, B, A):
        with pool.borrow(settings, SMALL) as consumer:
            assert consumer.settings == settings
    assert (pool.created, [fake.unassigned for fake in made]) == (2, [3, 1])


def test_tasks_at_the_same_time_get_one_each(pool: ConsumerPool) -> None:
    """No consumer is used by two tasks at once."""
    with pool.borrow(A, SMALL) as one, pool.borrow(A, SMALL) as other:
        assert one is not other


def test_a_range_is_fetched_in_a_portion_with_room_to_spare() -> None:
    """Estimates are inexact, so the fetch size has a margin; a larger range is fetched ahead."""
    assert fetch_bytes_for(0) == fetch_bytes_for(FETCH_SIZES[0] * 4 // 5) == FETCH_SIZES[0]
    assert fetch_bytes_for(FETCH_SIZES[0]) == FETCH_SIZES[1]
    assert fetch_bytes_for(FETCH_SIZES[-1]) is None
    ahead, limited = consumer_settings(A), consumer_settings(A, FETCH_SIZES[1])
    assert "fetch.message.max.bytes" not in ahead
    assert limited["fetch.message.max.bytes"] == FETCH_SIZES[1]
    assert limited["queued.min.messages"] < ahead["queued.min.messages"]


def test_a_consumer_suits_ranges_about_as_large(
    pool: ConsumerPool, made: list[FakeConsumer]
) -> None:
    """The largest range decides; twice its fetch size suits too; reading corrects the estimate."""

    def fetch_bytes(*offsets: int) -> int | None:
        ranges = [OffsetRange("t", part, 0, end) for part, end in enumerate(offsets)]
        with pool.borrow(A, ranges) as consumer:
            return consumer.fetch_bytes

    assert fetch_bytes(1, 100) == FETCH_SIZES[1]
    assert fetch_bytes(10) == FETCH_SIZES[1]
    assert fetch_bytes(1000) == FETCH_SIZES[5]
    assert fetch_bytes(10, 100_000) is None
    assert fetch_bytes(*[3000] * 10) == FETCH_SIZES[6]
    assert fetch_bytes(*[3000] * 11) is None  # together too much for one response
    assert len(made) == 4
    read = [OffsetRange("t", 0, 0, 1000)]
    pool.record_sizes(
        read, {TopicPartition("t", 0): ReadCounts(1000, 1000 * (1000 - RECORD_OVERHEAD))}
    )
    assert fetch_bytes(FETCH_SIZES[4] * 4 // 5 // 1000) == FETCH_SIZES[5]
    assert fetch_bytes(FETCH_SIZES[1] // 1000) == FETCH_SIZES[2]
    assert len(made) == 5


def test_the_consumer_of_a_failed_task_is_closed(
    pool: ConsumerPool, made: list[FakeConsumer]
) -> None:
    """After an error it is not reused; after a reader that stopped early it is."""
    with pytest.raises(ZeroDivisionError), pool.borrow(A, SMALL):
        raise ZeroDivisionError
    assert made[0].closed.is_set()
    with pytest.raises(GeneratorExit), pool.borrow(A, SMALL):
        raise GeneratorExit
    with pool.borrow(A, SMALL):
        assert pool.created == 2


class Unreadable(FakeConsumer):
    """A consumer that has a log line which is no text."""

    def poll(self, _: float) -> None:
        """As confluent-kafka, which cannot decode it."""
        b"h\xff:1".decode()

    def close(self) -> None:
        """Close it all the same."""
        super().close()
        self.poll(0.0)


def test_a_log_line_that_is_no_text_fails_the_task() -> None:
    """What was fetched with it is lost; the error names the line, and the consumer is closed."""
    made: list[FakeConsumer] = []

    def open_consumer(settings: dict[str, Any]) -> Any:
        made.append(Unreadable(settings))
        return made[-1]

    with closing(ConsumerPool(open_consumer, idle_timeout=3600.0)) as pool:
        with (
            pytest.raises(FetchError, match=r"is not UTF-8: h\\xff:1"),
            pool.borrow(A, SMALL) as consumer,
        ):
            consumer.poll(10, 1.0)
        with pool.borrow(A, SMALL):
            pass
    assert [consumer.closed.is_set() for consumer in made] == [True, True]


def test_an_idle_consumer_is_closed(made: list[FakeConsumer]) -> None:
    """A timer closes it, without a further call."""
    with closing(ConsumerPool(opener(made), idle_timeout=0.01)) as pool:
        with pool.borrow(A, SMALL):
            pass
        assert made[0].closed.wait(150)


def test_a_forked_process_makes_its_own(pool: ConsumerPool, made: list[FakeConsumer]) -> None:
    """The child neither uses nor closes what the parent had."""
    with pool.borrow(A, SMALL):
        pass
    child = os.fork()
    if child == 0:
        with pool.borrow(A, SMALL):
            fine = pool.created == 1 and len(made) == 2 and not made[0].closed.is_set()
        os._exit(0 if fine else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert pool.created == 1


def test_deleted_records_are_not_skipped() -> None:
    """The settings: errors instead of resets, the ends of logs reported, and no commits."""
    settings = consumer_settings(A)
    assert {name: settings[name] for name in DECISIVE} == DECISIVE


DECISIVE = {
    "auto.offset.reset": "error",
    "enable.auto.commit": False,
    "enable.partition.eof": True,
    "allow.auto.create.topics": False,
    "check.crcs": True,
}
