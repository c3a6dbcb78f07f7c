"""Workers in few lines, on trio: `serve` in virtual time, and where `run` may be called."""

from __future__ import annotations

import asyncio
import io
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

import kgroup
from kgroup.config import GroupConfig
from kgroup.errors import ArgumentError, CommitFailedError, FetchError, UsageError
from kgroup.events import CommitRefused, Event, GenerationEnded, GenerationStarted, RecordFailed
from kgroup.generation.generation import Generation
from kgroup.interfaces import Batch, Message, RecordSource
from kgroup.records.buffered_source import BufferedSource
from kgroup.records.fetcher import FetcherBroken
from kgroup.status import GroupStatus, Phase
from kgroup.testing.memory import memory_runtime
from kgroup.types import Cause, TopicPartition
from kgroup.worker import SAME_WISH, closed_by_signals, report_end, report_failure
from tests.group.harness import P0, P1, harness, values


async def test_every_record_in_its_partitions_order(autojump_clock: MockClock) -> None:
    """Partitions are processed at the same time, each in its order, and all is committed."""
    async with harness(2) as here:
        for number in range(2):
            await here.append(25, number)
        found: dict[TopicPartition, list[int]] = {P0: [], P1: []}
        most, now = 0, 0

        async def handle(_: Generation, batch: Batch) -> None:
            nonlocal most, now
            now += 1
            most = max(most, now)
            await trio.sleep(1)
            now -= 1
            found[batch.partition] += values(batch.messages)
            assert len(batch) <= 10
            if [len(one) for one in found.values()] == [25, 25]:
                group.shutdown()

        async with here.group() as group:
            await kgroup.serve(group, handle, max_records=10)
        assert found == {P0: list(range(25)), P1: list(range(25))}
        assert most == 2
        assert await here.committed() == {P0: 25, P1: 25}


async def test_a_batch_in_parts(autojump_clock: MockClock) -> None:
    """The offset that is returned is committed, and the function gets the records from there on."""
    async with harness() as here:
        await here.append(10)
        calls: list[list[int]] = []

        async def handle(_: Generation, batch: Batch) -> int | None:
            await trio.lowlevel.checkpoint()
            calls.append(values(batch.messages))
            if batch.next_offset == 10 and len(batch) <= 2:
                group.shutdown()
                return None
            return (batch.messages[0].offset() or 0) + 4

        async with here.group() as group:
            await kgroup.serve(group, handle)
        assert calls == [list(range(10)), list(range(4, 10)), [8, 9]]
        assert await here.committed() == {P0: 10}


async def test_the_end_of_a_generation_in_the_middle_of_a_batch(autojump_clock: MockClock) -> None:
    """What was processed is committed, the rest is read in the next generation, nothing twice."""
    async with harness() as here:
        await here.append(20)
        found: list[int] = []

        async def handle(generation: Generation, batch: Batch) -> int | None:
            for message in batch:
                await trio.sleep(0.5)
                found.append(message.offset() or 0)
                if generation.ending.is_set():
                    return (message.offset() or 0) + 1
            group.shutdown()
            return None

        async def rebalance() -> None:
            await trio.sleep(4)
            async with here.group() as other:
                await other.next()

        async with here.group() as group, trio.open_nursery() as nursery:
            nursery.start_soon(rebalance)
            await kgroup.serve(group, handle)
        assert found == list(range(20))
        assert await here.committed() == {P0: 20}
        assert len([api for api, _ in here.requests_for("offset_commit")]) >= 2


async def test_a_function_that_seeks(autojump_clock: MockClock) -> None:
    """That offset is committed, whatever it returns: the next owner reads from there on, too."""
    async with harness() as here:
        await here.append(10)
        found: list[list[int]] = []
        committed: list[dict[TopicPartition, int]] = []

        async def handle(generation: Generation, batch: Batch) -> int | None:
            found.append(values(batch.messages))
            committed.append(await here.committed())
            if len(found) == 1:
                generation.seek(batch.partition, 3)
            elif len(found) == 2:
                generation.seek(batch.partition, 8)
                return 77
            else:
                group.shutdown()
            return None

        async with here.group() as group:
            await kgroup.serve(group, handle)
        assert found == [list(range(10)), list(range(3, 10)), [8, 9]]
        assert committed == [{}, {P0: 3}, {P0: 8}]
        assert await here.committed() == {P0: 10}


