"""Promises of the queues beyond the model: fairness, one reader, faults reported once."""

from __future__ import annotations

from typing import Any

import attrs
import pytest
import trio
import trio.testing

from kgroup.errors import (
    FetchError,
    NotOwnedError,
    OffsetOutOfRangeError,
    StaleGenerationError,
    UsageError,
)
from kgroup.records.buffered_source import FAULT_REPEAT_INTERVAL, BufferedSource
from kgroup.records.fetcher import (
    NO_EPOCH,
    FetcherBroken,
    FetchFailure,
    FetchStart,
    OutOfRange,
    PassedTo,
)
from kgroup.types import TopicPartition
from tests.records.scripted import ScriptedFetcher, run_of, scripted

A, B, C = (TopicPartition("t", number) for number in range(3))


async def test_ready_partitions_take_turns() -> None:
    """A partition with many records does not delay the others."""
    source, fetcher = scripted()
    source.assign(1, {A: 0, B: 0, C: 0})
    source.open(1, [A, B, C])
    fetch_ids = {partition: start.fetch_id for partition, start in fetcher.fetches.items()}
    fetcher.deliver(source, run_of(A, fetch_ids[A], range(100)))
    fetcher.deliver(source, run_of(B, fetch_ids[B], range(20)), run_of(C, fetch_ids[C], range(20)))
    order = [(await source.receive(1, [A, B, C], 10)).partition for _ in range(6)]
    assert order == [A, B, C, A, B, C]


async def test_small_runs_make_one_batch() -> None:
    """A batch takes runs up to its limit, and cuts the last one."""
    source, fetcher = scripted()
    source.assign(1, {A: 0})
    source.open(1, [A])
    fetch_id = fetcher.fetches[A].fetch_id
    fetcher.deliver(source, *(run_of(A, fetch_id, [at, at + 1]) for at in range(0, 10, 2)))
    batches = [await source.receive(1, [A], 5) for _ in range(2)]
    assert [[m.offset() for m in batch.messages] for batch in batches] == [
        [0, 1, 2, 3, 4],
        [5, 6, 7, 8, 9],
    ]


async def test_a_partition_has_one_waiting_reader() -> None:
    """A second receive that would wait for the same partition is refused; the first continues."""
    source, fetcher = scripted()
    source.assign(1, {A: 0, B: 0})
    source.open(1, [A, B])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(source.receive, 1, [A, B], 1)
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(UsageError, match="one reader"):
            await source.receive(1, [B], 1)
        fetcher.deliver(source, run_of(B, fetcher.fetches[B].fetch_id, [0]))


async def test_a_cancelled_receive_leaves_its_partition_to_the_next() -> None:
    """A cancelled receive does not block the next, even if records arrive as it is cancelled."""
    source, fetcher = scripted()
    source.assign(1, {A: 0})
    source.open(1, [A])
    async with trio.open_nursery() as nursery:
        nursery.start_soon(source.receive, 1, [A], 1)
        await trio.testing.wait_all_tasks_blocked()
        nursery.cancel_scope.cancel()
        fetcher.deliver(source, run_of(A, fetcher.fetches[A].fetch_id, [0]))
    got = [message.offset() for message in (await source.receive(1, [A], 1)).messages]
    assert got == [0]


async def test_calls_of_another_epoch_do_nothing() -> None:
    """A late call of an old generation changes nothing in the current one."""
    source, fetcher = scripted()
    source.assign(1, {A: 0})
    source.revoke(1)
    source.assign(2, {A: 7})
    source.open(1, [A])
    source.seek(1, A, 3)
    source.pause(1, [A])
    source.revoke(1)
    assert not fetcher.fetches
    with pytest.raises(StaleGenerationError, match=r"epoch 1 .*current: epoch 2"):
        await source.receive(1, [A], 1)
    source.open(2, [A])
    fetcher.deliver(source, run_of(A, fetcher.fetches[A].fetch_id, [7]))
    assert (await source.receive(2, [A], 1)).next_offset == 8


@pytest.mark.parametrize(
    ("epoch", "positions", "message"),
    [
        (1, {A: 0}, "needs a higher epoch"),
        (2, {A: -1}, "cannot start at -1"),
        (2, {A: 2.5}, "cannot start at 2.5"),
        (2, {A: True}, "cannot start at True"),
    ],
)
def test_an_invalid_assignment_is_refused(
    epoch: int, positions: dict[TopicPartition, Any], message: str
) -> None:
    """An old epoch and a negative position are refused without a change."""
    source, _ = scripted()
    source.assign(1, {B: 0})
    with pytest.raises(UsageError, match=message):
        source.assign(epoch, positions)
    source.open(1, [B])
    with pytest.raises(NotOwnedError):
        source.open(1, [A])


