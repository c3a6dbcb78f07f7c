"""The log of one partition: offsets, reading, transactions, time, deletion, waiting."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import trio
import trio.testing
from hypothesis import given
from hypothesis import strategies as st

from kgroup.broker import batches
from kgroup.broker.log import AbortedTransaction, LogSettings, PartitionLog
from kgroup.broker.records import NewRecord, batch_of
from kgroup.broker.request_error import RequestError
from kgroup.broker.time_slices import TimeSlices, Work
from kgroup.error_codes import ErrorCode
from tests.broker.record_batches import NOW, append, batch, compressed, end_transaction


def work() -> Work:
    """The work limit of a single request."""
    return TimeSlices().work(100)


def log_of(*sizes: int, settings: LogSettings | None = None) -> PartitionLog:
    """A log with batches of so many records."""
    log = PartitionLog(settings or LogSettings())
    for size in sizes:
        append(log, batch(*[b"x"] * size))
    return log


def offsets(log: PartitionLog, start: int, max_bytes: int = 2**31 - 1) -> list[int]:
    """The base offsets that a read returns."""
    read = log.read(start, max_bytes, committed=False, at_least_one=True)
    return [batches.header_of(data).base_offset for data in read.data]


def transactional(*values: bytes, producer_id: int = 1, epoch: int = 0, sequence: int = 0) -> bytes:
    """A batch of a transaction."""
    return batch(
        *values,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=True,
    )


@given(st.lists(st.integers(1, 5), max_size=12), st.integers(0, 70), st.integers(1, 600))
def test_reading_gives_whole_batches_in_order(sizes: list[int], start: int, max_bytes: int) -> None:
    """Any read begins with the batch that holds its offset and is contiguous from there."""
    log = log_of(*sizes)
    assert log.end_offset == sum(sizes)
    if start > log.end_offset:
        with pytest.raises(RequestError) as refused:
            offsets(log, start)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
        return
    read = log.read(start, max_bytes, committed=False, at_least_one=True)
    headers = [batches.header_of(data) for data in read.data]
    assert read.size == sum(map(len, read.data))
    assert bool(headers) == (start < log.end_offset)
    if headers:
        assert headers[0].base_offset <= start <= headers[0].last_offset
        assert read.size <= max_bytes or len(headers) == 1
    for before, after in itertools.pairwise(headers):
        assert after.base_offset == before.last_offset + 1
    assert log.available(start, max_bytes, committed=False) <= max_bytes


def test_nothing_is_forced_on_a_small_read() -> None:
    """Without at_least_one, a batch larger than the limit is not returned."""
    read = log_of(1).read(0, 10, committed=False, at_least_one=False)
    assert (read.data, read.size, read.high_watermark) == ([], 0, 1)


def test_a_repeated_batch_is_stored_once() -> None:
    """A producer that sends a batch again gets its offset and its time; nothing is appended."""
    log = log_of(3)
    data = batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0)
    assert append(log, data).base_offset == 3
    again = append(log, data)
    assert again.duplicate
    assert (again.base_offset, log.end_offset) == (3, 4)
    assert again.timestamp == NOW


def test_a_batch_that_is_too_large_is_refused() -> None:
    """A batch over max.message.bytes is not stored."""
    log = PartitionLog(LogSettings(max_message_bytes=100))
    with pytest.raises(RequestError) as refused:
        append(log, batch(b"x" * 100))
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert log.end_offset == 0


def test_a_log_can_stamp_its_records() -> None:
    """With append_time the records, and the result, have the broker's time."""
    log = PartitionLog(LogSettings(append_time=True))
    assert append(log, batch(b"a", timestamp=5), now=77).timestamp == 77
    assert log.records(0, 1, committed=False)[0][0].timestamp == 77


def test_old_batches_go_when_the_log_is_too_large() -> None:
    """With retention_bytes the start moves past whole batches; the newest batch stays."""
    size = len(batch(b"x"))
    log = log_of(1, 1, 1, 1, settings=LogSettings(retention_bytes=2 * size))
    assert (log.start_offset, log.end_offset, log.size) == (2, 4, 2 * size)
    for most in (0, 1):
        tiny = log_of(1, 1, settings=LogSettings(retention_bytes=most))
        assert (tiny.start_offset, tiny.size) == (1, size)


def test_records_before_an_offset_can_be_deleted() -> None:
    """The start may move into a batch; records before it cannot be read."""
    log = log_of(3, 3)
    assert log.delete_before(4) == 4
    assert offsets(log, 4) == [3]
    with pytest.raises(RequestError):
        offsets(log, 3)
    assert log.delete_before(2) == 4
    assert log.delete_before(-1) == 6
    assert log.size == 0
    for wrong in (7, -2):
        with pytest.raises(RequestError) as refused:
            log.delete_before(wrong)
        assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_an_open_transaction_holds_the_stable_offset() -> None:
    """The last stable offset stays at the first record of an open transaction."""
    log = log_of(2)
    append(log, transactional(b"t"))
    append(log, batch(b"plain"))
    assert (log.last_stable_offset, log.end_offset) == (2, 4)
    assert log.has_open_transaction(1, 0)
    assert not log.has_open_transaction(1, 1)
    assert log.read(2, 1000, committed=True, at_least_one=True).data == []
    assert log.available(2, 1000, committed=True) == 0
    end_transaction(log, 1, committed=True)
    assert log.last_stable_offset == log.end_offset == 5
    assert log.records(0, 99, committed=True)[1] == 5
    assert [one.value for one in log.records(2, 99, committed=True)[0]] == [b"t", b"plain"]