@pytest.mark.parametrize("offset", [0, 3, 5])
async def test_a_seek_in_the_last_batch(autojump_clock: MockClock, offset: int) -> None:
    """Its offset is committed although no batch follows, back, at the batch's end, or beyond."""
    async with harness() as here:
        await here.append(3)
        found: list[list[int]] = []

        async def handle(generation: Generation, batch: Batch) -> int:
            await trio.lowlevel.checkpoint()
            found.append(values(batch.messages))
            if batch.next_offset < 3 or len(batch) > 1:
                return batch.start_offset + 1
            generation.seek(P0, offset)
            group.shutdown()
            return 3

        async with here.group() as group:
            await kgroup.serve(group, handle)
        assert found == [[0, 1, 2], [1, 2], [2]]
        assert await here.committed() == {P0: offset}


async def test_a_seek_of_another_task_meanwhile(autojump_clock: MockClock) -> None:
    """It counts even while a part of the batch is being committed: no record of it comes twice."""
    async with harness() as here:
        await here.append(4)
        found: list[list[int]] = []

        async def handle(generation: Generation, batch: Batch) -> int | None:
            found.append(values(batch.messages))
            if len(found) == 1:
                here.broker.slow(1.0, "offset_commit", times=1)
                nursery.start_soon(seek, generation)
                return 2
            if batch.next_offset == 4:
                group.shutdown()
            return None

        async def seek(generation: Generation) -> None:
            await trio.sleep(0.5)
            generation.seek(P0, 1)

        async with trio.open_nursery() as nursery, here.group() as group:
            await kgroup.serve(group, handle)
        assert found == [[0, 1, 2, 3], [1, 2, 3]]
        assert await here.committed() == {P0: 4}


@pytest.mark.parametrize(("offset", "expected"), [(1, [0, *range(1, 10)]), (8, [0, 8, 9])])
async def test_a_seek_while_a_commit_gets_no_answer(
    autojump_clock: MockClock, offset: int, expected: list[int]
) -> None:
    """The commit is not made again: it would be behind the seek, or refuse what is read again."""
    async with harness() as here, trio.open_nursery() as nursery:
        await here.append(10)
        found: list[int] = []

        async def handle(generation: Generation, batch: Batch) -> int:
            await trio.lowlevel.checkpoint()
            found.append(values(batch.messages)[0])
            if len(found) == 1:
                here.broker.slow(60.0, "offset_commit", times=1)
                nursery.start_soon(seek, generation)
                return 4
            if batch.next_offset == 10 and len(batch) == 1:
                group.shutdown()
            return (batch.messages[0].offset() or 0) + 1

        async def seek(generation: Generation) -> None:
            await trio.sleep(2)
            for sought in (9, offset):
                generation.seek(P0, sought)
                await trio.sleep(0.5)

        async with here.group(request_timeout=5.0) as group:
            await kgroup.serve(group, handle)
        assert found == expected
        assert await here.committed() == {P0: 10}
        assert len(here.events_of(CommitRefused)) == 1