async def test_invalid_arguments_are_refused() -> None:
    """A batch of no record, a negative offset, and partitions of others are refused."""
    source, _ = scripted()
    source.assign(1, {A: 0})
    source.open(1, [A])
    with pytest.raises(UsageError, match="limit=0"):
        await source.receive(1, [A], 0)
    for bad in (-1, 2.5, None, True):
        invalid: Any = bad
        with pytest.raises(UsageError, match=f"continue at {bad}"):
            source.seek(1, A, invalid)
    for call in (source.pause, source.resume):
        with pytest.raises(NotOwnedError, match="t-1"):
            call(1, [A, B])


async def test_nothing_is_assigned_to_a_closed_source() -> None:
    """After close, `assign` raises and `revoke` does nothing."""
    source, fetcher = scripted()
    source.assign(1, {A: 0})
    source.open(1, [A])
    fetcher.deliver(source, run_of(A, fetcher.fetches[A].fetch_id, [0]))
    source.close_queues()
    source.close_queues()
    source.revoke(1)
    assert source._limits.records == 0
    assert "closed" in repr(source)
    with pytest.raises(UsageError, match="closed"):
        source.assign(2, {A: 0})


async def test_a_broken_fetcher_wakes_and_fails_every_receive() -> None:
    """A waiting receive raises the fault, and so does each later one."""
    source, _ = scripted()
    source.assign(1, {A: 0})
    source.open(1, [A])
    async with trio.open_nursery() as nursery:

        async def fails() -> None:
            with pytest.raises(FetchError, match="as scripted"):
                await source.receive(1, [A], 1)

        nursery.start_soon(fails)
        await trio.testing.wait_all_tasks_blocked()
        source.deliver([FetcherBroken("as scripted")])
    await fails()


async def test_after_a_broken_fetcher_the_next_generation_reads() -> None:
    """The queues are dropped and fetched again; the fault is reported once."""
    faults: list[str] = []
    source, fetcher = scripted(on_fault=lambda _, reason: faults.append(reason))
    source.assign(1, {A: 0})
    source.open(1, [A])
    fetcher.deliver(source, run_of(A, fetcher.fetches[A].fetch_id, [0, 1]))
    source.deliver([FetcherBroken("as scripted")])
    source.assign(2, {A: 0})
    assert ["as scripted" in reason for reason in faults] == [True]
    assert source._limits.records == 0
    source.open(2, [A])
    fetcher.deliver(source, run_of(A, fetcher.fetches[A].fetch_id, [0]))
    assert (await source.receive(2, [A], 5)).next_offset == 1


async def test_a_fault_is_reported_again_only_after_reading_resumed(
    mock_clock: trio.testing.MockClock,
) -> None:
    """A fault is reported once, and again only after records arrived and a minute passed."""
    reported: list[tuple[TopicPartition | None, str]] = []
    source, fetcher = scripted(on_fault=lambda *fault: reported.append(fault))
    source.assign(1, {A: 0})
    source.open(1, [A])
    fetch_id = fetcher.fetches[A].fetch_id
    trouble = FetchFailure(A, "AWAY", "gone")
    source.deliver([trouble, trouble])
    fetcher.deliver(source, run_of(A, fetch_id, [0]))
    source.deliver([trouble])
    assert reported == [(A, "gone")]
    mock_clock.jump(FAULT_REPEAT_INTERVAL)
    source.deliver([trouble])
    assert reported == [(A, "gone")]
    fetcher.deliver(source, run_of(A, fetch_id, [1]))
    source.deliver([trouble])
    assert reported == [(A, "gone")] * 2


async def test_a_partition_far_over_its_share_is_held_only_while_another_starves() -> None:
    """A full buffer stops fetching; if a reader starves, the one over its share waits instead."""
    source, fetcher = scripted(max_records=120)  # fetching stops at 30
    source.assign(1, {A: 0, B: 0})
    source.open(1, [A, B])
    fetcher.deliver(source, run_of(A, fetcher.fetches[A].fetch_id, range(30)))
    assert (fetcher.limits.stopped, fetcher.held) == (True, set())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(source.receive, 1, [B], 5)
        await trio.testing.wait_all_tasks_blocked()
        assert (fetcher.limits.stopped, fetcher.held) == (False, {A})
        fetcher.deliver(source, run_of(B, fetcher.fetches[B].fetch_id, range(5)))
    await source.receive(1, [A], 20)
    assert fetcher.held == {A}
    await source.receive(1, [A], 7)
    assert (fetcher.limits.stopped, fetcher.held) == (False, set())


