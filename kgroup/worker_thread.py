"""Threads beside the event loop: for long computations, and for functions of the program.

`WorkerThread` runs computations that would block the event loop, so that it keeps sending
heartbeats. `ThreadCall` is one call of a program's function in a thread, for which tasks wait.

A thread cannot be cancelled. A cancelled caller stops waiting for it; the thread runs on until its
function returns, and the result is ignored. So that such threads cannot pile up, a `WorkerThread`
starts one only after the one before it has ended. A member has five of them: for its assignor, for
DescribeGroups responses, for large responses, for its own assignment and the names that others
subscribe to, and for the start offsets that the program has. Functions for logins have up to three
of their own (``kgroup.wire.logins``).

INVARIANT: a `WorkerThread` has at most one thread at a time; it has the name that the caller gave.
"""

from __future__ import annotations

import contextvars
import math
import sys
import threading
import traceback
from collections.abc import Callable
from typing import Final, Generic, TypeVar, final

import trio

T = TypeVar("T")

threads_with_locks: Final[list[int]] = []
"""The threads that may hold a lock for which an event loop may wait. They must not wait for it. A
thread is here once for each lock."""


@final
class WorkerThread:
    """Implements `Compute` with a thread that runs one function at a time.

    The interpreter does not wait for the thread when it exits.
    """

    def __init__(self) -> None:
        # Trio returns the token only when the thread has ended, even if its caller was cancelled.
        self._limiter = trio.CapacityLimiter(1)

    async def __call__(self, work: Callable[[], T], name: str) -> T:
        """See `Compute`."""
        return await trio.to_thread.run_sync(
            work, thread_name=name, abandon_on_cancel=True, limiter=self._limiter
        )


def unlimited_threads() -> trio.CapacityLimiter:
    """A limiter for calls in threads that must not wait for those of the program.

    Functions of the program may occupy all threads that trio's own limiter allows.
    """
    return trio.CapacityLimiter(math.inf)


async def compute_inline(work: Callable[[], T], name: str) -> T:
    """Implements `Compute` in the event loop, which is blocked meanwhile.

    For tests in virtual time: beside a thread, the virtual clock would keep running.
    """
    del name
    await trio.lowlevel.checkpoint()
    return work()


@final
class ThreadCall(Generic[T]):
    """One call of a function in a thread, and its result, for which tasks of the loop wait.

    INVARIANT: the exception of the function is never lost. If the event loop has ended by then, the
    thread raises the exception, so that ``threading.excepthook`` gets it.

    Args:
        fn: the function.
        context: the context variables with which it is called.
        post: schedules a function in the event loop; returns False if the loop has ended.
    """

    def __init__(
        self,
        fn: Callable[[], T],
        context: contextvars.Context,
        post: Callable[[Callable[[], object]], bool],
    ) -> None:
        self._fn: Callable[[], T] | None = fn
        self._context = context
        self._post = post
        self._finished = trio.Event()
        self._result: list[T] = []
        self.ended = False
        self.error: BaseException | None = None

    def run(self) -> None:
        """Call the function; in the thread."""
        fn, self._fn = self._fn, None  # its arguments are not kept for longer than the call
        assert fn is not None  # it runs once
        try:
            self._result.append(self._context.run(fn))
        except BaseException as error:  # noqa: BLE001 # raised by `result`
            self.error = error
        self.ended = True
        if not self._post(self._finished.set) and self.error is not None:
            raise self.error

    def fail(self, error: BaseException) -> None:
        """End without a call, because the thread could not be started; in the event loop."""
        self._fn, self.error, self.ended = None, error, True
        self._finished.set()

    async def wait(self) -> None:
        """Wait until the call has ended.

        Cancellation: the call itself continues in its thread.
        """
        await self._finished.wait()

    def result(self) -> T:
        """The result of a call that has ended, or raise its exception."""
        if self.error is not None:
            raise self.error
        return self._result[0]


def post_to(token: trio.lowlevel.TrioToken, fn: Callable[[], object]) -> bool:
    """Schedule a function in an event loop, from any thread; False if the loop has ended."""
    try:
        token.run_sync_soon(fn)
    except (trio.RunFinishedError, OSError):
        return False  # OSError: it is ending at this moment
    return True


def stack_of(thread: threading.Thread) -> str | None:
    """The stack of a thread, or None if the thread has ended."""
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 # there is no other way
    return "".join(traceback.format_stack(frame)) if frame else None
