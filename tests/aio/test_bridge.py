"""Calls from asyncio into the background thread: results, cancellation, order, and every end."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

import pytest
import trio

from kgroup.aio.bridge import Bridge
from kgroup.background.event_loop import BackgroundLoop, LoopEndedError
from kgroup.errors import UsageError

SOON: Final = 60.0


class Running:
    """A background loop, the bridge to it, and a call that a test controls."""

    def __init__(self) -> None:
        self.stop = trio.Event()
        self.loop = BackgroundLoop("loop of a test", self.stop.wait, lambda: None)
        self.bridge = Bridge(self.loop, "group")
        self.begun, self.cancelled = asyncio.Event(), asyncio.Event()

    async def never(self) -> None:
        """Wait until it is cancelled."""
        self.bridge.post(self.begun.set)
        try:
            await trio.sleep_forever()
        finally:
            self.bridge.post(self.cancelled.set)

    async def sent(self) -> str:
        """As a commit that was sent: cancelled, it returns its outcome nevertheless."""
        self.bridge.post(self.begun.set)
        try:
            await trio.sleep_forever()
        except trio.Cancelled:
            return "outcome"  # trio's scope has swallowed nothing: the call has a result


@asynccontextmanager
async def running() -> AsyncIterator[Running]:
    """A loop that ends with the test."""
    here = Running()
    here.loop.start()
    try:
        yield here
    finally:
        here.loop.post(here.stop.set)
        here.loop.join()


def in_asyncio(test: Callable[[Running], Awaitable[None]]) -> None:
    """Run a test in asyncio, with a background loop."""

    async def main() -> None:
        async with asyncio.timeout(SOON), running() as here:
            await test(here)

    asyncio.run(main())


def test_results_and_exceptions() -> None:
    """What a function returns or raises in the background thread, the task gets."""

    async def test(here: Running) -> None:
        async def name() -> str:
            await trio.lowlevel.checkpoint()
            return threading.current_thread().name

        async def fail() -> None:
            await trio.lowlevel.checkpoint()
            raise ZeroDivisionError

        assert await here.bridge.call(name) == "loop of a test"
        assert here.bridge.call_sync(lambda: threading.current_thread().name) == "loop of a test"
        with pytest.raises(ZeroDivisionError):
            await here.bridge.call(fail)

    in_asyncio(test)


def test_a_cancellation_reaches_the_call() -> None:
    """A cancelled task continues when its call in the background thread has ended."""

    async def test(here: Running) -> None:
        task = asyncio.create_task(here.bridge.call(here.never))
        await here.begun.wait()
        task.cancel("enough")
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await task
        await asyncio.sleep(0)
        assert here.cancelled.is_set()

    in_asyncio(test)


def test_a_time_out_reaches_the_call() -> None:
    """``wait_for`` and a failing ``TaskGroup`` cancel the call as ``cancel`` does."""

    async def test(here: Running) -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(here.bridge.call(here.never), 0.01)
        await here.cancelled.wait()
        here.cancelled.clear()
        here.begun.clear()

        async def fail() -> None:
            await here.begun.wait()
            raise ZeroDivisionError

        with pytest.raises(ExceptionGroup) as caught:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(here.bridge.call(here.never))
                tasks.create_task(fail())
        assert [type(error) for error in caught.value.exceptions] == [ZeroDivisionError]
        assert here.cancelled.is_set()

    in_asyncio(test)


def test_an_outcome_comes_before_the_cancellation() -> None:
    """A call that has a result in spite of the cancellation returns it; the next wait raises."""

    async def test(here: Running) -> None:
        steps: list[str] = []

        async def work() -> None:
            steps.append(await here.bridge.call(here.sent))
            try:
                await asyncio.sleep(SOON)
            except asyncio.CancelledError:
                steps.append("cancelled")
                raise

        task = asyncio.create_task(work())
        await here.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert steps == ["outcome", "cancelled"]
        assert task.cancelling() == 1

    in_asyncio(test)


@pytest.mark.parametrize("waits", [False, True])
def test_a_result_that_can_be_taken_back(waits: bool) -> None:
    """A cancelled call whose result is taken back raises the cancellation, in ``wait_for`` too."""

    async def test(here: Running) -> None:
        taken: list[str] = []
        call = here.bridge.call(here.sent, taken.append)
        task = asyncio.create_task(asyncio.wait_for(call, SOON) if waits else call)
        await here.begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert taken == ["outcome"]

    in_asyncio(test)


def test_a_cancellation_that_was_taken_back_is_not_delivered_again() -> None:
    """A time-out whose block has ended with a result disturbs nothing later."""

    async def test(here: Running) -> None:
        async with asyncio.timeout(0.01) as limit:
            assert await here.bridge.call(here.sent) == "outcome"
        assert limit.expired()
        for _ in range(3):
            await asyncio.sleep(0)
        assert await asyncio.wait_for(here.bridge.call(here.sent), 0.01) == "outcome"
        await asyncio.sleep(0)

    in_asyncio(test)


def test_several_cancellations_are_one() -> None:
    """A task that is cancelled again while its call ends waits on, and is cancelled once."""

    async def test(here: Running) -> None:
        may_end = trio.Event()

        async def slow() -> None:
            here.bridge.post(here.begun.set)
            try:
                await trio.sleep_forever()
            finally:
                here.bridge.post(here.cancelled.set)
                with trio.CancelScope(shield=True):
                    await may_end.wait()

        task = asyncio.create_task(here.bridge.call(slow))
        await here.begun.wait()
        task.cancel()
        await here.cancelled.wait()
        task.cancel()
        await asyncio.sleep(0)
        assert not task.done()
        here.loop.post(may_end.set)
        with pytest.raises(asyncio.CancelledError):
            await task

    in_asyncio(test)


def test_calls_start_in_their_order() -> None:
    """Calls that tasks make one after the other begin in that order, sync and async ones."""

    async def test(here: Running) -> None:
        began: list[int] = []

        async def begin(number: int) -> None:
            began.append(number)
            await trio.lowlevel.checkpoint()

        async def call(number: int) -> None:
            if number % 10 == 5:
                here.bridge.call_sync(lambda: began.append(number))
            else:
                await here.bridge.call(lambda: begin(number))

        await asyncio.gather(*(call(number) for number in range(60)))
        assert began == list(range(60))

    in_asyncio(test)


def test_the_end_of_the_loop_answers() -> None:
    """A call that waits when the background loop ends, and one that comes later, raise."""

    async def test(here: Running) -> None:
        task = asyncio.create_task(here.bridge.call(here.never))
        await here.begun.wait()
        here.loop.post(here.stop.set)
        with pytest.raises(LoopEndedError):
            await task
        with pytest.raises(LoopEndedError):
            await here.bridge.call(here.never)

    in_asyncio(test)


def test_another_loop_is_refused() -> None:
    """A call from another event loop, or from none, raises an error that says so."""

    async def test(here: Running) -> None:
        def elsewhere() -> None:
            with pytest.raises(UsageError, match="another event loop of asyncio"):
                asyncio.run(here.bridge.call(here.never))
            with pytest.raises(UsageError, match="run_coroutine_threadsafe"):
                here.bridge.call_sync(int)

        await asyncio.to_thread(elsewhere)

    in_asyncio(test)


def test_a_coroutine_that_is_closed() -> None:
    """A call whose coroutine is closed, and cannot wait, is cancelled."""

    async def test(here: Running) -> None:
        coroutine = here.bridge.call(here.never)
        coroutine.send(None)
        await here.begun.wait()
        coroutine.close()
        await here.cancelled.wait()

    in_asyncio(test)


def test_a_closed_loop_takes_no_more() -> None:
    """What is posted to an asyncio loop that was closed is refused, and it counts as broken."""

    async def make() -> Running:
        return Running()

    here = asyncio.run(make())
    assert here.bridge.broken
    assert not here.bridge.post(here.begun.set)
