"""Workers in few lines, on asyncio. On the embedded broker."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kgroup import DeadLetters, aio, retrying
from kgroup.errors import ArgumentError, UsageError
from kgroup.events import Left, ParkingFailed, RecordFailed, RecordParked, RetriesEnded
from kgroup.interfaces import Batch, Message
from tests.aio.test_group import Here, forever, in_asyncio
from tests.brokers import EMBEDDED, Kafka
from tests.program_exceptions import OwnError
from tests.test_dead_letters import AWAY, Scripted, letters_by
from tests.test_retries import logged
from tests.threaded.harness import Harness, thread
from tests.threaded.test_retries import producer_for

pytestmark = pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)


def test_every_record_is_processed_and_committed(kafka: Kafka) -> None:
    """What the function leaves is given to it again; what it has processed is committed."""
    here = Here(kafka, 2, 10)
    found: list[tuple[int, int | None]] = []

    async def main() -> None:
        async with here.group() as group:

            async def handle(_: aio.Generation, batch: Batch) -> int:
                await asyncio.sleep(0)
                first = batch.messages[0]
                found.append((batch.partition.partition, first.offset()))
                if len(found) == 20:
                    group.shutdown(promptly=True)
                return batch.start_offset + 1

            await aio.serve(group, handle, max_records=7)

    in_asyncio(main)
    assert sorted(found) == [(part, offset) for part in range(2) for offset in range(10)]
    assert [here.harness.committed(number) for number in range(2)] == [10, 10]


def test_it_returns_when_the_last_batch_is_processed(kafka: Kafka) -> None:
    """What the program opened around `serve` is there until the drain is over."""
    here = Here(kafka, 1, 1)
    done: list[bool] = []

    async def main() -> None:
        async with here.group() as group:

            async def handle(generation: aio.Generation, batch: Batch) -> None:
                group.shutdown(promptly=True)
                await generation.ending.wait()
                await asyncio.sleep(0.05)
                done.append(True)

            await aio.serve(group, handle)
            assert done == [True]

    in_asyncio(main)
    assert here.harness.committed() == 1


def test_an_exception_has_a_note(kafka: Kafka) -> None:
    """It surfaces from the group's block, says for which records, and commits nothing."""
    here = Here(kafka)

    async def fail(_: aio.Generation, batch: Batch) -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    def plain(_: aio.Generation, batch: Batch) -> Any:
        return batch.next_offset

    async def main() -> None:
        with pytest.raises(ExceptionGroup) as caught:
            async with here.group() as group:
                await aio.serve(group, fail)
        (error,) = caught.value.exceptions
        assert isinstance(error, ZeroDivisionError)
        assert f"for offsets 0 to 9 of {here.harness.topic}-0" in error.__notes__[0]
        with pytest.raises(ExceptionGroup) as caught:
            async with here.group() as group:
                await aio.serve(group, plain)
        assert caught.group_contains(UsageError, match="plain is not an async function")

    in_asyncio(main)
    assert here.harness.committed() is None


def test_wrong_arguments_and_places(kafka: Kafka) -> None:
    """They are refused in the call itself, with the name of what to call there."""
    config = Harness(kafka).config()
    for wrong in ({"max_records": 0}, {"commit": 1}, {"handle": "handle"}, {"loop_factory": 5}):
        with pytest.raises(ArgumentError, match=next(iter(wrong))):
            aio.run(config, **{"handle": forever, **wrong})  # type: ignore[arg-type]
    with (
        pytest.raises(UsageError, match=r"main thread only.*kgroup\.aio\.serve"),
        thread(aio.run, config, forever),
    ):
        pass

    async def main() -> None:
        with pytest.raises(UsageError, match=r"asyncio already runs.*await kgroup\.aio\.serve"):
            aio.run(config, forever)
        with pytest.raises(ArgumentError, match="group"):
            await aio.serve(config, forever)  # type: ignore[arg-type]

    in_asyncio(main)


