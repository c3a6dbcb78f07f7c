"""Calls from asyncio's event loop into the background thread, and back.

Theory of operation. A task of asyncio starts a call in the background thread and waits for a
future, which that thread sets when the call has a result. If the task is cancelled meanwhile, the
call is cancelled, and the task waits on until it really has ended: nothing of it is left behind.
Then there are three cases. If the call was cut short, the task raises the cancellation. If it has a
result all the same, such as that of a commit which had been sent, the task gets the result, as on
trio, and the cancellation is delivered again at its next wait. So a cancelled task learns the
outcome of its commit. If the result can be taken back (a batch, a generation), it is, for the next
call, and the task raises the cancellation: ``asyncio.wait_for`` of Python 3.11 makes a task of the
call, and drops what that returns once it was cancelled.

A cancellation that was taken back by then is not delivered again: ``asyncio.timeout`` takes its own
back when its block has ended with a result.

INVARIANTS: a call has ended when its task continues; the bridge drops no result; the background
thread never waits for asyncio's, so that asyncio's may wait for it.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from typing import TypeVar, final

from kgroup.background.event_loop import BackgroundLoop, Call, LoopEndedError
from kgroup.errors import UsageError

T = TypeVar("T")


@final
class Bridge:
    """Between the asyncio loop in which it is made, and the background thread of one group.

    Args:
        background: the background thread's loop.
        group_id: the group, for errors and the log.

    Attributes:
        group_id: the group.
        context: the context variables of the task that makes it.
    """

    def __init__(self, background: BackgroundLoop, group_id: str) -> None:
        self._background = background
        self.group_id = group_id
        self._loop = asyncio.get_running_loop()
        self.context = contextvars.copy_context()

    @property
    def broken(self) -> bool:
        """Whether asyncio's loop was closed, so that none of its tasks will ever continue."""
        return self._loop.is_closed()

    @property
    def runs(self) -> bool:
        """Whether asyncio's loop runs now; any thread may read it."""
        return self._loop.is_running()

    @property
    def is_here(self) -> bool:
        """Whether asyncio's loop of the group runs in this thread."""
        return running_loop() is self._loop

    def post(self, fn: Callable[[], object], context: contextvars.Context | None = None) -> bool:
        """Schedule a function in asyncio's loop, from any thread; False if the loop is closed.

        Args:
            fn: the function.
            context: the context variables with which it is called; by default `context`.
        """
        if context is None:  # an empty one is false
            context = self.context
        try:
            self._loop.call_soon_threadsafe(fn, context=context)
        except RuntimeError:
            return False
        return True

    # In asyncio's loop.

    async def call(
        self,
        fn: Callable[[], Awaitable[T]],
        take_back: Callable[[T], object] | None = None,
        on_cancelled: Callable[[], object] = lambda: None,
    ) -> T:
        """Call an async function in the background thread, and wait for its result.

        Args:
            fn: the function.
            take_back: called with the result if the task was cancelled meanwhile.
            on_cancelled: called when the task learns that it was cancelled.

        Raises:
            LoopEndedError: the background thread ended before the call did.
            UsageError: another event loop runs here.
            Exception: the function's own exception.

        Cancellation: the function is cancelled, and waited for. If it has a result or an exception
            all the same, the call returns or raises that, and the cancellation is delivered again;
            a result that can be taken back is, in place of that.
        """
        self.check_loop()
        call, cancelled = await self._settled(fn, on_cancelled)
        try:
            value = call.result()
            if cancelled is None or take_back is None:
                return value
            take_back(value)
            again, cancelled = cancelled, None
        except LoopEndedError:
            if cancelled is None:
                raise
            again, cancelled = cancelled, None
        finally:
            if cancelled is not None:
                deliver_again(cancelled)
        raise again

    async def _settled(
        self, fn: Callable[[], Awaitable[T]], on_cancelled: Callable[[], object]
    ) -> tuple[Call[T], asyncio.CancelledError | None]:
        """Begin a call, and wait until it has ended; with the last cancellation of the task."""
        future: asyncio.Future[None] = self._loop.create_future()

        def wake() -> None:
            if not future.done():
                future.set_result(None)

        call = Call[T](lambda: self.post(wake))
        cancelled: asyncio.CancelledError | None = None
        self._background.begin(call, fn)
        try:
            await future
        except asyncio.CancelledError as error:
            cancelled = error
            on_cancelled()
        finally:  # also if the task is closed, and cannot wait
            if not call.settled:
                self._background.post(call.cancel)
        while not call.settled:
            future = self._loop.create_future()
            try:
                await future
            except asyncio.CancelledError as error:
                cancelled = error
        return call, cancelled

    def call_sync(self, fn: Callable[[], T]) -> T:
        """Call a function in the background thread; raises as `call` does."""
        self.check_loop()
        return self._background.run_sync(fn)

    def check_loop(self) -> None:
        """Check that asyncio's loop of the group runs in this thread.

        Raises:
            UsageError: it does not.
        """
        if not self.is_here:
            raise UsageError(
                f"group {self.group_id!r} belongs to another event loop of asyncio; nothing was"
                " done. Make its calls in that loop: those of async functions by"
                " asyncio.run_coroutine_threadsafe(coroutine, loop), others by"
                " loop.call_soon_threadsafe(function)"
            )


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The asyncio loop that runs in this thread, or None."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def deliver_again(cancelled: asyncio.CancelledError) -> None:
    """Cancel the current task at its next wait, because it continues in spite of a cancellation.

    It is not cancelled here at once: before Python 3.13, a cancellation that is taken back before
    the task has waited would be raised nevertheless.
    """
    task = asyncio.current_task()
    assert task is not None  # nothing else is cancelled
    requests = task.cancelling()

    def deliver() -> None:
        if task.cancelling() >= requests:
            task.uncancel()
            task.cancel(*cancelled.args)

    asyncio.get_running_loop().call_soon(deliver)
