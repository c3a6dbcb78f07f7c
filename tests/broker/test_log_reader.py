"""Reading a broker's logs within its process."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from kgroup.broker import in_memory
from kgroup.errors import FetchError, OffsetOutOfRangeError
from kgroup.types import IsolationLevel, TopicPartition
from tests.broker.record_batches import append, batch, compressed, end_transaction

TP = TopicPartition("t", 0)
COMMITTED = IsolationLevel.READ_COMMITTED


async def test_positions_and_records() -> None:
    """Start, end and records of a partition, by isolation level."""
    async with in_memory() as broker:
        await broker.create_topic("t")
        await broker.append("t", 0, [b"a", b"b", b"c"])
        log = broker.cluster.topics.log("t", 0)
        append(
            log,
            batch(b"t", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
        )
        log.delete_before(1)
        assert broker.log.start_offset(TP) == 1
        assert broker.log.end_offset(TP) == 4
        assert broker.log.end_offset(TP, COMMITTED) == 3
        read = broker.log.read(TP, 1, 10, COMMITTED)
        assert [one.value for one in read.records] == [b"b", b"c"]
        assert read.next_offset == 3
        assert len(broker.log.read(TP, 1, 10).records) == 3


async def test_what_cannot_be_read_is_an_error() -> None:
    """An offset out of range, an unknown partition, and an unsupported codec raise."""
    async with in_memory() as broker:
        with pytest.raises(FetchError, match="no partition t-0"):
            broker.log.read(TP, 0, 1)
        await broker.create_topic("t")
        with pytest.raises(OffsetOutOfRangeError, match="offset 5 is not in 0..0") as out:
            broker.log.read(TP, 5, 1)
        assert (out.value.partition, out.value.offset) == (TP, 5)
        append(broker.cluster.topics.log("t", 0), compressed(4, b"a"))
        with pytest.raises(FetchError, match="zstd") as refused:
            broker.log.read(TP, 0, 1)
        assert refused.value.partition == TP


async def test_a_topic_made_again_has_another_id() -> None:
    """A changed topic id shows that a position belongs to a deleted topic."""
    async with in_memory() as broker:
        assert broker.log.topic_id("t") is None
        await broker.create_topic("t")
        first = broker.log.topic_id("t")
        await broker.delete_topic("t")
        await broker.create_topic("t")
        assert broker.log.topic_id("t") not in (None, first)


async def test_waiting_for_committed_records(autojump_clock: trio.testing.MockClock) -> None:
    """For a reader of committed records, the wait lasts until the transaction has ended."""
    async with in_memory() as broker:
        await broker.create_topic("t")
        log = broker.cluster.topics.log("t", 0)

        async def write() -> None:
            await trio.sleep(1)
            append(
                log,
                batch(b"t", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
            )
            await trio.sleep(1)
            end_transaction(log, 1, committed=True)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(write)
            while not broker.log.read(TP, 0, 1, COMMITTED).records:
                await broker.log.wait_for(TP, 0, COMMITTED)
        assert trio.current_time() == 2


async def test_a_wait_ends_when_the_topic_is_deleted(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The next read raises that the partition does not exist."""
    async with in_memory() as broker:
        await broker.create_topic("t")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(broker.log.wait_for, TP, 0)
            await trio.testing.wait_all_tasks_blocked()
            await broker.delete_topic("t")
        with pytest.raises(FetchError):
            await broker.log.wait_for(TP, 0)