def test_a_loop_of_the_programs_choice(kafka: Kafka) -> None:
    """``run`` takes the loop that the factory makes, and ends its worker at SIGTERM."""
    here = Here(kafka)
    loops: list[asyncio.AbstractEventLoop] = []

    def factory() -> asyncio.AbstractEventLoop:
        loops.append(asyncio.new_event_loop())
        return loops[-1]

    async def handle(generation: aio.Generation, _: Batch) -> None:
        await asyncio.sleep(0)
        assert asyncio.get_running_loop() is loops[0]
        os.kill(os.getpid(), signal.SIGTERM)

    aio.run(here.harness.config(), handle, loop_factory=factory)
    assert here.harness.committed() == 10


def test_the_log_has_tracebacks(kafka: Kafka, caplog: pytest.LogCaptureFixture) -> None:
    """It shows where a record failed first and where it failed last, and once each."""
    here, calls = Here(kafka, records=1), list[int]()

    async def handle(_: aio.Generation, message: Message) -> None:
        await asyncio.sleep(0)
        calls.append(message.offset())
        raise ValueError(f"attempt {len(calls)}")

    async def main() -> None:
        async with here.group() as group:

            async def park(_: Message, __: Exception) -> None:
                await asyncio.sleep(0)
                group.shutdown(promptly=True)

            await aio.serve(group, aio.retrying(handle, attempts=3, backoff=0.0, park=park))

    in_asyncio(main)
    assert logged(caplog) == ["attempt 1", "attempt 3"]


def test_retries_parks_and_ends(kafka: Kafka) -> None:
    """A failing record is tried again and parked; a pause ends with the generation."""
    here = Here(kafka, records=3)
    parked: list[int | None] = []

    async def park(message: Message, error: Exception) -> None:
        await asyncio.sleep(0)
        parked.append(message.offset())

    async def handle(generation: aio.Generation, message: Message) -> None:
        await asyncio.sleep(0)
        if message.offset() == 1:
            raise ZeroDivisionError

    async def main() -> None:
        async with here.group() as group:
            process = aio.retrying(handle, attempts=2, backoff=0.001, park=park)
            worker = asyncio.create_task(aio.serve(group, process))
            await here.event(RecordParked)
            group.shutdown("parked")
            await worker
        assert len(here.of(RecordFailed)) == 1
        here.harness.produce(1, 0)

        async def fail(generation: aio.Generation, message: Message) -> None:
            await asyncio.sleep(0)
            raise KeyError

        async with here.group() as group:
            worker = asyncio.create_task(aio.serve(group, aio.retrying(fail, backoff=1000.0)))
            while len(here.of(RecordFailed)) < 2:
                await here.event(RecordFailed)
                await asyncio.sleep(0.001)
            group.shutdown("in a pause", promptly=True)
            await worker
        assert len(here.of(RetriesEnded)) == 1

    in_asyncio(main)
    assert parked == [1]
    assert here.harness.committed() == 3


def test_a_producer_that_is_away_for_a_moment(kafka: Kafka) -> None:
    """The dead letter is written later; a pause before that ends with the generation."""
    here = Here(kafka, records=1)
    producer = Scripted(AWAY, AWAY, AWAY)

    async def handle(_: aio.Generation, message: Message) -> None:
        await asyncio.sleep(0)
        raise ZeroDivisionError

    async def main() -> None:
        park = letters_by(producer)
        async with here.group() as group:
            process = aio.retrying(handle, attempts=1, backoff=1e4, backoff_max=1e4, park=park)
            worker = asyncio.create_task(aio.serve(group, process))
            await here.event(ParkingFailed)
            group.shutdown("in a pause", promptly=True)
            await worker
        assert len(here.of(RetriesEnded)) == 1
        assert here.of(RecordParked) == []
        async with here.group() as group:
            process = aio.retrying(handle, attempts=1, backoff=0.001, park=park)
            worker = asyncio.create_task(aio.serve(group, process))
            await here.event(RecordParked)
            group.shutdown("parked", promptly=True)
            await worker

    in_asyncio(main)
    assert [event.attempts for event in here.of(ParkingFailed)] == [1, 1, 2]
    assert [value for _, value in producer.written] == [b"0"] * 4
    assert here.harness.committed() == 1


