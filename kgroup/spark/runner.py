"""``Runner``: Spark actions in a thread of their own, for a program on trio.

The event loop goes on while an action runs (heartbeats do), and cancelling the scope cancels the
action's jobs. A thread cannot be cancelled: it is waited for, and told of while it stays.

INVARIANTS: when ``run`` has returned or raised, its function has returned and no task of its job
group runs; what the function returned or raised is handed on, or the function was cancelled.
"""

from __future__ import annotations

import contextvars
import queue
import sys
import threading
import traceback
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Generic, Self, TypeVar, final

import attrs
import trio

from kgroup.errors import UsageError
from kgroup.spark.cancellable_jobs import CancellableJobs

T = TypeVar("T")

PATIENCE: Final = 5.0
"""Seconds after cancelling in which Spark ends what it can; a Python worker takes it up to 4."""

FIRST_LOOK: Final = 0.01
LAST_LOOK: Final = 0.2
"""Seconds between looks at what still runs: the first, and (each twice the last) the longest."""


@attrs.frozen(kw_only=True)
class Outstay:
    """A cancelled function, or tasks of its job group, that are still there.

    Attributes:
        group: the job group.
        thread: the name of the function's thread.
        stack: where that thread is, or None if the function has returned.
        tasks: how many tasks of the group still run, or None if Spark has not answered yet.
        seconds: since it was cancelled.
    """

    group: str
    thread: str
    stack: str | None
    tasks: int | None
    seconds: float


@final
class _Errand(Generic[T]):
    """One function to call in the thread, and what came of it."""

    def __init__(self, call: Callable[[], T]) -> None:
        self._call = call
        self._context = contextvars.copy_context()
        self._returned: list[T] = []
        self._token = trio.lowlevel.current_trio_token()
        self._over = trio.Event()
        self.ended = False
        self.error: BaseException | None = None

    def do(self) -> None:
        """Call it; in the thread."""
        try:
            self._returned.append(self._context.run(self._call))
        except BaseException as error:  # noqa: BLE001 # raised by who waits
            self.error = error
        self.ended = True
        try:
            self._token.run_sync_soon(self._over.set)
        except trio.RunFinishedError:
            if self.error is not None:
                raise self.error from None  # nobody is left to be told: threading.excepthook is

    async def wait(self) -> None:
        """Wait until it has ended."""
        await self._over.wait()

    def outcome(self) -> T:
        """What it returned, or else raises what it raised."""
        if self.error is not None:
            raise self.error
        return self._returned[0]


@final
class _Left:
    """What is left of a cancelled function in Spark, as far as it is known."""

    def __init__(self) -> None:
        self.tasks: int | None = None
        self.error: Exception | None = None


