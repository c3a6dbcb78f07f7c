"""Attempts, pauses and parking on trio, in virtual time."""

from __future__ import annotations

import asyncio
import logging
import re
import traceback
from itertools import pairwise
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import kgroup
from kgroup import aio, threaded
from kgroup.error_codes import ErrorCode
from kgroup.errors import ArgumentError, CommitFailedError, UsageError
from kgroup.events import (
    DeadLetterTopicMissing,
    ParkingFailed,
    RecordFailed,
    RecordParked,
    RetriesEnded,
)
from kgroup.generation.generation import Generation
from kgroup.interfaces import Batch, Message
from kgroup.retry_policy import OpenRecords
from kgroup.types import TopicPartition
from tests.group.harness import P0, P1, Harness, harness
from tests.test_dead_letters import AWAY, Scripted, letters_by


async def serve(
    here: Harness, handle: object, until: int, drain_timeout: float = 30.0, **options: object
) -> None:
    """Serve a group by a function that is retried, until this offset is committed."""
    async with here.group(drain_timeout=drain_timeout) as group, trio.open_nursery() as nursery:

        async def close() -> None:
            while (await here.committed()).get(P0, 0) < until:  # noqa: ASYNC110 # in virtual time
                await trio.sleep(0.5)
            group.shutdown(promptly=True)

        nursery.start_soon(close)
        await kgroup.serve(group, kgroup.retrying(handle, **options))  # type: ignore[arg-type]


async def test_a_function_for_batches_that_is_called_with_a_record(
    autojump_clock: MockClock,
) -> None:
    """A note says what it should be passed to."""
    async with harness() as here:
        await here.append(1)

        async def handle(_: Generation, batch: Any) -> None:
            await trio.lowlevel.checkpoint()
            for _message in batch:
                """Process it."""

        with pytest.raises(ExceptionGroup) as raised:
            await serve(here, handle, 1, attempts=1)
        (error,) = raised.value.exceptions
        assert "one for batches is passed to run or serve itself" in error.__notes__[1]


