"""MemorySource, in virtual time only."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio
import trio.testing

from kgroup import broker
from kgroup.broker import EmbeddedBroker, NewRecord
from kgroup.config import GroupConfig
from kgroup.errors import FetchError, OffsetOutOfRangeError, StaleGenerationError
from kgroup.records.memory import CHUNK, RETRY, MemorySource
from kgroup.types import TopicPartition

P = TopicPartition("t", 0)


@asynccontextmanager
async def reading(
    faults: list[tuple[TopicPartition | None, str]] | None = None,
) -> AsyncIterator[tuple[EmbeddedBroker, MemorySource]]:
    """A broker without sockets, and a source that reads its log."""
    reported = [] if faults is None else faults
    async with broker.in_memory() as running:
        config = GroupConfig(
            group_id="g", bootstrap_servers="memory:9092", topics=["t"], max_buffered_records=3000
        )
        source = MemorySource(config, lambda *fault: reported.append(fault), running.log)
        async with source:
            yield running, source


async def test_messages_have_all_parts_of_a_record(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A message has the record's key, value, headers and time stamp; a tombstone has no value."""
    async with reading() as (running, source):
        await running.create_topic("t", 1)
        written = NewRecord(b"v", key=b"k", headers=(("h", b"1"),), timestamp=1234)
        await running.append("t", 0, [written, NewRecord(None, key=b"gone")])
        source.assign(1, {P: 0})
        source.open(1, [P])
        first, second = (await source.receive(1, [P], 10)).messages
        assert (first.key(), first.value(), first.headers()) == (b"k", b"v", [("h", b"1")])
        assert first.timestamp() == (1, 1234)
        assert (second.key(), second.value(), second.headers()) == (b"gone", None, None)
        assert "t-0 at 1" in repr(second)
    assert autojump_clock.autojump_threshold == 0


async def test_a_reader_waits_in_virtual_time(autojump_clock: trio.testing.MockClock) -> None:
    """An hour without records passes at once, and the record after it is read then."""
    async with reading() as (running, source), trio.open_nursery() as nursery:
        await running.create_topic("t", 1)
        source.assign(1, {P: 0})
        source.open(1, [P])

        async def append_later() -> None:
            await trio.sleep(3600)
            await running.append("t", 0, [b"late"])

        nursery.start_soon(append_later)
        before = autojump_clock.current_time()
        assert len(await source.receive(1, [P], 1)) == 1
        assert autojump_clock.current_time() - before == 3600


async def test_a_topic_that_is_created_late_is_reported_and_read(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """A partition that does not exist is reported once, and read as soon as it exists."""
    faults: list[tuple[TopicPartition | None, str]] = []
    async with reading(faults) as (running, source), trio.open_nursery() as nursery:
        source.assign(1, {P: 0})
        source.open(1, [P])

        async def create_later() -> None:
            await trio.sleep(60)
            await running.create_topic("t", 1)
            await running.append("t", 0, [b"v"])

        nursery.start_soon(create_later)
        before = autojump_clock.current_time()
        await source.receive(1, [P], 1)
        assert autojump_clock.current_time() - before <= 60 + RETRY
    assert [partition for partition, _ in faults] == [P]


async def test_reading_ahead_is_bounded(autojump_clock: trio.testing.MockClock) -> None:
    """Fetching stops while no reader takes records, resumes when one does, and loses none."""
    async with reading() as (running, source):
        await running.create_topic("t", 1)
        for _ in range(10):
            await running.append("t", 0, [b"v"] * 1000)
        source.assign(1, {P: 0})
        source.open(1, [P])
        await trio.testing.wait_all_tasks_blocked()
        assert 750 <= source._limits.records <= 750 + CHUNK
        following = 0
        while following < 10_000:
            batch = await source.receive(1, [P], 300)
            assert batch.messages[0].offset() == following
            following = batch.next_offset
    assert autojump_clock.autojump_threshold == 0


async def test_an_unreadable_batch_fails_its_partition(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """What the log refuses to decode is a FetchError, raised until seek or the next generation."""

    class Unreadable:
        """A log that cannot be read."""

        def end_offset(self, *_: object) -> int:
            return 1

        def read(self, partition: TopicPartition, *_: object) -> None:
            raise FetchError("compressed beyond recognition", partition)

        async def wait_for(self, *_: object) -> None:
            raise AssertionError

    config = GroupConfig(group_id="g", bootstrap_servers="memory:9092", topics=["t"])
    log = Unreadable()
    async with MemorySource(config, lambda *_: None, log) as source:  # type: ignore[arg-type]
        source.assign(1, {P: 0})
        source.open(1, [P])
        for _ in range(2):
            with pytest.raises(FetchError, match="beyond recognition"):
                await source.receive(1, [P], 1)
    assert autojump_clock.autojump_threshold == 0


async def test_a_closed_source_hands_out_nothing_and_ignores_revoke(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """After exit, receive raises StaleGenerationError and revoke does nothing."""
    async with reading() as (running, source):
        await running.create_topic("t", 1)
        source.assign(1, {P: 9})
        source.open(1, [P])
        with pytest.raises(OffsetOutOfRangeError):
            await source.receive(1, [P], 1)
    source.revoke(1)
    with pytest.raises(StaleGenerationError):
        await source.receive(1, [P], 1)
    assert autojump_clock.autojump_threshold == 0


async def test_entering_the_source_can_be_cancelled(autojump_clock: trio.testing.MockClock) -> None:
    """After the cancellation nothing runs, and the scopes around it are unchanged."""
    config = GroupConfig(group_id="g", bootstrap_servers="memory:9092", topics=["t"])
    async with broker.in_memory() as running:
        source = MemorySource(config, lambda *_: None, running.log)
        with trio.CancelScope() as scope:
            scope.cancel()
            async with source:
                raise AssertionError("it was entered")
        assert scope.cancelled_caught