@pytest.mark.parametrize("other", [False, True])
async def test_a_reader_does_not_starve_while_a_delivery_has_records_for_it(other: bool) -> None:
    """Fetching stays stopped; if what arrives is for another partition, it resumes."""
    source, fetcher = scripted(max_records=40)
    source.assign(1, {A: 0, B: 0})
    source.open(1, [A, B])
    run = run_of(B if other else A, fetcher.fetches[B if other else A].fetch_id, range(10))
    fetcher.count(run)
    assert fetcher.limits.stopped
    async with trio.open_nursery() as nursery:
        nursery.start_soon(source.receive, 1, [A], 1)
        await trio.testing.wait_all_tasks_blocked()
        assert (fetcher.resumed, fetcher.held) == (0, set())
        source.deliver([run])
        assert (fetcher.resumed, fetcher.held) == ((1, {B}) if other else (0, set()))
        if other:
            fetcher.deliver(source, run_of(A, fetcher.fetches[A].fetch_id, [0]))


def with_a_hundred() -> tuple[BufferedSource, ScriptedFetcher, int]:
    """A source that has fetched 100 records of A, its fetcher, and the fetch's id."""
    source, fetcher = scripted()
    source.assign(1, {A: 0})
    source.open(1, [A])
    first = fetcher.fetches[A].fetch_id
    fetcher.deliver(source, run_of(A, first, range(100)))
    return source, fetcher, first


@pytest.mark.parametrize("handed_out", [40, 50, 51])
async def test_what_was_cut_off_the_log_is_not_handed_out(handed_out: int) -> None:
    """The queue is dropped; the position is fetched again, or is a fault if it was cut off too.

    The fault stays in the next generation, unless that begins before the cut.
    """
    source, fetcher, first = with_a_hundred()
    assert (await source.receive(1, [A], handed_out)).next_offset == handed_out
    source.deliver([OutOfRange(A, first, 100, "as scripted", 50)])
    assert fetcher.limits.records == 0
    if handed_out > 50:
        assert not fetcher.fetches
        for _ in range(2):
            with pytest.raises(OffsetOutOfRangeError) as caught:
                await source.receive(1, [A], 10)
            assert (caught.value.offset, caught.value.divergent_offset) == (51, 50)
        source.assign(2, {A: 80})
        source.open(2, [A])
        assert not fetcher.fetches
        with pytest.raises(OffsetOutOfRangeError) as caught:
            await source.receive(2, [A], 10)
        assert caught.value.divergent_offset == 50
        source.assign(3, {A: 50})
        source.open(3, [A])
        assert fetcher.fetches[A].offset == 50
        return
    again = fetcher.fetches[A].fetch_id
    assert fetcher.fetches == {A: FetchStart(again, handed_out)}
    assert again != first
    fetcher.deliver(source, run_of(A, first, [100]), run_of(A, again, [50, 51]))
    assert [m.offset() for m in (await source.receive(1, [A], 10)).messages] == [50, 51]


@pytest.mark.parametrize("leader_epoch", [NO_EPOCH, 7])
async def test_a_log_that_was_cut_before_another_member_owned_it(leader_epoch: int) -> None:
    """The fetch finds out whether what that member committed is in the log, if it has the epoch."""
    source, fetcher, first = with_a_hundred()
    await source.receive(1, [A], 51)
    source.deliver([OutOfRange(A, first, 100, "as scripted", 50)])
    source.assign(2, {A: 80}, {A: leader_epoch}, added=[A])
    source.open(2, [A])
    if leader_epoch == NO_EPOCH:
        with pytest.raises(OffsetOutOfRangeError):
            await source.receive(2, [A], 10)
    else:
        assert fetcher.fetches[A] == FetchStart(fetcher.fetches[A].fetch_id, 80, 7)


@pytest.mark.parametrize("handed_out", [40, 60])
async def test_a_log_that_was_cut_may_be_cut_again(handed_out: int) -> None:
    """The fetch after a cut has a leader epoch, so that another cut before any record is found."""
    source, fetcher, first = with_a_hundred()
    run = run_of(A, first, range(100, 110))
    fetcher.deliver(source, attrs.evolve(run, leader_epoch=7))
    assert (await source.receive(1, [A], handed_out)).next_offset == handed_out
    source.deliver([OutOfRange(A, first, 110, "as scripted", 50)])
    if handed_out > 50:
        source.seek(1, A, 50)
    for _ in range(2):
        again = fetcher.fetches[A]
        assert again == FetchStart(again.fetch_id, min(handed_out, 50), 7)
        source.deliver([OutOfRange(A, again.fetch_id, again.offset, "as scripted", again.offset)])
    source.seek(1, A, 20)
    assert fetcher.fetches[A].leader_epoch == NO_EPOCH