def test_the_start_can_move_into_an_open_transaction() -> None:
    """What is left of it stays invisible to read_committed until it ends."""
    log = log_of(1)
    append(log, transactional(b"t", b"u", b"v"))
    append(log, batch(b"plain"))
    for start, stable in ((2, 1), (4, 4), (5, 5)):
        log.delete_before(start)
        assert (log.start_offset, log.last_stable_offset) == (start, stable)
        assert log.read(start, 1000, committed=True, at_least_one=True).data == []
        assert log.records(start, 99, committed=True) == ([], start)
        assert log.available(start, 1000, committed=True) == 0
    end_transaction(log, 1, committed=True)
    assert log.last_stable_offset == log.end_offset == 6


def test_a_producer_with_an_open_transaction_writes_in_it() -> None:
    """Until the transaction ends, its producer's batches outside of it are refused."""
    log = log_of()
    append(log, transactional(b"t"))
    plain = batch(b"p", producer_id=1, producer_epoch=0, base_sequence=1)
    with pytest.raises(RequestError) as refused:
        append(log, plain)
    assert refused.value.code is ErrorCode.INVALID_TXN_STATE
    end_transaction(log, 1, committed=True)
    assert append(log, plain).base_offset == 2


def test_an_aborted_transaction_is_listed_and_skipped() -> None:
    """For read_committed, a response lists aborted transactions, and a local read skips them."""
    log = log_of(2)
    append(log, transactional(b"t1"))
    append(log, transactional(b"u1", producer_id=2))
    append(log, transactional(b"t2", sequence=1))
    end_transaction(log, 1, committed=False)
    end_transaction(log, 2, committed=True)
    read = log.read(0, 10_000, committed=True, at_least_one=True)
    assert read.aborted == (AbortedTransaction(1, 2, 5),)
    assert log.read(6, 10_000, committed=True, at_least_one=True).aborted == ()
    assert log.read(0, 1, committed=True, at_least_one=True).aborted == ()
    assert log.read(0, 10_000, committed=False, at_least_one=True).aborted is None
    values = [one.value for one in log.records(0, 99, committed=True)[0]]
    assert values == [b"x", b"x", b"u1"]
    assert len(log.records(0, 99, committed=False)[0]) == 5
    log.delete_before(6)
    assert log.read(6, 10_000, committed=True, at_least_one=True).aborted == ()


def test_a_later_transaction_of_the_same_producer_is_its_own() -> None:
    """Committed records that follow a producer's aborted ones are returned."""
    log = PartitionLog(LogSettings())
    append(log, transactional(b"no"))
    end_transaction(log, 1, committed=False)
    append(log, transactional(b"yes", sequence=1))
    end_transaction(log, 1, committed=True)
    assert [one.value for one in log.records(0, 99, committed=True)[0]] == [b"yes"]


class CountedList(list[AbortedTransaction]):
    """Counts how often an item is looked at."""

    looks = 0

    def __getitem__(self, index: Any) -> Any:
        """Count, and return the item."""
        self.looks += 1
        return super().__getitem__(index)

    def __iter__(self) -> Iterator[AbortedTransaction]:
        """Count all items, and return them."""
        self.looks += len(self)
        return super().__iter__()


def test_a_read_looks_at_few_of_many_aborted_transactions() -> None:
    """Wherever it is in the log, those that ended before it or begin after it are passed over."""
    log = PartitionLog(LogSettings())
    for number in range(1000):
        append(log, transactional(b"no", sequence=number))
        end_transaction(log, 1, committed=False)
    log._aborted = counted = CountedList(log._aborted)
    for offset in (0, 1000, 1998):
        counted.looks = 0
        assert log.read(offset, 1, committed=True, at_least_one=True).aborted == (
            AbortedTransaction(1, offset, offset + 1),
        )
        assert counted.looks < 30
        assert log.records(offset, 1, committed=True) == ([], 2000)
    log.delete_before(1000)
    assert len(counted) == len(log._stable_after) == 500