async def test_a_function_for_records_that_seeks(autojump_clock: MockClock) -> None:
    """The rest of its batch comes after the records that it has sought, and not before."""
    async with harness() as here:
        await here.append(6)
        found: list[int | None] = []

        async def handle(generation: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            found.append(message.offset())
            if found == [0, 1, 2, 3]:
                generation.seek(P0, 2)
            if message.offset() == 5:
                group.shutdown()

        async with here.group() as group:
            await kgroup.serve(group, kgroup.retrying(handle))
        assert found == [0, 1, 2, 3, 2, 3, 4, 5]
        assert await here.committed() == {P0: 6}


async def test_a_seek_past_a_record_that_keeps_failing(autojump_clock: MockClock) -> None:
    """It is not tried again, and the pause in which another task seeks ends at once."""
    async with harness() as here, trio.open_nursery() as nursery:
        await here.append(10)
        found: list[int | None] = []
        times: list[float] = []

        async def handle(generation: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            found.append(message.offset())
            times.append(here.now)
            if message.offset() == 2:
                if found.count(2) == 2:
                    nursery.start_soon(seek, generation)
                raise ValueError("poison")
            if message.offset() == 9:
                group.shutdown()

        async def seek(generation: Generation) -> None:
            await trio.sleep(1)
            generation.seek(P0, 8)

        async with here.group() as group:
            await kgroup.serve(group, kgroup.retrying(handle, attempts=9, backoff=4.0))
        assert found == [0, 1, 2, 2, 8, 9]
        assert times[4] - times[3] == pytest.approx(1)
        assert await here.committed() == {P0: 10}


async def test_an_event_handler_that_seeks_past_a_failed_record(
    autojump_clock: MockClock,
) -> None:
    """There is no pause, which would have to end before the partition goes on."""
    async with harness() as here:
        await here.append(3)
        found: list[tuple[int | None, float]] = []
        current: list[Generation] = []

        async def handle(generation: Generation, message: Message) -> None:
            await trio.lowlevel.checkpoint()
            current[:] = [generation]
            found.append((message.offset(), here.now))
            if message.offset() == 1:
                raise ValueError("poison")
            if message.offset() == 2:
                group.shutdown(promptly=True)

        def skip(event: Event) -> None:
            if isinstance(event, RecordFailed):
                current[0].seek(event.partition, event.offset + 1)

        runtime = memory_runtime(here.broker, seed=1)
        async with kgroup.ConsumerGroup(here.config(), runtime=runtime, on_event=skip) as group:
            await kgroup.serve(group, kgroup.retrying(handle, attempts=9, backoff=1000.0))
        assert [offset for offset, _ in found] == [0, 1, 2]
        assert found[2][1] - found[1][1] < 1


async def test_it_returns_when_the_last_batch_is_processed(autojump_clock: MockClock) -> None:
    """What the program opened around `serve` is there until the drain is over."""
    async with harness() as here:
        await here.append(1)
        done: list[float] = []

        async def handle(_: Generation, batch: Batch) -> None:
            group.shutdown()
            await trio.sleep(10)
            done.append(here.now)

        async with here.group() as group:
            await kgroup.serve(group, handle)
            assert len(done) == 1
        assert await here.committed() == {P0: 1}


@pytest.mark.parametrize("answer", ["COORDINATOR_LOAD_IN_PROGRESS", "REQUEST_TIMED_OUT"])
async def test_a_drain_that_ends_while_commits_are_refused(
    autojump_clock: MockClock, answer: str
) -> None:
    """The worker goes on with its next generation, however many partitions were committing."""
    async with harness(8) as here:
        partitions = [TopicPartition("topic", number) for number in range(8)]
        for one in partitions:
            await here.append(3, one.partition)
        away = here.broker.inject("OffsetCommit", answer, times=None)

        async def handle(generation: Generation, batch: Batch) -> None:
            await trio.lowlevel.checkpoint()
            if generation.epoch == 1:
                here.broker.inject("Heartbeat", "REBALANCE_IN_PROGRESS")
            else:
                away.cancel()

        async with here.group(drain_timeout=2.0) as group, trio.open_nursery() as nursery:
            nursery.start_soon(kgroup.serve, group, handle)
            while await here.committed() != dict.fromkeys(partitions, 3):  # noqa: ASYNC110 # in virtual time
                await trio.sleep(0.5)
            group.shutdown(promptly=True)
        first, *_ = here.events_of(GenerationEnded)
        assert first.end.cause is Cause.REBALANCE


async def test_an_exception_commits_nothing(autojump_clock: MockClock) -> None:
    """It surfaces from the group's block with its note; the batch is not committed."""
    async with harness() as here:
        await here.append(5)

        async def handle(_: Generation, batch: Batch) -> None:
            await trio.lowlevel.checkpoint()
            raise ZeroDivisionError

        with pytest.raises(ExceptionGroup) as raised:
            async with here.group() as group:
                await kgroup.serve(group, handle)
        (error,) = raised.value.exceptions
        assert isinstance(error, ZeroDivisionError)
        assert "for offsets 0 to 4 of topic-0" in error.__notes__[0]
        assert await here.committed() == {}


@pytest.mark.parametrize(
    ("seeks", "note"),
    [
        (
            False,
            "offset 5 of topic-0 by then, so the records before it will not be read again",
        ),
        (True, "the offsets are not committed, so the records will be read again"),
    ],
)
async def test_an_exception_after_a_commit_of_the_functions_own(
    autojump_clock: MockClock, seeks: bool, note: str
) -> None:
    """The note on it does not say that the records are read again, unless the function sought."""
    async with harness() as here:
        await here.append(5)

        async def handle(generation: Generation, batch: Batch) -> None:
            if seeks:
                await trio.lowlevel.checkpoint()
                generation.seek(batch.partition, batch.next_offset)
            else:
                await generation.commit({batch.partition: batch.next_offset})
            raise ZeroDivisionError

        with pytest.raises(ExceptionGroup) as raised:
            async with here.group() as group:
                await kgroup.serve(group, handle)
        (error,) = raised.value.exceptions
        assert error.__notes__[0].endswith(note)
        assert await here.committed() == ({} if seeks else {P0: 5})


async def test_an_exception_after_a_transaction(autojump_clock: MockClock) -> None:
    """The note on it leaves open whether the transaction, if it had the offsets, was committed."""
    async with harness() as here:
        await here.append(5)

        async def handle(generation: Generation, batch: Batch) -> None:
            await trio.lowlevel.checkpoint()
            generation._positions.committed_in_transaction([batch.partition])
            raise ZeroDivisionError

        with pytest.raises(ExceptionGroup) as raised:
            async with here.group() as group:
                await kgroup.serve(group, handle, commit=False)
        (error,) = raised.value.exceptions
        assert error.__notes__[0].endswith("unless a transaction with their offsets was committed")


async def test_a_stream_that_fails_is_not_the_functions_fault(autojump_clock: MockClock) -> None:
    """The end of the generation and the note say that reading failed, which calls no function."""
    async with harness() as here:
        runtime = memory_runtime(here.broker)
        made: list[BufferedSource] = []
        started = trio.Event()

        def source(
            config: GroupConfig, on_fault: Callable[[TopicPartition | None, str], None]
        ) -> RecordSource:
            source = runtime.record_source(config, on_fault)
            assert isinstance(source, BufferedSource)
            made.append(source)
            return source

        def note(event: Event) -> None:
            here.events.append(event)
            if isinstance(event, GenerationStarted):
                started.set()

        async def handle(_: Generation, batch: Batch) -> None:
            raise AssertionError(batch)

        with pytest.raises(ExceptionGroup) as raised:
            async with (
                kgroup.ConsumerGroup(
                    here.config(),
                    runtime=attrs.evolve(runtime, record_source=source),
                    on_event=note,
                ) as group,
                trio.open_nursery() as nursery,
            ):
                nursery.start_soon(kgroup.serve, group, handle)
                await started.wait()
                made[0].deliver([FetcherBroken("as scripted")])
        error = flat(raised.value)
        assert isinstance(error, FetchError)
        assert error.__notes__[0].startswith("reading topic-0 raised this, and not ")
        (ended,) = here.events_of(GenerationEnded)
        assert ended.end.detail.startswith("reading topic-0 raised FetchError")


async def test_a_commit_that_fails_is_not_the_functions_fault(autojump_clock: MockClock) -> None:
    """The end of the generation and the note say that the commit failed, and of which records."""
    async with harness() as here:
        await here.append(5)
        here.broker.inject("OffsetCommit", "TOPIC_AUTHORIZATION_FAILED", times=None)

        async def handle(_: Generation, batch: Batch) -> None:
            await trio.lowlevel.checkpoint()

        with pytest.raises(ExceptionGroup) as raised:
            async with here.group() as group:
                await kgroup.serve(group, handle)
        error = flat(raised.value)
        assert isinstance(error, CommitFailedError)
        what = "committing offsets 0 to 4 of topic-0 raised"
        assert error.__notes__[0].startswith(f"{what} this, and not ")
        (ended,) = here.events_of(GenerationEnded)
        assert ended.end.detail.startswith(f"{what} CommitFailedError")


@pytest.mark.parametrize(
    "answer",
    [
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "NOT_COORDINATOR",
        "REQUEST_TIMED_OUT",
    ],
)
async def test_a_coordinator_that_is_away_for_longer_than_a_commit_is_tried(
    autojump_clock: MockClock, answer: str
) -> None:
    """The worker commits again until it is back, and each commit that failed is an event."""
    async with harness() as here:
        await here.append(10)
        away = here.broker.inject("OffsetCommit", answer, times=None)
        calls: list[list[int]] = []

        async def handle(_: Generation, batch: Batch) -> None:
            await trio.lowlevel.checkpoint()
            calls.append(values(batch.messages))
            if batch.next_offset == 10:
                group.shutdown()

        async with here.group(commit_timeout=5.0) as group, trio.open_nursery() as nursery:
            nursery.start_soon(partial(kgroup.serve, group, handle, max_records=5))
            await trio.sleep(12)
            assert calls == [[0, 1, 2, 3, 4]]
            away.cancel()
        assert calls == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
        assert await here.committed() == {P0: 10}
        refused = here.events_of(CommitRefused)
        assert len(refused) == 2
        # The coordinator may have written what its replicas did not confirm.
        is_unknown = answer in ("COORDINATOR_NOT_AVAILABLE", "REQUEST_TIMED_OUT")
        reason = "the outcome is unknown" if is_unknown else f"{answer} (the coordinator's last"
        assert [reason in one.reason for one in refused] == [True, True]


async def test_a_topic_that_is_deleted_while_its_batch_is_processed(
    autojump_clock: MockClock,
) -> None:
    """There is nothing left to commit of it, and the worker goes on with its other topics."""
    gone, left = TopicPartition("gone", 0), TopicPartition("topic", 0)
    async with harness() as here:
        await here.broker.create_topic("gone", 1)
        await here.broker.append("gone", 0, [b"0"])
        found: list[TopicPartition] = []

        async def handle(_: Generation, batch: Batch) -> None:
            found.append(batch.partition)
            if batch.partition == gone:
                await here.broker.delete_topic("gone")
            else:
                group.shutdown()

        async with here.group(topics=["gone", "topic"]) as group, trio.open_nursery() as nursery:
            nursery.start_soon(kgroup.serve, group, handle)
            await trio.sleep(60)
            (end,) = here.events_of(GenerationEnded)
            assert end.end.cause is Cause.PARTITIONS_CHANGED
            (refused,) = here.events_of(CommitRefused)
            assert list(refused.offsets) == [gone]
            await here.append(1)
        assert found == [gone, left]
        assert await here.committed() == {left: 1}


def flat(error: BaseException) -> BaseException:
    """The only exception in groups of exceptions."""
    while isinstance(error, BaseExceptionGroup):
        (error,) = error.exceptions
    return error


async def test_a_commit_that_nothing_answers_is_made_again(autojump_clock: MockClock) -> None:
    """However long the coordinator hangs, the worker goes on after it, with each record once."""
    async with harness() as here:
        await here.append(5)
        found: list[int] = []

        async def handle(_: Generation, batch: Batch) -> None:
            await trio.lowlevel.checkpoint()
            found.extend(values(batch.messages))
            if not here.events_of(CommitRefused):
                here.broker.slow(60.0, "offset_commit", times=9)
                await here.append(5)
            else:
                group.shutdown()

        async with here.group(commit_timeout=3.0, request_timeout=1.0) as group:
            await kgroup.serve(group, handle)
        assert len(here.events_of(CommitRefused)) >= 2
        assert found == [*range(5), *range(5)]
        assert await here.committed() == {P0: 10}
        assert len(here.events_of(GenerationStarted)) == 1


@pytest.mark.parametrize(("seconds", "committed"), [(12.0, {P0: 5}), (600.0, {})])
async def test_a_last_commit_that_nothing_answers(
    autojump_clock: MockClock, seconds: float, committed: dict[TopicPartition, int]
) -> None:
    """It is made again until the drain's deadline, and is no failure of the worker after that."""
    async with harness() as here, trio.open_nursery() as nursery:
        await here.append(5)

        async def hang() -> None:
            fault = here.broker.slow(600.0, "offset_commit")
            await trio.sleep(seconds)
            fault.cancel()

        async def handle(generation: Generation, _: Batch) -> None:
            nursery.start_soon(hang)
            group.shutdown()
            await generation.ending.wait()

        async with here.group(commit_timeout=3.0, request_timeout=1.0, drain_timeout=20.0) as group:
            await kgroup.serve(group, handle)
        assert await here.committed() == committed
        assert len(here.events_of(CommitRefused)) >= 3
        nursery.cancel_scope.cancel()


async def test_a_commit_to_a_broker_that_hangs_is_made_again(autojump_clock: MockClock) -> None:
    """It answers nothing for 15 s, and no new connection: the worker goes on after that."""
    async with harness() as here, trio.open_nursery() as nursery:
        await here.append(5)
        found: list[int] = []

        async def hang() -> None:
            fault = here.broker.slow(600.0)
            await trio.sleep(15)
            fault.cancel()
            await here.broker.disconnect()
            await here.broker.start()
            await here.append(5)

        async def handle(_: Generation, batch: Batch) -> None:
            await trio.lowlevel.checkpoint()
            found.extend(values(batch.messages))
            if len(found) == 5:
                nursery.start_soon(hang)
                await trio.sleep(1)
            else:
                group.shutdown()

        async with here.group(commit_timeout=3.0, request_timeout=2.0) as group:
            await kgroup.serve(group, handle)
        assert found == [*range(5), *range(5)]
        assert await here.committed() == {P0: 10}
        assert len(here.events_of(GenerationStarted)) == 1
        reasons = [event.reason for event in here.events_of(CommitRefused)]
        assert any("NETWORK_EXCEPTION" in reason for reason in reasons)


async def test_a_function_that_is_not_async(autojump_clock: MockClock) -> None:
    """The error names the function and what to call in its place."""
    async with harness() as here:
        await here.append(1)

        def handle(_: Generation, batch: Batch) -> Any:
            return batch.next_offset

        def nothing(_: Generation, batch: Batch) -> None:
            """Process nothing."""

        with pytest.raises(ExceptionGroup) as raised:
            async with here.group() as group:
                with pytest.raises(ArgumentError, match="not an async function.*kgroup.threaded"):
                    await kgroup.serve(group, nothing)  # type: ignore[arg-type]
                await kgroup.serve(group, handle)
        assert raised.group_contains(UsageError, match="handle is not an async function.*threaded")


async def test_wrong_arguments() -> None:
    """They are refused before anything is sent."""
    async with harness() as here:
        group = here.group()
        with pytest.raises(ArgumentError, match="group"):
            await kgroup.serve(here.config(), print)  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match="handle"):
            await kgroup.serve(group, "handle")  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match="max_records"):
            await kgroup.serve(group, print, max_records=0)  # type: ignore[arg-type]
        with pytest.raises(ArgumentError, match="max_records"):
            kgroup.run(here.config(), print, max_records=0)  # type: ignore[arg-type]
        assert here.requests == []