async def test_a_batch_from_behind_a_cut_that_is_put_back() -> None:
    """The fault stays: another fetch would not find that the log was cut."""
    source, fetcher, first = with_a_hundred()
    await source.receive(1, [A], 90)
    batch = await source.receive(1, [A], 10)
    source.deliver([OutOfRange(A, first, 100, "as scripted", 80)])
    source.put_back(1, batch)
    assert not fetcher.fetches
    with pytest.raises(OffsetOutOfRangeError) as caught:
        await source.receive(1, [A], 10)
    assert caught.value.divergent_offset == 80


async def test_a_batch_that_is_put_back_into_a_log_that_was_cut() -> None:
    """It is fetched again, because some of it may not be in the log any more."""
    source, fetcher, first = with_a_hundred()
    batch = await source.receive(1, [A], 60)
    source.deliver([OutOfRange(A, first, 100, "as scripted", 50)])
    source.put_back(1, batch)
    assert fetcher.fetches[A].offset == 0
    fetcher.deliver(source, run_of(A, fetcher.fetches[A].fetch_id, range(50)))
    assert (await source.receive(1, [A], 100)).next_offset == 50


async def test_what_follows_the_last_record_and_is_none() -> None:
    """The batch with the last record, and no other, ends after it; it can be put back."""
    source, fetcher, fetch_id = with_a_hundred()
    source.deliver([PassedTo(A, fetch_id, 103)])
    assert (await source.receive(1, [A], 60)).next_offset == 60
    batch = await source.receive(1, [A], 60)
    assert (batch.messages[-1].offset(), batch.next_offset) == (99, 103)
    source.put_back(1, batch)
    assert await source.receive(1, [A], 60) == batch
    fetcher.deliver(source, run_of(A, fetch_id, [103, 104]))
    batch = await source.receive(1, [A], 1)
    assert (batch.start_offset, batch.next_offset) == (103, 104)


async def test_what_follows_a_batch_that_has_left_and_is_no_record() -> None:
    """It is no lag; the next batch begins where the one before ended."""
    source, fetcher, fetch_id = with_a_hundred()
    fetcher.watermarks[A] = 103
    first = await source.receive(1, [A], 100)
    assert source.lag(1) == {A: 3}
    source.deliver([PassedTo(A, fetch_id, 103)])
    assert source.lag(1) == {A: 0}
    fetcher.deliver(source, run_of(A, fetch_id, [104]))
    batch = await source.receive(1, [A], 100)
    assert (first.next_offset, batch.start_offset) == (100, 100)
    source.put_back(1, batch)
    assert fetcher.fetches[A].fetch_id == fetch_id


@pytest.mark.parametrize("offset", [100, 102, 103])
async def test_a_partition_is_kept_where_it_has_no_records(offset: int) -> None:
    """A commit before or after what is no record continues with the same fetch."""
    source, fetcher, fetch_id = with_a_hundred()
    await source.receive(1, [A], 100)
    source.deliver([PassedTo(A, fetch_id, 103)])
    source.assign(2, {A: offset})
    source.open(2, [A])
    assert fetcher.fetches[A].fetch_id == fetch_id


async def test_nothing_is_kept_of_a_partition_that_others_may_have_owned() -> None:
    """Its topic may have been created again: the same offset may have another record."""
    source, fetcher, fetch_id = with_a_hundred()
    await source.receive(1, [A], 40)
    source.assign(2, {A: 40}, {A: 7}, added=[A])
    assert source.buffered == (0, 0)
    source.open(2, [A])
    assert fetcher.fetches[A].offset == 40
    assert fetcher.fetches[A].leader_epoch == 7
    assert fetcher.fetches[A].fetch_id != fetch_id
    fetcher.deliver(source, run_of(A, fetch_id, [100]))
    fetcher.deliver(source, run_of(A, fetcher.fetches[A].fetch_id, [41]))
    assert [one.offset() for one in (await source.receive(2, [A], 9)).messages] == [41]


async def test_a_seek_forgets_what_follows_the_last_record() -> None:
    """What a batch has after it holds for its own fetch only."""
    source, fetcher, fetch_id = with_a_hundred()
    await source.receive(1, [A], 100)
    source.deliver([PassedTo(A, fetch_id, 103)])
    source.seek(1, A, 50)
    source.deliver([PassedTo(A, fetch_id, 103)])
    fetcher.deliver(source, run_of(A, fetcher.fetches[A].fetch_id, [50]))
    assert (await source.receive(1, [A], 100)).next_offset == 51