def test_a_read_within_a_long_transaction_finds_it() -> None:
    """Of transactions that are open together, one that ends last may have begun first."""
    log = PartitionLog(LogSettings())
    append(log, transactional(b"long", producer_id=2))
    for number in range(3):
        append(log, transactional(b"no", sequence=number))
        end_transaction(log, 1, committed=False)
    end_transaction(log, 2, committed=False)
    append(log, transactional(b"later", sequence=3))
    end_transaction(log, 1, committed=False)
    found = {
        offset: log.read(offset, 1, committed=True, at_least_one=True).aborted
        for offset in range(9)
    }
    long = AbortedTransaction(2, 0, 7)
    short = [AbortedTransaction(1, first, first + 1) for first in (1, 3, 5)]
    within = [(long,), *(pair for one in short for pair in [(one, long)] * 2)]
    assert found == dict(enumerate([*within, (long,), (AbortedTransaction(1, 8, 9),)]))
    assert log.records(0, 99, committed=True) == ([], 10)


def test_a_marker_without_records_is_no_aborted_transaction() -> None:
    """A transaction without records here leaves only its marker."""
    log = PartitionLog(LogSettings())
    end_transaction(log, 1, committed=False)
    assert log.end_offset == 1
    assert log.read(0, 1000, committed=True, at_least_one=True).aborted == ()


def test_records_can_be_read_a_few_at_a_time() -> None:
    """A read continues at the offset that the last one returned, also within a batch."""
    log = log_of(3, 2, 4)
    seen, at = [], 0
    while at < log.end_offset:
        records, at = log.records(at, 2, committed=False)
        seen += [one.offset for one in records]
    assert seen == list(range(9))


async def test_offsets_are_found_by_time() -> None:
    """The search finds the first record that is not older, also within a batch."""
    log = PartitionLog(LogSettings())
    for time in (10, 30, 20):
        append(log, batch(b"a", b"b", timestamp=time))
    assert await log.offset_for_time(5, work()) == (0, 10)
    assert await log.offset_for_time(11, work()) == (2, 30)
    assert await log.offset_for_time(31, work()) is None
    assert await log.offset_of_max_time(work()) == (2, 30)
    log.delete_before(3)
    assert await log.offset_for_time(5, work()) == (3, 30)
    assert await PartitionLog(LogSettings()).offset_of_max_time(work()) is None


async def test_a_search_by_time_passes_over_what_is_older() -> None:
    """Of a thousand batches, the work is that of those from the first one on that is new enough."""
    log = PartitionLog(LogSettings())
    for time in range(1000):
        append(log, batch(b"a", timestamp=time - time % 2))
    spent = work()
    assert await log.offset_for_time(990, spent) == (990, 990)
    assert spent._since < 10


async def test_deleted_records_are_not_found_by_time() -> None:
    """A record before the start is skipped, although its batch is still there."""
    log = PartitionLog(LogSettings())
    records = [NewRecord(b"a", timestamp=30), NewRecord(b"b", timestamp=10)]
    append(log, batch_of(records, NOW))
    log.delete_before(1)
    assert await log.offset_for_time(20, work()) is None


async def test_a_batch_that_cannot_be_read_is_found_by_time_as_a_whole() -> None:
    """If its codec is not supported, the batch's first offset is returned."""
    log = log_of(2)
    append(log, compressed(4, b"a", b"b", timestamp=NOW + 10))
    assert await log.offset_for_time(NOW + 1, work()) == (2, NOW + 10)


async def test_waiting_ends_with_an_append(autojump_clock: trio.testing.MockClock) -> None:
    """A wait at the end returns when a record is appended; before the end it returns at once."""
    log = log_of(1)
    await log.wait_beyond(0, committed=False)
    order: list[str] = []

    async def wait() -> None:
        await log.wait_beyond(1, committed=False)
        order.append("woken")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        order.append("append")
        append(log, batch(b"a"))
    assert order == ["append", "woken"]


async def test_a_cancelled_wait_leaves_nothing_behind(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """No waiter stays on the list of tasks to wake; a wait is a checkpoint."""
    log = log_of(1)
    with trio.move_on_after(1) as scope:
        await log.wait_beyond(1, committed=False)
    assert scope.cancelled_caught
    assert not log._watchers
    with trio.testing.assert_checkpoints():
        await log.wait_beyond(0, committed=False)


async def test_closing_a_log_wakes_waiting_tasks(autojump_clock: trio.testing.MockClock) -> None:
    """When its topic is deleted, no task waits for the log any longer."""
    log = log_of()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: log.wait_beyond(0, committed=False))
        await trio.testing.wait_all_tasks_blocked()
        log.close()


async def test_a_log_that_is_closed_at_the_beginning_of_a_wait(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The wait ends, although its task has only begun: nothing would ever wake it later."""

    async def wait(begun: trio.Event) -> None:
        begun.set()
        await log.wait_beyond(0, committed=False)

    for _ in range(20):  # which of two tasks trio runs first is random
        log, begun = log_of(), trio.Event()
        with trio.fail_after(1):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(wait, begun)
                await begun.wait()
                log.close()


def test_repr_of_a_log() -> None:
    """The repr has the offsets and the size."""
    assert repr(log_of()) == "<PartitionLog 0..0, 0 bytes>"