def test_run_outside_of_the_main_thread() -> None:
    """It is refused, because only the main thread receives signals."""
    config = kgroup.GroupConfig(bootstrap_servers="localhost:1", group_id="g", topics=["t"])
    errors: list[Exception] = []

    def run() -> None:
        try:
            kgroup.run(config, print)  # type: ignore[arg-type]
        except UsageError as error:
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert "in the main thread only; call it there, or use `await kgroup.serve" in str(errors[0])


async def test_run_in_trio() -> None:
    """It is refused, with the call that does the same there."""
    config = kgroup.GroupConfig(bootstrap_servers="localhost:1", group_id="g", topics=["t"])
    with pytest.raises(UsageError, match=r"trio already runs.*use `await kgroup.serve"):
        kgroup.run(config, print)  # type: ignore[arg-type]


def test_run_in_asyncio() -> None:
    """It is refused: it would stop the other loop."""
    config = kgroup.GroupConfig(bootstrap_servers="localhost:1", group_id="g", topics=["t"])

    async def main() -> None:
        kgroup.run(config, print)  # type: ignore[arg-type]

    with pytest.raises(UsageError, match="asyncio already runs"):
        asyncio.run(main())


def test_one_line_says_why_a_worker_failed(capsys: pytest.CaptureFixture[str]) -> None:
    """A single exception leaves its groups; of several the line has the first and the number."""
    config = kgroup.GroupConfig(bootstrap_servers="localhost:1", group_id="g", topics=["t"])
    first, second = ValueError("first"), ValueError("second")
    alone = ExceptionGroup("outer", [ExceptionGroup("inner", [first])])
    both = ExceptionGroup("outer", [first, second])
    assert report_failure(config, alone) is first
    assert report_failure(config, both) is both
    assert capsys.readouterr().err == (
        "kgroup: the worker of group 'g' failed: ValueError: first\n"
        "kgroup: the worker of group 'g' failed: ValueError: first, and 1 more error\n"
    )