@final
class Runner:
    """A thread in which Spark actions run one after another, each with its job group.

    ``async with Runner(jobs, "kgroup-orders", tell) as runner: await runner.run(...)``. The
    thread is started by the first `run` and has the local properties (or tags) of the thread
    that made ``jobs``. Leaving the block ends it, and with it its twin in the JVM.

    Args:
        jobs: of the Spark session.
        name: of the thread.
        outstayed: is told, in the event loop, of what is still there ``patience`` after it was
            cancelled, then again each time that time has doubled.
        patience: seconds.
    """

    def __init__(
        self,
        jobs: CancellableJobs,
        name: str,
        outstayed: Callable[[Outstay], None],
        *,
        patience: float = PATIENCE,
    ) -> None:
        self._jobs = jobs
        self._name = name
        self._outstayed = outstayed
        self._patience = patience
        self._errands: queue.SimpleQueue[_Errand[Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._busy = False
        self._closed = False
        # Its own, so that a program that has used up trio's threads can still cancel.
        self._limiter = trio.CapacityLimiter(1)

    async def __aenter__(self) -> Self:
        """Nothing is started yet."""
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(self, *details: object) -> None:
        """End the thread; it has nothing to do any more.

        Cancellation: waits all the same; the thread is idle and ends at once.
        """
        self._closed = True
        self._errands.put(None)
        thread = self._thread
        # A second KeyboardInterrupt can break the wait for a function: its thread ends after it.
        if thread is not None and not self._busy:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(thread.join, limiter=self._limiter)
        await trio.lowlevel.checkpoint()

    async def run(self, group: str, description: str, fn: Callable[..., T], *args: Any) -> T:
        """Call a function that starts Spark jobs, in the thread, as one job group.

        Args:
            group: names the jobs. Each run needs a group of its own, also when the same work is
                tried again: a cancelled group takes no job ever after.
            description: of the jobs, as Spark's UI and listeners show it.
            fn: is called in a copy of the caller's context variables.
            *args: what it is called with.

        Returns:
            What the function returned.

        Raises:
            PoisonedError: the group was poisoned before; the function was not called.
            UsageError: another function runs in it, or the block was left.
            Exception: what the function raised; or, after cancellation, why Spark could not
                be asked whether the function's tasks have ended.

        Cancellation: if the function has returned by then, its result is returned, as
            ``trio.to_thread.run_sync`` does, and the next checkpoint is cancelled. Else its
            jobs are cancelled, none starts any more, and it is waited, without a deadline,
            until the function has returned and no task of the group runs. Then Cancelled is
            raised, also where the function caught the failure of its jobs and returned: its
            result is dropped, because nobody can tell what it is worth. An exception of the
            function that does not come from the cancellation is raised in place of it.
        """
        if self._busy:
            raise UsageError(f"thread {self._name} runs a function already; a runner runs one")
        if self._closed:
            raise UsageError(f"thread {self._name} has ended: its block was left")
        await trio.lowlevel.checkpoint()
        errand = _Errand(partial(self._jobs.call, group, description, fn, *args))
        thread = self._started()
        self._busy = True
        self._errands.put(errand)
        try:
            await errand.wait()
        except trio.Cancelled:
            if not errand.ended:
                await self._stop(group, thread, errand)
                if errand.error is None or self._jobs.cancelled(group, errand.error):
                    raise
        finally:
            self._busy = not errand.ended
        return errand.outcome()

    def _started(self) -> threading.Thread:
        if self._thread is None:
            self._thread = self._jobs.thread(partial(_attend, self._errands), self._name)
            self._thread.start()
        return self._thread

    async def _stop(self, group: str, thread: threading.Thread, errand: _Errand[Any]) -> None:
        left = _Left()
        # No deadline: a thread cannot be cancelled, and what comes next must not meet it.
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._tell, group, thread, errand, left)
                await self._end(group, errand, left)
                nursery.cancel_scope.cancel()
        if left.error is not None:
            left.error.add_note(f"nobody knows whether tasks of job group {group!r} still run")
            raise left.error

    async def _end(self, group: str, errand: _Errand[Any], left: _Left) -> None:
        pause = FIRST_LOOK
        while True:
            ended = errand.ended  # before looking at its jobs: it starts none afterwards
            try:
                left.tasks = await trio.to_thread.run_sync(
                    self._press, group, limiter=self._limiter
                )
                left.error = None
            except Exception as error:  # noqa: BLE001 # Spark may be gone; the function is not
                left.error = error
            if ended and (left.error is not None or not left.tasks):
                return
            if ended:
                await trio.sleep(pause)
            else:
                with trio.move_on_after(pause):
                    await errand.wait()
            pause = min(2 * pause, LAST_LOOK)

    def _press(self, group: str) -> int:
        self._jobs.poison(group)
        return self._jobs.running(group)

    async def _tell(
        self, group: str, thread: threading.Thread, errand: _Errand[Any], left: _Left
    ) -> None:
        seconds = self._patience
        await trio.sleep(seconds)
        while True:
            stack = None if errand.ended else _stack_of(thread)
            self._outstayed(
                Outstay(
                    group=group,
                    thread=thread.name,
                    stack=stack,
                    tasks=left.tasks,
                    seconds=seconds,
                )
            )
            await trio.sleep(seconds)
            seconds *= 2


async def run_job(
    jobs: CancellableJobs,
    group: str,
    description: str,
    fn: Callable[..., T],
    *args: Any,
    outstayed: Callable[[Outstay], None],
) -> T:
    """Run one function as `Runner.run` does, in a thread that ends with it."""
    async with Runner(jobs, f"kgroup-{group}", outstayed) as runner:
        return await runner.run(group, description, fn, *args)


def _stack_of(thread: threading.Thread) -> str | None:
    frame = sys._current_frames().get(thread.ident or 0)  # noqa: SLF001 # the only way
    return "".join(traceback.format_stack(frame)) if frame else None


def _attend(errands: queue.SimpleQueue[_Errand[Any] | None]) -> None:
    while (errand := errands.get()) is not None:
        errand.do()
        del errand  # or a whole result is kept until the next one