@pytest.mark.parametrize("parks", [False, True])
def test_a_seek_past_a_record_that_keeps_failing(kafka: Kafka, parks: bool) -> None:
    """The pause ends at once, that before another attempt to write a dead letter too."""
    here = Here(kafka, records=3)
    producer = Scripted(AWAY)
    found: list[int | None] = []

    async def handle(generation: aio.Generation, message: Message) -> None:
        await asyncio.sleep(0)
        found.append(message.offset())
        if message.offset() == 1:
            seek = (here.harness.partition(0), 2)
            asyncio.get_running_loop().call_later(0.1, generation.seek, *seek)
            raise ValueError("poison")

    async def main() -> None:
        async with here.group() as group:
            attempts, park = (1, letters_by(producer)) if parks else (9, None)
            process = aio.retrying(
                handle, attempts=attempts, backoff=1e4, backoff_max=1e4, park=park
            )
            worker = asyncio.create_task(aio.serve(group, process))
            while await asyncio.to_thread(here.harness.committed) != 3:  # noqa: ASYNC110 # no event
                await asyncio.sleep(0.05)
            group.shutdown(promptly=True)
            await worker

    in_asyncio(main)
    assert found == [0, 1, 2]
    assert [value for _, value in producer.written] == ([b"1"] if parks else [])
    assert not here.of(RecordParked)


def test_a_worker_that_reads_its_dead_letters(kafka: Kafka) -> None:
    """It ends at its first batch, before it has processed anything."""
    here = Here(kafka, records=1)

    async def handle(_: aio.Generation, message: Message) -> None:
        raise AssertionError(message)

    async def main() -> None:
        park = DeadLetters(producer_for(here.harness.bootstrap_servers), here.harness.topic)
        async with here.group() as group:
            await aio.serve(group, aio.retrying(handle, park=park))

    with pytest.raises(ExceptionGroup) as raised:
        in_asyncio(main)
    assert raised.group_contains(UsageError, match="would read its own dead letters")


def test_a_future_that_was_cancelled(kafka: Kafka) -> None:
    """A function that awaits it ends the worker: the note names the record, those before count."""
    here = Here(kafka, 1, 5)

    async def handle(_: aio.Generation, message: Message) -> None:
        if message.offset() == 3:
            future = asyncio.get_running_loop().create_future()
            future.cancel()
            await future

    async def main() -> None:
        async with here.group() as group:
            await aio.serve(group, aio.retrying(handle))

    with pytest.raises(ExceptionGroup) as raised:
        in_asyncio(main)
    (error,) = raised.value.exceptions
    assert isinstance(error, UsageError)
    assert "handle raised CancelledError, and nothing has cancelled it" in str(error)
    assert f"for offsets 3 to 4 of {here.harness.partition(0)}" in error.__notes__[0]
    assert here.harness.committed() == 3


def test_arguments_of_retrying(kafka: Kafka) -> None:
    """They are checked at once, as on trio; the result has the function's name."""
    with pytest.raises(ArgumentError, match="attempts"):
        aio.retrying(forever, attempts=0)
    assert retrying(forever).__qualname__ == aio.retrying(forever).__qualname__ == "forever"


