"""``ActionRunner``: runs Spark actions in a thread of their own, for a program on trio.

The event loop continues while an action runs, so heartbeats do too; cancelling the scope cancels
the action's jobs. A thread cannot be cancelled: `ActionRunner.run` waits for it, and reports it
while it does not end.

INVARIANTS: when ``run`` has returned or raised, its function has returned and no task of its job
group runs; the function's result or exception is passed on, unless the function was cancelled.
"""

from __future__ import annotations

import contextvars
import queue
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, Final, Self, TypeVar, final

import attrs
import trio

from kgroup.errors import UsageError
from kgroup.spark.cancellable_jobs import CancellableJobs
from kgroup.worker_thread import ThreadCall, post_to, stack_of

T = TypeVar("T")

REPORT_AFTER: Final = 5.0
"""Seconds after the cancellation that Spark may need to end the tasks; it takes up to 4 to kill a
Python worker."""

FIRST_CHECK: Final = 0.01
MAX_CHECK_INTERVAL: Final = 0.2
"""Seconds between two checks whether tasks still run: the first interval, which then doubles, and
the longest."""


@attrs.frozen(kw_only=True)
class UnfinishedJob:
    """A cancelled function that has not returned, or whose tasks still run.

    Attributes:
        group: the job group.
        thread: the name of the function's thread.
        stack: the thread's stack, or None if the function has returned.
        tasks: how many tasks of the group still run, or None if Spark has not answered yet.
        seconds: the seconds since it was cancelled.
    """

    group: str
    thread: str
    stack: str | None
    tasks: int | None
    seconds: float


@final
class _Remaining:
    """The tasks of a cancelled function that still run, or why Spark could not report them."""

    def __init__(self) -> None:
        self.tasks: int | None = None
        self.error: Exception | None = None