def test_what_others_raise_beside_an_exit_is_logged(
    capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    """The exit status counts, wherever the exit is; the other exceptions keep their tracebacks."""
    config = kgroup.GroupConfig(bootstrap_servers="localhost:1", group_id="g", topics=["t"])
    leaving, other, again = SystemExit(3), ValueError("a fault"), SystemExit(4)
    assert report_failure(config, BaseExceptionGroup("", [other, leaving, again])) is leaving
    line = "kgroup: the worker of group 'g' failed: SystemExit: 3, and 2 more errors\n"
    assert capsys.readouterr().err.startswith(line)
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [again, other]
    assert "group g: ValueError: a fault beside SystemExit: 3" in caplog.messages


def test_what_a_function_raised_is_raised(capsys: pytest.CaptureFixture[str]) -> None:
    """Its own group, as of a nursery, remains with its note; the line on standard error is one."""
    config = kgroup.GroupConfig(bootstrap_servers="localhost:1", group_id="g", topics=["t"])
    nursery = ExceptionGroup("its nursery", [ValueError("two\nlines")])
    nursery.add_note("for which records")
    assert report_failure(config, ExceptionGroup("kgroup's", [nursery])) is nursery
    assert capsys.readouterr().err.endswith(" failed: ValueError: two lines\n")


def test_a_closed_standard_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker still raises its failure, and not that of the line about it."""
    config = kgroup.GroupConfig(bootstrap_servers="localhost:1", group_id="g", topics=["t"])
    error = ValueError("wrong")
    closed = io.StringIO()
    closed.close()
    for stderr in (closed, None):
        monkeypatch.setattr("sys.stderr", stderr)
        assert report_failure(config, error) is error


@pytest.mark.parametrize(
    ("times", "closed", "cancelled"),
    [
        ([0.0, 0.001], 1, 0),  # to the process, and to its process group
        ([0.0, 0.2, 0.4, 0.6], 1, 0),  # a key that is held down
        ([0.0, SAME_WISH], 1, 1),
        ([0.0, 0.1, 5.0, 5.1], 1, 1),
    ],
)
def test_a_signal_that_comes_twice_is_one_wish(
    times: list[float], closed: int, cancelled: int
) -> None:
    """Signals that follow each other at once add nothing; a later one ends the handlers."""
    calls: list[str] = []
    received: list[int] = []
    left = list(times)
    with closed_by_signals(
        lambda _: calls.append("close"),
        lambda: calls.append("cancel"),
        received,
        clock=lambda: left.pop(0),
    ):
        for _ in times:
            signal.raise_signal(signal.SIGTERM)
    assert calls == ["close"] * closed + ["cancel"] * cancelled
    assert len(received) == closed + cancelled


@pytest.mark.parametrize(("number", "closes"), [(signal.SIGINT, False), (signal.SIGTERM, True)])
def test_a_signal_that_was_ignored(number: signal.Signals, closes: bool) -> None:
    """Ctrl-C stays ignored, as for a background job of a shell; SIGTERM closes the group."""
    calls: list[str] = []
    before = signal.signal(number, signal.SIG_IGN)
    try:
        with closed_by_signals(calls.append, lambda: None, []):
            signal.raise_signal(number)
        assert calls == [number.name] * closes
        assert signal.getsignal(number) is signal.SIG_IGN
    finally:
        signal.signal(number, before)


IN_A_PROCESS = """
import itertools, os, signal, sys
from kgroup.worker import closed_by_signals

def block(reacted):
    return closed_by_signals(print, print, [], lambda: reacted, itertools.count().__next__)
"""
UNREAD = """
read, write = os.pipe()
os.close(read)
os.dup2(write, 2)
with block(False):
    signal.raise_signal(signal.SIGTERM)
    signal.raise_signal(signal.SIGTERM)
"""
FORKED = """
with block(True):
    for number in (signal.SIGTERM, signal.SIGINT):
        read, write = os.pipe()
        if not (child := os.fork()):
            try:
                woken, wake = os.pipe()
                os.set_blocking(wake, False)
                signal.set_wakeup_fd(wake)  # pause() would not notice a signal just before it
                os.write(write, b".")
                os.read(woken, 1)
            except KeyboardInterrupt:
                os._exit(3)
            os._exit(4)
        os.read(read, 1)  # Python drops a signal that comes in the middle of its fork
        os.kill(child, number)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
"""


def run_in_a_process(text: str) -> subprocess.CompletedProcess[str]:
    """Run a program that has signals close something."""
    command = [sys.executable, "-c", IN_A_PROCESS + text]
    return subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, timeout=60)


def test_a_killing_signal_whose_line_nobody_can_read() -> None:
    """It kills all the same, and raises nothing in the function that blocks."""
    assert run_in_a_process(UNREAD).returncode == -signal.SIGTERM


def test_signals_of_a_forked_process() -> None:
    """They do what they did before, so that a program's pool of processes can be ended."""
    assert run_in_a_process(FORKED).stdout == f"{-signal.SIGTERM}\n3\n"


REPEATED = "; records that it has processed and not committed will be read again"
CUT = f" (drain_timeout){REPEATED}"
LOST = f" before that{REPEATED}"
WAITS = (
    "; the coordinator has not confirmed that it leaves, so its partitions may wait for up to 30 s"
    " (session_timeout)"
)


@pytest.mark.parametrize(
    ("instance", "left"), [(None, "left"), ("one", "stays in the group as a static member")]
)
def test_one_line_says_how_a_worker_ended(
    instance: str | None, left: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names the signal, and says of a static member that it has not left."""
    config = kgroup.GroupConfig(
        bootstrap_servers="localhost:1", group_id="g", topics=["t"], group_instance_id=instance
    )
    status = GroupStatus(group_id="g", phase=Phase.CLOSED, leave_unconfirmed=instance is not None)
    report_end(config, [signal.SIGTERM], status)
    line = f"kgroup: the worker of group 'g' has finished its work and {left}: SIGTERM\n"
    assert capsys.readouterr().err == line


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"cut_short": True}, f"left, although functions still ran after 2 s{CUT}"),
        ({"cut_short": True, "lost": True}, f"left, but had lost its partitions{LOST}"),
        (
            {"lost": True, "leave_unconfirmed": True},
            f"ended, but had lost its partitions{LOST}{WAITS}",
        ),
        ({"leave_unconfirmed": True}, f"has finished its work and ended{WAITS}"),
    ],
    ids=lambda one: "+".join(one) if isinstance(one, dict) else "",
)
def test_the_line_of_a_worker_that_did_not_end_as_it_should(
    facts: dict[str, bool], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what was not finished or not confirmed, and what follows from that."""
    config = kgroup.GroupConfig(
        bootstrap_servers="localhost:1", group_id="g", topics=["t"], drain_timeout=2.0
    )
    status = GroupStatus(group_id="g", phase=Phase.CLOSED, **facts)  # type: ignore[arg-type]
    report_end(config, [signal.SIGTERM], status)
    assert capsys.readouterr().err == f"kgroup: the worker of group 'g' {said}: SIGTERM\n"