async def test_a_record_that_fails_twice(autojump_clock: MockClock) -> None:
    """It is tried again after growing pauses, before the records that follow it."""
    async with harness() as here:
        await here.append(4)
        calls: list[tuple[int, float]] = []

        async def handle(_: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            calls.append((message.offset(), here.now))
            if [offset for offset, _ in calls].count(1) < 3 and message.offset() == 1:
                raise ValueError("not yet")

        await serve(here, handle, 4, backoff=2.0)
        assert [offset for offset, _ in calls] == [0, 1, 1, 1, 2, 3]
        times = [at for offset, at in calls if offset == 1]
        assert [round(later - at) for at, later in pairwise(times)] == [2, 4]
        first, second = here.events_of(RecordFailed)
        assert (first.attempts, first.pause, second.attempts, second.pause) == (1, 2.0, 2, 4.0)
        assert first.level == logging.WARNING
        assert (
            "attempt 1 of 5 to process the record at topic-0 offset 1 failed: ValueError: not yet"
            in str(first.message())
        )


async def test_a_record_that_keeps_failing_is_parked(autojump_clock: MockClock) -> None:
    """It is parked once, with its last error, before its offset is committed; the others go on."""
    async with harness() as here:
        await here.append(5)
        parked: list[tuple[int, str, int]] = []
        calls: list[int] = []

        async def handle(_: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            calls.append(message.offset())
            if message.offset() == 2:
                raise ValueError(f"attempt {calls.count(2)}")

        async def park(message: Message, error: Exception) -> None:
            before = (await here.committed()).get(P0, 0)
            parked.append((message.offset(), str(error), before))

        await serve(here, handle, 5, attempts=3, backoff=0.0, park=park)
        assert calls == [0, 1, 2, 2, 2, 3, 4]
        assert parked == [(2, "attempt 3", 0)]
        (event,) = here.events_of(RecordParked)
        assert (event.partition, event.offset, event.attempts) == (P0, 2, 3)
        assert event.reason == "ValueError: attempt 3"


@pytest.mark.parametrize("kinds", [ValueError, (KeyError, ValueError)])
@pytest.mark.parametrize("in_group", [False, True])
async def test_a_failure_that_would_come_again_is_parked_at_once(
    autojump_clock: MockClock, kinds: Any, in_group: bool
) -> None:
    """Other failures of the same function are tried again; the event has the attempts made."""
    async with harness() as here:
        await here.append(3)
        calls: list[int] = []
        parked: list[int] = []

        async def handle(_: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            calls.append(message.offset())
            if message.offset() == 0 and calls.count(0) == 1:
                raise ConnectionError("away")
            if message.offset() == 1:
                error = ValueError("not JSON")
                raise ExceptionGroup("", [OSError("closed"), error]) if in_group else error

        async def park(message: Message, _: Exception) -> None:
            await trio.lowlevel.checkpoint()
            parked.append(message.offset())

        await serve(here, handle, 3, backoff=0.0, park=park, not_retried=kinds)
        assert calls == [0, 0, 1, 2]
        assert parked == [1]
        (event,) = here.events_of(RecordParked)
        assert (event.offset, event.attempts) == (1, 1)


async def test_the_log_has_tracebacks(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """It shows where a record failed first and where it failed last, and once each."""
    async with harness() as here:
        await here.append(1)
        calls: list[int] = []

        async def handle(_: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            calls.append(message.offset())
            raise ValueError(f"attempt {len(calls)}")

        async def park(_: Message, __: Exception) -> None:
            await trio.lowlevel.checkpoint()

        await serve(here, handle, 1, attempts=3, backoff=0.0, park=park)
    assert logged(caplog) == ["attempt 1", "attempt 3"]


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The exceptions in the log, each of which has the line of the function that raised."""
    errors = [one.exc_info[1] for one in caplog.records if one.exc_info]
    for error in errors:
        assert "in handle" in "".join(traceback.format_exception(error))
    return [str(error) for error in errors]


async def test_without_a_place_to_park_the_worker_ends(autojump_clock: MockClock) -> None:
    """The last attempt's exception ends it, with notes, and the record is not committed."""
    async with harness() as here:
        await here.append(5)

        async def handle(_: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            raise ValueError

        with pytest.raises(ExceptionGroup) as raised:
            await serve(here, handle, 5, attempts=2, backoff=0.0)
        assert raised.group_contains(ValueError)
        error: BaseException = raised.value
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        assert error.__notes__[0].startswith("the record at topic-0 offset 0 failed 2 times")
        assert await here.committed() == {}


@pytest.mark.parametrize(
    ("draining", "commit", "wrapped", "committed"),
    [
        (False, True, False, {P0: 3}),
        (True, True, False, {P0: 3}),
        (False, False, False, {}),
        (False, True, True, {}),
    ],
)
async def test_what_was_processed_before_a_failure(
    autojump_clock: MockClock,
    draining: bool,
    commit: bool,
    wrapped: bool,
    committed: dict[TopicPartition, int],
) -> None:
    """It is committed, in the drain too; but not by a function of the program that calls this one.

    That function may still have to write what was processed.
    """
    async with harness() as here:
        await here.append(5)

        async def handle(generation: Generation, message: Message) -> None:
            if message.offset() == 3:
                if draining:
                    group.shutdown(promptly=True)
                    await generation.ending.wait()
                raise ValueError
            await trio.lowlevel.checkpoint()

        process = kgroup.retrying(handle, attempts=1)

        async def wrapper(generation: Generation, batch: Batch) -> int | None:
            return await process(generation, batch)

        with pytest.raises(ExceptionGroup) as raised:
            async with here.group() as group:
                await kgroup.serve(group, wrapper if wrapped else process, commit=commit)
        (error,) = raised.value.exceptions
        assert isinstance(error, ValueError)
        assert await here.committed() == committed
        assert ("for offsets 0 to 4" if wrapped else "for offsets 3 to 4") in error.__notes__[1]


async def test_a_failure_is_raised_though_the_commit_before_it_fails(
    autojump_clock: MockClock,
) -> None:
    """The exception has a note that says what will be read again."""
    async with harness() as here:
        await here.append(5)
        here.broker.inject("OffsetCommit", "TOPIC_AUTHORIZATION_FAILED", times=None)

        async def handle(_: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            if message.offset() == 3:
                raise ValueError

        with pytest.raises(ExceptionGroup) as raised:
            async with here.group() as group:
                await kgroup.serve(group, kgroup.retrying(handle, attempts=1))
        (error,) = raised.value.exceptions
        assert isinstance(error, ValueError)
        assert "offsets 0 to 2 of topic-0 had been processed before" in error.__notes__[2]


@pytest.mark.parametrize("error", [UsageError("wrong"), ValueError("wrong")])
async def test_a_mistake_in_a_nursery_is_not_parked(
    autojump_clock: MockClock, error: Exception
) -> None:
    """In a group, too, a wrong call of kgroup ends the worker; other errors are the record's."""
    async with harness() as here:
        await here.append(1)

        async def handle(_: Generation, __: Message) -> None:
            await trio.lowlevel.checkpoint()
            raise ExceptionGroup("a nursery", [error])

        async def park(_: Message, __: Exception) -> None:
            await trio.lowlevel.checkpoint()

        if isinstance(error, UsageError):
            with pytest.raises(ExceptionGroup) as raised:
                await serve(here, handle, 1, park=park)
            assert raised.group_contains(UsageError, match="wrong")
            assert await here.committed() == {}
        else:
            await serve(here, handle, 1, attempts=1, park=park)
            (event,) = here.events_of(RecordParked)
            assert event.reason == "ExceptionGroup (ValueError: wrong)"


async def test_functions_of_another_package(autojump_clock: MockClock) -> None:
    """They are refused at their first batch, and not when a record first fails."""
    async with harness() as here:
        await here.append(1)

        async def handle(*_: object) -> None:
            """Process nothing."""

        for function, name in (
            (threaded.retrying(print), "kgroup.threaded"),
            (aio.retrying(handle), "kgroup.aio"),
        ):
            with pytest.raises(ExceptionGroup) as raised:
                async with here.group() as group:
                    await kgroup.serve(group, function)  # type: ignore[arg-type]
            assert raised.group_contains(UsageError, match=f"pass it to {name}.run")
            assert await here.committed() == {}


async def test_a_place_to_park_that_fails(autojump_clock: MockClock) -> None:
    """The record is not committed: nothing is lost."""
    async with harness() as here:
        await here.append(5)

        async def handle(_: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            raise ValueError

        async def park(message: Message, error: Exception) -> None:
            await trio.lowlevel.checkpoint()
            raise OSError("full")

        with pytest.raises(ExceptionGroup) as raised:
            await serve(here, handle, 5, attempts=1, park=park)
        assert raised.group_contains(OSError, match="full")
        (error,) = raised.value.exceptions
        (note,) = error.__notes__
        assert note.startswith(f"{park.__qualname__} raised this for offsets 0 to 4 of topic-0")
        assert await here.committed() == {}
        assert here.events_of(RecordParked) == []


async def test_a_pause_ends_with_its_generation(autojump_clock: MockClock) -> None:
    """The drain does not wait for it, what came before is committed, and an event says so."""
    async with harness() as here:
        await here.append(5)
        calls: list[int] = []

        async def handle(_: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            calls.append(message.offset())
            if message.offset() == 3:
                raise ValueError

        async with here.group() as group, trio.open_nursery() as nursery:
            handler = kgroup.retrying(handle, backoff=1000.0, backoff_max=1000.0)
            nursery.start_soon(kgroup.serve, group, handler)
            while len(calls) < 4:  # noqa: ASYNC110 # in virtual time
                await trio.sleep(0.5)
            began = here.now
            await group.aclose(promptly=True)
        assert here.now - began < 2.0
        assert calls == [0, 1, 2, 3]
        assert await here.committed() == {P0: 3}
        (event,) = here.events_of(RetriesEnded)
        assert event.message() == (
            "the record at topic-0 offset 3 is not tried again after attempt 1, because the"
            " generation ends; it is not committed, so the next owner reads it"
        )


@pytest.mark.parametrize("how", ["kept", "lost"])
async def test_attempts_and_pauses_go_on_after_a_rebalance(
    autojump_clock: MockClock, how: str
) -> None:
    """Where the member keeps the partition. Otherwise another one may have processed the record."""
    async with harness() as here:
        await here.append(2)
        tried: list[float] = []
        parked_at: list[float] = []

        async def handle(generation: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            if message.offset() == 1:
                tried.append(here.now)
                if how == "lost" and len(tried) == 3:
                    await here.broker.remove_member("group", generation.member_id)
                raise ValueError

        async def park(_: Message, __: Exception) -> None:
            await trio.lowlevel.checkpoint()
            parked_at.append(here.now)

        async def rebalances() -> None:
            while True:
                await trio.sleep(3)
                here.broker.inject("heartbeat", ErrorCode.REBALANCE_IN_PROGRESS)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(rebalances)
            await serve(here, handle, 2, attempts=4, backoff=5.0, park=park)
            nursery.cancel_scope.cancel()
        attempts = [event.attempts for event in here.events_of(RecordFailed)]
        pauses = [later - at for at, later in pairwise(tried)]
        wanted = [5.0, 10.0, 20.0]
        if how == "lost":  # at the third attempt
            assert attempts == [1, 2, 3, 1, 2, 3]
            wanted = [5.0, 10.0, 0.0, *wanted]
        else:
            assert attempts == [1, 2, 3]
            assert parked_at == tried[-1:]
        assert len(here.events_of(RetriesEnded)) >= 5  # so often was a pause cut short
        for pause, least in zip(pauses, wanted, strict=True):
            assert least <= pause <= least + 4.0  # a generation may have to begin first


async def test_what_takes_long_is_committed_meanwhile(autojump_clock: MockClock) -> None:
    """After five seconds, between two records: a member may die at any time."""
    async with harness() as here:
        await here.append(7)
        found: list[int] = []

        async def handle(_: Generation, __: Message) -> None:
            await trio.sleep(2)
            found.append((await here.committed()).get(P0, 0))

        await serve(here, handle, 7)
        assert found == [0, 0, 0, 3, 3, 3, 6]


async def test_what_came_before_a_long_pause_is_committed_first(
    autojump_clock: MockClock,
) -> None:
    """A record that is tried again holds back none before it; its attempts are counted on."""
    async with harness() as here:
        await here.append(4)
        tried: list[tuple[int, float, int]] = []

        async def handle(_: Generation, message: Message) -> None:
            committed = (await here.committed()).get(P0, 0)
            tried.append((message.offset(), here.now, committed))
            if message.offset() == 2 and len(tried) < 5:
                raise ValueError

        await serve(here, handle, 4, backoff=100.0, backoff_max=200.0)
        assert [(offset, committed) for offset, _, committed in tried] == [
            *((0, 0), (1, 0), (2, 0)),
            *((2, 2), (2, 2), (3, 3)),
        ]
        first, second, third = (at for offset, at, _ in tried if offset == 2)
        assert (second - first, third - second) == (100.0, 200.0)
        assert [event.attempts for event in here.events_of(RecordFailed)] == [1, 2]
        assert here.events_of(RetriesEnded) == []


async def test_a_generation_that_ends_while_records_before_a_pause_are_committed(
    autojump_clock: MockClock,
) -> None:
    """An event reports that the record is not tried again, as when the pause had begun."""
    async with harness() as here:
        await here.append(2)

        async def handle(_: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            if message.offset() == 1:
                group.shutdown(promptly=True)
                raise ValueError

        async with here.group() as group:
            await kgroup.serve(group, kgroup.retrying(handle, backoff=10.0))
        assert await here.committed() == {P0: 1}
        assert [event.offset for event in here.events_of(RetriesEnded)] == [1]
        assert len(here.events_of(RecordFailed)) == 1


async def test_a_generation_that_ends_during_such_a_commit_and_after_the_pause(
    autojump_clock: MockClock,
) -> None:
    """The record is not tried again: the end is checked after the commit, too."""
    async with harness() as here:
        await here.append(2)
        here.broker.slow(2.0, "offset_commit")
        tried: list[int] = []

        async def handle(_: Generation, message: Message) -> None:
            tried.append(message.offset())
            if message.offset() == 1:
                await trio.sleep(6)
                nursery.start_soon(close)
                raise ValueError

        async def close() -> None:
            await trio.sleep(1)
            group.shutdown(promptly=True)

        async with here.group() as group, trio.open_nursery() as nursery:
            await kgroup.serve(group, kgroup.retrying(handle, backoff=0.0))
        assert tried == [0, 1]
        assert await here.committed() == {P0: 1}
        assert [event.offset for event in here.events_of(RetriesEnded)] == [1]


async def test_such_a_commit_that_is_refused(autojump_clock: MockClock) -> None:
    """It ends the worker, and an event reports that the record is not tried again."""
    async with harness() as here:
        await here.append(2)
        here.broker.inject("offset_commit", "OFFSET_METADATA_TOO_LARGE", times=None)

        async def handle(_: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            if message.offset() == 1:
                raise ValueError

        with pytest.raises(ExceptionGroup) as raised:
            await serve(here, handle, 2, backoff=10.0)
        assert isinstance(raised.value.exceptions[0], CommitFailedError)
        assert [event.offset for event in here.events_of(RecordFailed)] == [1]
        assert [event.offset for event in here.events_of(RetriesEnded)] == [1]


async def test_a_seek_during_such_a_commit(autojump_clock: MockClock) -> None:
    """As after one in a pause, a record that is read again has all its attempts."""
    async with harness() as here:
        await here.append(2)
        here.broker.slow(2.0, "offset_commit")
        tried: list[int] = []

        async def handle(generation: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            tried.append(message.offset())
            if message.offset() == 1 and len(tried) < 5:
                if len(tried) == 2:
                    nursery.start_soon(seek, generation)
                raise ValueError

        async def seek(generation: Generation) -> None:
            await trio.sleep(1)
            generation.seek(P0, 0)

        async with trio.open_nursery() as nursery:
            await serve(here, handle, 2, attempts=3, backoff=10.0)
        assert tried == [0, 1, 0, 1, 1]
        assert [event.attempts for event in here.events_of(RecordFailed)] == [1, 1]
        assert here.events_of(RetriesEnded) == []


@pytest.mark.parametrize("ends", [False, True])
async def test_a_function_that_commits_each_record_before_it_processes_it(
    autojump_clock: MockClock, ends: bool
) -> None:
    """What precedes a record that is tried again is committed already: that is no error."""
    async with harness() as here:
        await here.append(4)
        tried: list[int] = []

        async def handle(generation: Generation, message: Message) -> None:
            await generation.commit({P0: message.offset() + 1})
            tried.append(message.offset())
            if message.offset() == 2 and tried.count(2) < 3:
                if ends:
                    here.broker.inject("heartbeat", ErrorCode.REBALANCE_IN_PROGRESS)
                raise ValueError

        await serve(here, handle, 4, backoff=4.0 if ends else 10.0)
        assert tried == ([0, 1, 2, 3] if ends else [0, 1, 2, 2, 2, 3])
        assert len(here.events_of(RetriesEnded)) == ends


async def test_a_function_that_commits_each_record_and_fails_for_good(
    autojump_clock: MockClock,
) -> None:
    """Its exception does not say that records before the one that failed come again."""
    async with harness() as here:
        await here.append(3)

        async def handle(generation: Generation, message: Message) -> None:
            await generation.commit({P0: message.offset() + 1})
            if message.offset() == 1:
                raise ValueError

        with pytest.raises(ExceptionGroup) as raised:
            await serve(here, handle, 3, attempts=1)
        (error,) = raised.value.exceptions
        assert not any("read again too" in note for note in error.__notes__)
        assert any("will not be read again" in note for note in error.__notes__)
        assert await here.committed() == {P0: 2}


async def test_records_that_take_longer_than_a_drain(autojump_clock: MockClock) -> None:
    """At each rebalance only the record in hand is cut short, and begun again."""
    async with harness() as here:
        await here.append(4)
        begun: list[int] = []

        async def handle(_: Generation, message: Message) -> None:
            begun.append(message.offset())
            await trio.sleep(20)

        async def rebalances() -> None:
            while True:
                await trio.sleep(50)
                here.broker.inject("heartbeat", ErrorCode.REBALANCE_IN_PROGRESS)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(rebalances)
            with trio.fail_after(1000):
                await serve(here, handle, 4, drain_timeout=1.0)
            nursery.cancel_scope.cancel()
        assert sorted(begun) == begun
        assert len(begun) == 5


async def test_a_loop_of_the_programs_own_gets_whole_batches(autojump_clock: MockClock) -> None:
    """It commits a batch when that is processed: only a worker calls again for the rest."""
    async with harness() as here:
        await here.append(4)

        async def handle(_: Generation, __: Message) -> None:
            await trio.sleep(4)

        process, returned = kgroup.retrying(handle), list[int | None]()
        async with here.group() as group:
            async for generation in group:
                async for batch in generation.records(P0):
                    returned.append(await process(generation, batch))
                    assert len(batch) == 4
                    group.shutdown(promptly=True)
                    break
        assert returned == [None]


async def test_an_earlier_record_that_is_read_again_forgets_nothing(
    autojump_clock: MockClock,
) -> None:
    """Where nothing was committed, records before the one that is tried again come once more."""
    async with harness() as here:
        await here.append(3)
        tried: list[tuple[int, float]] = []

        async def handle(_: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            tried.append((message.offset(), here.now))
            if message.offset() == 2 and [one for one, _ in tried].count(2) < 3:
                if len(tried) == 3:
                    here.broker.inject("heartbeat", ErrorCode.REBALANCE_IN_PROGRESS)
                raise ValueError
            if len(tried) == 7:
                group.shutdown(promptly=True)

        async with here.group() as group:
            process = kgroup.retrying(handle, backoff=20.0)
            await kgroup.serve(group, process, commit=False)
        assert [offset for offset, _ in tried] == [0, 1, 2, 0, 1, 2, 2]
        first, second, third = (at for offset, at in tried if offset == 2)
        assert (second - first, third - second) == (20.0, 30.0)
        assert [event.attempts for event in here.events_of(RecordFailed)] == [1, 2]


def test_what_is_kept_of_records_that_are_tried_again() -> None:
    """The rest of the pause and the count, of each function, for partitions that are kept."""
    clock = [100.0]
    first, second = object(), object()
    records = OpenRecords(lambda: clock[0])
    records.add(first, P0, 7, 3, 10.0)
    records.add(first, P1, 8, 1, 10.0)
    records.add(second, P0, 7, 1, 0.0)
    clock[0] = 104.0
    records.remove(first, P0, 6)
    assert records.attempts_at(first, P0, 6) == (0, 0.0)
    assert records.attempts_at(first, P0, 7) == (3, 6.0)
    assert records.attempts_at(second, P0, 7) == (1, 0.0)
    clock[0] = 120.0
    following = OpenRecords(lambda: clock[0], records.of_kept({P0}))
    records.remove(first, P0, 7)  # by a thread that has outlasted the generation
    assert following.attempts_at(first, P0, 7) == (3, 0.0)
    assert following.attempts_at(first, P1, 8) == (0, 0.0)
    following.remove(first, P0, 9)
    assert following.attempts_at(first, P0, 7) == (0, 0.0)
    assert following.attempts_at(second, P0, 7) == (1, 0.0)


def test_functions_that_a_program_makes_again_and_again() -> None:
    """The counts of the last ones are kept, so that they do not pile up."""
    records, functions = OpenRecords(), [object() for _ in range(100)]
    for function in functions:
        records.add(function, P0, 7, 1, 0.0)
        records = OpenRecords(before=records.of_kept({P0}))
    counts = [records.attempts_at(function, P0, 7)[0] for function in functions]
    assert sum(counts) == 8
    assert counts[-1] == 1


async def test_a_record_that_could_not_be_parked_is_tried_as_often_again(
    autojump_clock: MockClock,
) -> None:
    """A program that goes on after the error gets all attempts once more."""
    async with harness() as here:
        await here.append(1)
        tried: list[int] = []

        async def handle(_: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            tried.append(message.offset())
            raise ValueError

        process = kgroup.retrying(handle, attempts=3)
        async with here.group() as group:
            generation = await group.next()
            batch = await anext(generation.records(P0))
            for _ in range(2):
                with pytest.raises(ValueError):  # noqa: PT011 # the program's own
                    await process(generation, batch)
        assert tried == [0] * 6


async def test_a_producer_that_is_away_for_a_moment(autojump_clock: MockClock) -> None:
    """The dead letter is written later, and the partition goes on; an event has the reason."""
    async with harness() as here:
        await here.append(2)
        producer = Scripted(AWAY, AWAY)

        async def handle(_: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            if message.offset() == 0:
                raise ValueError

        await serve(here, handle, 2, attempts=1, backoff=2.0, park=letters_by(producer))
        assert [value for _, value in producer.written] == [b"0"] * 3
        first, second = here.events_of(ParkingFailed)
        assert (first.attempts, first.pause, second.attempts, second.pause) == (1, 2.0, 2, 4.0)
        assert "_MSG_TIMED_OUT" in first.reason
        (parked,) = here.events_of(RecordParked)
        assert parked.offset == 0


async def test_a_topic_of_dead_letters_that_does_not_exist(autojump_clock: MockClock) -> None:
    """It is a warning at the first batch, and at no other one, long before a record is parked."""
    async with harness() as here:
        await here.append(2)
        producer = Scripted()
        producer.topics = {"fail": 1, "topic": 1}

        async def handle(_: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()

        await serve(here, handle, 2, park=letters_by(producer))
        (missing,) = here.events_of(DeadLetterTopicMissing)
        assert (missing.topic, missing.nearest) == ("failed", "fail")


@pytest.mark.parametrize(
    ("topics", "remedy"),
    [
        (["other", "topic"], "Give DeadLetters a topic of its own"),
        ([re.compile("(?i)TOP.*")], r"pattern '(?i)TOP.*' .* by (?!topic$) before the rest"),
    ],
)
async def test_a_worker_that_reads_its_dead_letters(
    autojump_clock: MockClock, topics: list[Any], remedy: str
) -> None:
    """It ends at its first batch, before it has processed anything."""
    async with harness() as here:
        await here.append(1)

        async def handle(_: Generation, message: Message) -> None:
            raise AssertionError(message)

        producer = Scripted()
        producer.topics = {"topic": None}
        process = kgroup.retrying(handle, park=kgroup.DeadLetters(producer, "topic"))  # type: ignore[arg-type]
        with pytest.raises(ExceptionGroup) as raised:
            async with here.group(topics=topics) as group:
                producer.address = address_of(group)
                await kgroup.serve(group, process)
        error = raised.value.exceptions[0]
        assert isinstance(error, UsageError)
        words = remedy.split(" .* ")
        assert all(each in str(error) for each in ("topic 'topic' of DeadLetters", *words))
        assert error.__notes__[0].startswith("<DeadLetters 'topic'> raised this for offset 0 of")


def address_of(group: kgroup.ConsumerGroup) -> tuple[str, int]:
    """The address of a group's broker."""
    (server,) = group.config.bootstrap_servers
    host, port = server.rsplit(":", 1)
    return host, int(port)


async def test_dead_letters_of_the_same_name_in_another_cluster(autojump_clock: MockClock) -> None:
    """The worker goes on: no group reads them."""
    async with harness() as here:
        await here.append(1)

        async def handle(_: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()

        producer = Scripted()
        producer.topics = {"topic": None}
        await serve(here, handle, 1, park=kgroup.DeadLetters(producer, "topic"))  # type: ignore[arg-type]


async def test_a_topic_that_only_begins_like_the_pattern(autojump_clock: MockClock) -> None:
    """The worker may park there: a pattern matches whole names."""
    async with harness() as here:
        await here.append(1)

        async def handle(_: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()

        park = kgroup.DeadLetters(Scripted(), "topic.failed")  # type: ignore[arg-type]
        await serve(here, handle, 1, park=park)


@pytest.mark.parametrize(("offset", "ends"), [(1, False), (1, True), (4, False), (4, True)])
async def test_a_seek_in_a_loop_of_the_programs_own(
    autojump_clock: MockClock, offset: int, ends: bool
) -> None:
    """What was sought is returned, so that the loop does not commit what was left of the batch."""
    async with harness() as here:
        await here.append(6)
        left: list[int | None] = []

        async def handle(_: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            if message.offset() == 2:
                raise ValueError

        process = kgroup.retrying(handle, backoff=1e4, backoff_max=1e4)

        async def read(generation: Generation) -> None:
            async for batch in generation.records(P0):
                left.append(await process(generation, batch))
                await generation.commit({P0: batch.next_offset if left[-1] is None else left[-1]})
                return

        async with here.group() as group:
            generation = await group.next()
            generation.start_soon(read, generation)
            while not here.events_of(RecordFailed):  # noqa: ASYNC110 # in virtual time
                await trio.sleep(0.1)
            generation.seek(P0, offset)
            if ends:
                group.shutdown(promptly=True)
            await generation.wait_ended()
        assert left == [offset]
        assert await here.committed() == {P0: offset}


async def test_a_seek_past_a_dead_letter_that_cannot_be_written(autojump_clock: MockClock) -> None:
    """It is not written again from there, nor reported as parked; the partition goes on at once."""
    async with harness() as here:
        await here.append(3)
        producer = Scripted(AWAY)
        current: list[Generation] = []

        async def handle(generation: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            current[:] = [generation]
            if message.offset() == 1:
                raise ValueError

        async with here.group() as group, trio.open_nursery() as nursery:
            park = letters_by(producer)
            handler = kgroup.retrying(handle, attempts=1, backoff=1e4, backoff_max=1e4, park=park)
            nursery.start_soon(kgroup.serve, group, handler)
            while not here.events_of(ParkingFailed):  # noqa: ASYNC110 # in virtual time
                await trio.sleep(0.1)
            current[0].seek(P0, 2)
            with trio.fail_after(5):
                while (await here.committed()).get(P0) != 3:  # noqa: ASYNC110 # in virtual time
                    await trio.sleep(0.1)
            group.shutdown(promptly=True)
        assert [value for _, value in producer.written] == [b"1"]
        assert not here.events_of(RecordParked)


async def test_a_pause_before_the_next_dead_letter_ends_with_its_generation(
    autojump_clock: MockClock,
) -> None:
    """The record is neither parked nor committed, and what came before it is committed."""
    async with harness() as here:
        await here.append(2)
        producer = Scripted(AWAY)

        async def handle(_: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            if message.offset() == 1:
                raise ValueError

        async with here.group() as group, trio.open_nursery() as nursery:
            park = letters_by(producer)
            handler = kgroup.retrying(handle, attempts=1, backoff=1e4, backoff_max=1e4, park=park)
            nursery.start_soon(kgroup.serve, group, handler)
            while not here.events_of(ParkingFailed):  # noqa: ASYNC110 # in virtual time
                await trio.sleep(0.5)
            await group.aclose(promptly=True)
        assert await here.committed() == {P0: 1}
        assert len(here.events_of(RetriesEnded)) == 1
        assert here.events_of(RecordParked) == []


async def test_heartbeats_continue_during_pauses(autojump_clock: MockClock) -> None:
    """A record that is tried for much longer than a session costs no rebalance."""
    async with harness() as here:
        await here.append(1)
        calls: list[float] = []

        async def handle(generation: Generation, _: Message) -> None:
            await trio.lowlevel.checkpoint()
            calls.append(generation.epoch)
            if len(calls) < 4:
                raise ValueError

        await serve(here, handle, 1, attempts=4, backoff=60.0, backoff_max=60.0)
        assert calls == [1] * 4


async def test_a_mistake_is_not_retried(autojump_clock: MockClock) -> None:
    """A function that is not async, and a wrong call of kgroup, end the worker at once."""
    async with harness() as here:
        await here.append(1)

        def handle(_: Generation, message: Message) -> Any:
            return message.value()

        with pytest.raises(ExceptionGroup) as raised:
            await serve(here, handle, 1)
        assert raised.group_contains(UsageError, match="handle is not an async function")
        with pytest.raises(ArgumentError, match="not an async function; kgroup.threaded.retrying"):
            kgroup.retrying(lambda _, __: None)  # type: ignore[arg-type, return-value]
        assert here.events_of(RecordFailed) == []


async def test_a_cancellation_that_was_kept(autojump_clock: MockClock) -> None:
    """A function that raises it ends the worker: the note names the record, those before count."""
    async with harness() as here:
        await here.append(5)
        kept: list[trio.Cancelled] = []
        with trio.CancelScope() as scope:
            scope.cancel()
            try:
                await trio.sleep(1)
            except trio.Cancelled as cancelled:
                kept.append(cancelled)
                raise

        async def handle(_: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            if message.offset() == 3:
                raise kept[0]

        with pytest.raises(ExceptionGroup) as raised:
            await serve(here, handle, 5)
        assert raised.group_contains(UsageError, match="handle raised trio.Cancelled")
        (error,) = raised.value.exceptions
        assert "for offsets 3 to 4 of topic-0" in error.__notes__[0]
        assert await here.committed() == {P0: 3}


async def test_another_library_s_calls_end_the_worker(autojump_clock: MockClock) -> None:
    """A handler that calls asyncio in trio is not retried, and parks no record."""
    async with harness() as here:
        await here.append(3)
        parked: list[object] = []

        async def handle(_: Generation, message: Message) -> None:
            await asyncio.sleep(1)

        async def park(message: Message, error: Exception) -> None:
            parked.append(message)

        with pytest.raises(ExceptionGroup) as raised:
            await serve(here, handle, 3, park=park)
        (error,) = raised.value.exceptions
        assert isinstance(error, RuntimeError)
        assert "functions that use asyncio belong to kgroup.aio" in error.__notes__[0]
        assert here.events_of(RecordFailed) == parked == []
        assert await here.committed() == {}


async def test_work_that_has_not_been_done(autojump_clock: MockClock) -> None:
    """A record whose function returns a coroutine, as without ``await``, is not committed."""
    async with harness() as here:
        await here.append(1)

        async def process(message: Message) -> None:
            """Process nothing."""

        async def handle(_: Generation, message: Message) -> object:
            await trio.lowlevel.checkpoint()
            return process(message)

        with pytest.raises(ExceptionGroup) as raised:
            await serve(here, handle, 1)
        match = "handle returned <coroutine object .*>: await it in the function"
        assert raised.group_contains(UsageError, match=match)
        assert await here.committed() == {}


def test_wrong_arguments() -> None:
    """They are refused when the function is made."""
    wrong: list[dict[str, object]] = [
        {"attempts": 0},
        {"attempts": 1.5},
        {"backoff": -1},
        {"backoff_max": "1"},
        {"backoff_max": 30_000},
        {"park": 1},
        {"not_retried": 1},
        {"not_retried": [ValueError]},
        {"not_retried": (ValueError, KeyboardInterrupt)},
    ]
    for options in wrong:
        with pytest.raises(ArgumentError, match=next(iter(options))):
            kgroup.retrying(print, **options)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="handle"):
        kgroup.retrying("handle")  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match=r"give kgroup.DeadLetters\(producer, 'o.failed'\)"):
        kgroup.retrying(print, park="o.failed")  # type: ignore[arg-type]
