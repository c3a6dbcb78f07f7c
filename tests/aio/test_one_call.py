"""A call whose task was cancelled, and that nobody awaited, is over before the next one begins."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import pytest
import trio

from kgroup import aio
from kgroup.aio.bridge import deliver_again
from kgroup.errors import UsageError
from kgroup.generation.states import State
from tests.aio.test_group import Here, forever, in_asyncio, offsets
from tests.brokers import EMBEDDED, Kafka

pytestmark = pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)


async def begin_unseen(
    group: aio.ConsumerGroup,
    owner: object,
    method: str,
    call: Callable[[], Awaitable[Any]],
) -> asyncio.Task[Any]:
    """A task whose call has its result in the background thread, while asyncio's loop is busy.

    The caller continues in the same step of asyncio's loop, so the task does not know it yet.
    """
    arrived, fetch = trio.Event(), getattr(owner, method)

    async def noted() -> object:
        result: object = await fetch()
        arrived.set()
        return result

    setattr(owner, method, noted)
    task = asyncio.ensure_future(call())
    await asyncio.sleep(0)
    while not arrived.is_set():
        time.sleep(0.001)  # noqa: ASYNC251 # asyncio's loop is to be busy
    group._loop.run_sync(lambda: None)  # what came with the arrival has been done there
    setattr(owner, method, fetch)
    return task


@pytest.mark.parametrize("closes", [False, True])
def test_a_batch_of_a_task_that_was_cancelled(kafka: Kafka, closes: bool) -> None:
    """The next iteration returns it, and not what comes after it, nor does a new stream."""
    here = Here(kafka, records=6)

    async def main() -> None:
        async with here.group() as group:
            generation = await group.next()
            records = generation.records(max_records=2)
            found = [offsets(await anext(records))]
            task = await begin_unseen(group, records, "_next", lambda: anext(records))
            task.cancel()
            if closes:
                records.close()
                records = generation.records(max_records=2)
            found += [offsets(await anext(records)) for _ in range(2)]
            assert found == [[0, 1], [2, 3], [4, 5]]
            (partition,) = generation.assignment
            await generation.commit({partition: 6})
            assert task.cancelled()

    in_asyncio(main)


def test_a_batch_that_comes_as_the_stream_is_closed(kafka: Kafka) -> None:
    """The task that waits gets none, and another stream begins with that batch."""
    here = Here(kafka, records=4)

    async def main() -> None:
        async with here.group() as group:
            generation = await group.next()
            records = generation.records(max_records=2)
            task = await begin_unseen(group, records, "_next", lambda: anext(records, None))
            records.close()
            again = generation.records(max_records=2)
            assert [offsets(await anext(again)) for _ in range(2)] == [[0, 1], [2, 3]]
            assert await task is None

    in_asyncio(main)


def test_a_generation_of_a_task_that_was_cancelled(kafka: Kafka) -> None:
    """The next call returns it at once; no other one comes."""
    here = Here(kafka)

    async def main() -> None:
        async with here.group() as group:
            task = await begin_unseen(group, group, "_next_generation", group.next)
            task.cancel()
            assert (await group.next()).state is State.RUNNING
            assert task.cancelled()

    in_asyncio(main)


def test_calls_that_are_given_up_at_random_moments(kafka: Kafka) -> None:
    """Whenever a program gives a call up, the next one waits for it and is no second task."""
    here = Here(kafka, records=0)

    async def give_up(call: Callable[[], Awaitable[Any]]) -> None:
        for number in range(40):
            task = asyncio.ensure_future(call())
            done, _ = await asyncio.wait({task}, timeout=number / 8000)
            assert not done
            task.cancel()

    async def main() -> None:
        async with here.group() as group:
            generation = await group.next()
            records = generation.records()
            await give_up(lambda: anext(records))
            records.close()
            generation.start_soon(forever)
            await give_up(group.next)

    in_asyncio(main)


def test_two_tasks_that_wait(kafka: Kafka) -> None:
    """The second one is refused, and the first one goes on waiting."""
    here = Here(kafka, records=0)

    async def main() -> None:
        async with here.group() as group:
            generation = await group.next()
            records = generation.records()
            reading = asyncio.ensure_future(anext(records, None))
            await asyncio.sleep(0)
            with pytest.raises(UsageError, match="two tasks iterate"):
                await anext(records)
            assert not reading.done()
            records.close()
            assert await reading is None
            waiting = asyncio.ensure_future(anext(group, None))
            await asyncio.sleep(0)
            with pytest.raises(UsageError, match="another task waits in next"):
                await group.next()
            group.shutdown(promptly=True)
            assert await waiting is None

    in_asyncio(main)


def test_a_cancellation_that_a_call_before_has_delivered(kafka: Kafka) -> None:
    """It counts as well: a commit that was sent returns, and cancels the task in its next call."""
    here = Here(kafka, records=0)

    async def main() -> None:
        async with here.group() as group:
            generation = await group.next()
            records = generation.records()

            async def commit_and_read() -> None:
                task = asyncio.current_task()
                assert task is not None
                task.cancel()  # as if it had come while the commit was on its way
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0)
                deliver_again(asyncio.CancelledError())
                await anext(records)

            reading = asyncio.ensure_future(commit_and_read())
            while not reading.done():
                await asyncio.sleep(0)
                call = records._calls._outstanding
                if call is not None and call.learnt:
                    waiting = asyncio.ensure_future(anext(records, None))
                    await asyncio.sleep(0)
                    assert not waiting.done()  # it was not refused
                    break
            with pytest.raises(asyncio.CancelledError):
                await reading
            records.close()
            assert await waiting is None

    in_asyncio(main)