def test_a_function_that_exits(kafka: Kafka, capsys: pytest.CaptureFixture[str]) -> None:
    """``sys.exit`` in a function ends the worker with that status, and the member leaves.

    The other functions finish their batches. Signals do again what they did before.
    """
    here = Here(kafka, 2, 10)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    begun: list[asyncio.Barrier] = []

    async def leave(generation: aio.Generation, batch: Batch) -> None:
        if not begun:
            begun.append(asyncio.Barrier(2))
        await begun[0].wait()
        if batch.partition == here.harness.partition(0):
            sys.exit(3)
        await generation.ending.wait()
        await asyncio.sleep(0.05)

    with pytest.raises(SystemExit) as raised:
        aio.run(here.harness.config(), leave, on_event=here.on_event)
    assert raised.value.code == 3
    assert "failed: SystemExit: 3" in capsys.readouterr().err
    assert len(here.of(Left)) == 1
    assert [here.harness.committed(number) for number in range(2)] == [None, 10]
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


@pytest.mark.parametrize("error", [OwnError, KeyboardInterrupt])
def test_exceptions_that_are_no_exception(
    kafka: Kafka, error: type[BaseException], capsys: pytest.CaptureFixture[str]
) -> None:
    """One line reports them, as it reports others, and the member leaves."""
    here = Here(kafka, 1, 1)

    async def fail(_: aio.Generation, batch: Batch) -> None:
        await asyncio.sleep(0)
        raise error

    with pytest.raises(error):
        aio.run(here.harness.config(), fail, on_event=here.on_event)
    assert f"failed: {error.__name__}" in capsys.readouterr().err
    assert len(here.of(Left)) == 1


def test_a_call_within_a_generation_that_exits(kafka: Kafka) -> None:
    """What it raises comes to its caller; the other functions finish their batches."""
    here = Here(kafka, 2, 5)
    begun: list[asyncio.Barrier] = []

    async def leave() -> None:
        await asyncio.sleep(0)
        sys.exit(3)

    async def handle(generation: aio.Generation, batch: Batch) -> None:
        if not begun:
            begun.append(asyncio.Barrier(2))
        await begun[0].wait()
        if batch.partition == here.harness.partition(0):
            await generation.run(leave)
        await generation.ending.wait()

    with pytest.raises(SystemExit) as raised:
        aio.run(here.harness.config(), handle, on_event=here.on_event)
    assert raised.value.code == 3
    assert [here.harness.committed(number) for number in range(2)] == [None, 5]
    assert len(here.of(Left)) == 1


@pytest.mark.parametrize(
    ("own", "match", "line"),
    [
        (True, "cancel was cancelled, and not by kgroup", "the task of"),
        (False, "cancelled, and not by a signal", "the worker's task was cancelled"),
    ],
)
def test_a_function_that_cancels_tasks(
    kafka: Kafka, capsys: pytest.CaptureFixture[str], own: bool, match: str, line: str
) -> None:
    """If it cancels its own, the records would only be read again; if the others, no signal did it.

    Both end the worker with an error that says so, and not in silence with status 0.
    """
    here = Here(kafka, 1, 1)

    async def cancel(_: aio.Generation, batch: Batch) -> None:
        for task in asyncio.all_tasks():
            if (task is asyncio.current_task()) is own:
                task.cancel()
        await asyncio.sleep(0)

    with pytest.raises(UsageError, match=match):
        aio.run(here.harness.config(), cancel, on_event=here.on_event)
    assert f"failed: UsageError: {line}" in capsys.readouterr().err
    assert len(here.of(Left)) == 1


def test_dead_letters_beside_a_full_executor(kafka: Kafka) -> None:
    """They are written although the program's own calls occupy all threads of the loop."""
    here = Here(kafka, 1, 1)
    letters = Scripted()
    over = threading.Event()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))
        occupied = loop.run_in_executor(None, over.wait)

        async def fail(_: aio.Generation, message: Message) -> None:
            await asyncio.sleep(0)
            raise ValueError

        async with here.group() as group:

            async def stop() -> None:
                await here.event(RecordParked)
                group.shutdown(promptly=True)

            stopping = asyncio.create_task(stop())
            process = aio.retrying(fail, attempts=1, park=letters_by(letters))
            try:
                await aio.serve(group, process)
                await stopping
            finally:
                over.set()  # the end of the loop waits for the thread
        await occupied

    in_asyncio(main)
    assert here.harness.committed() == 1