@final
class ActionRunner:
    """A thread that runs Spark actions one after another, each in a job group of its own.

    ``async with ActionRunner(jobs, "kgroup-orders", report) as runner: await runner.run(...)``. The
    first `run` starts the thread; it has the local properties (or tags) of the thread that made
    ``jobs``. Leaving the block ends it, and with it the JVM thread that belongs to it.

    Args:
        jobs: the jobs of the Spark session.
        name: the thread's name.
        on_unfinished: is called in the event loop while a cancelled function or its tasks still
            run: ``report_after`` seconds after the cancellation, then each time that the time has
            doubled.
        report_after: see ``on_unfinished``.
    """

    def __init__(
        self,
        jobs: CancellableJobs,
        name: str,
        on_unfinished: Callable[[UnfinishedJob], None],
        *,
        report_after: float = REPORT_AFTER,
    ) -> None:
        self._jobs = jobs
        self._name = name
        self._on_unfinished = on_unfinished
        self._report_after = report_after
        self._calls: queue.SimpleQueue[ThreadCall[Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._busy = False
        self._closed = False
        # A limiter of its own: a program that has used up trio's threads can still cancel.
        self._limiter = trio.CapacityLimiter(1)

    async def __aenter__(self) -> Self:
        """The thread is started by the first `run`."""
        await trio.lowlevel.checkpoint()
        return self

    async def __aexit__(self, *details: object) -> None:
        """End the thread, which is idle.

        Cancellation: it waits all the same; an idle thread ends at once.
        """
        self._closed = True
        self._calls.put(None)
        thread = self._thread
        # After a second KeyboardInterrupt the function may still run; its thread then ends later,
        # and is not waited for.
        if thread is not None and not self._busy:
            with trio.CancelScope(shield=True):
                await trio.to_thread.run_sync(thread.join, limiter=self._limiter)
        await trio.lowlevel.checkpoint()

    async def run(self, group: str, description: str, fn: Callable[..., T], *args: Any) -> T:
        """Call a function that starts Spark jobs, in the thread, as one job group.

        Args:
            group: the job group. Each run needs a group of its own, also when the same work is
                tried again: a cancelled group never accepts another job.
            description: the description of the jobs in Spark's UI and listeners.
            fn: the function; it is called in a copy of the caller's context variables.
            *args: its arguments.

        Returns:
            What the function returned.

        Raises:
            JobGroupCancelledError: the group was cancelled before; the function was not called.
            UsageError: another function runs in the thread, or the block was left.
            Exception: raised by the function; or, after a cancellation, the reason why Spark could
                not report whether the function's tasks have ended.

        Cancellation: if the function has already returned, its result is returned, as by
            ``trio.to_thread.run_sync``, and the next checkpoint is cancelled. Otherwise its jobs
            are cancelled, no new one can start, and `run` waits, without a deadline, until the
            function has returned and no task of the group runs. Then it raises Cancelled, even if
            the function caught the failure of its jobs and returned: its result may be incomplete,
            and is dropped. If the function raises an exception that does not come from the
            cancellation, that is raised instead.
        """
        if self._busy:
            raise UsageError(
                f"thread {self._name} already runs a function; a runner runs one at a time"
            )
        if self._closed:
            raise UsageError(f"thread {self._name} has ended, because its block was left")
        await trio.lowlevel.checkpoint()
        call = ThreadCall(
            partial(self._jobs.call, group, description, fn, *args),
            contextvars.copy_context(),
            partial(post_to, trio.lowlevel.current_trio_token()),
        )
        thread = self._start_thread()
        self._busy = True
        self._calls.put(call)
        try:
            await call.wait()
        except trio.Cancelled:
            if not call.ended:
                await self._stop(group, thread, call)
                if call.error is None or self._jobs.is_cancellation(group, call.error):
                    raise
        finally:
            self._busy = not call.ended
        return call.result()

    def _start_thread(self) -> threading.Thread:
        if self._thread is None:
            self._thread = self._jobs.thread(partial(_run_calls, self._calls), self._name)
            self._thread.start()
        return self._thread

    async def _stop(self, group: str, thread: threading.Thread, call: ThreadCall[Any]) -> None:
        left = _Remaining()
        # No deadline: a thread cannot be cancelled, and the next generation's work must not run
        # beside it.
        with trio.CancelScope(shield=True):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._report_unfinished, group, thread, call, left)
                await self._cancel_until_stopped(group, call, left)
                nursery.cancel_scope.cancel()
        if left.error is not None:
            left.error.add_note(f"it is unknown whether tasks of job group {group!r} still run")
            raise left.error

    async def _cancel_until_stopped(
        self, group: str, call: ThreadCall[Any], left: _Remaining
    ) -> None:
        pause = FIRST_CHECK
        while True:
            # Read this before the tasks are counted: once it has ended it starts no more jobs.
            ended = call.ended
            try:
                left.tasks = await trio.to_thread.run_sync(
                    self._cancel_and_count, group, limiter=self._limiter
                )
                left.error = None
            except Exception as error:  # noqa: BLE001 # Spark may be gone while the function runs
                left.error = error
            if ended and (left.error is not None or not left.tasks):
                return
            if ended:
                await trio.sleep(pause)
            else:
                with trio.move_on_after(pause):
                    await call.wait()
            pause = min(2 * pause, MAX_CHECK_INTERVAL)

    def _cancel_and_count(self, group: str) -> int:
        self._jobs.cancel(group)
        return self._jobs.running_tasks(group)

    async def _report_unfinished(
        self, group: str, thread: threading.Thread, call: ThreadCall[Any], left: _Remaining
    ) -> None:
        seconds = self._report_after
        await trio.sleep(seconds)
        while True:
            stack = None if call.ended else stack_of(thread)
            self._on_unfinished(
                UnfinishedJob(
                    group=group,
                    thread=thread.name,
                    stack=stack,
                    tasks=left.tasks,
                    seconds=seconds,
                )
            )
            await trio.sleep(seconds)
            seconds *= 2


def _run_calls(calls: queue.SimpleQueue[ThreadCall[Any] | None]) -> None:
    while (call := calls.get()) is not None:
        call.run()
        del call  # otherwise its result is kept in memory until the next call
