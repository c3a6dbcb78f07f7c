"""The program's functions as tasks of asyncio, each of which a task of trio waits for.

For the trio generation, such a function is a task of its own that ends when the function does, and
its cancellation cancels the function. trio cancels again at every wait of a task that continues;
asyncio does so once. A task that continues after it was cancelled is therefore cancelled again
every `GRACE` seconds, and reported. If asyncio's loop does not run at all, no task is to blame but
what the loop's thread does: that is reported, once.

A function of the settings is no work of a generation: connections need a login, for one, while
something blocks asyncio's loop. So trio does not wait for one that it has cancelled; the group's
block does, before it ends.

INVARIANTS: the trio task of a generation's work ends after the function, and the group's block ends
after all functions, unless asyncio's loop was closed or the program exits; an exception of a
function is never lost.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import math
import threading
import traceback
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from types import FrameType
from typing import Any, Final, Generic, TypeVar, final

import trio

from kgroup.aio.body import Body
from kgroup.aio.bridge import Bridge
from kgroup.background.event_loop import BackgroundLoop
from kgroup.errors import UsageError
from kgroup.events import ProgramLoopBlocked, TaskStillRunning
from kgroup.functions import is_program_error, name_of
from kgroup.logs import LOG
from kgroup.worker_thread import stack_of

T = TypeVar("T")

GRACE: Final = 1.0
"""Seconds that a cancelled task may take, before it is reported and cancelled again."""
_HOLDS: Final = (
    "group %s: the function %s of the settings is still running after it was cancelled, and the"
    " group's block waits for it. It is cancelled again every %g s. Its stack:\n%s"
)
_TURNS: Final = 4
"""Turns of asyncio's loop: to resume a task, to end it, to call its callbacks, and one more."""


@final
class Tasks:
    """The program's tasks that belong to one group.

    Args:
        bridge: the group's.
        background: the background thread's loop.
        body: the body of the group's block.
    """

    def __init__(self, bridge: Bridge, background: BackgroundLoop, body: Body) -> None:
        self.bridge = bridge
        self.background = background
        self.body = body
        self.running: set[ProgramTask[Any]] = set()
        self.loop_blocked = False
        """Whether it was reported that asyncio's loop does not run, and it has not run since."""
        self._probe: trio.Event | None = None
        """Set by asyncio's loop, once it runs."""
        self._abandoned = False
        self.thread = threading.current_thread()

    def names(self) -> list[str]:
        """The names of those that run and are work of a generation; in any thread."""
        return sorted(task.name for task in list(self.running) if task.is_work)

    async def loop_runs(self) -> bool | None:
        """Whether asyncio's loop makes some turns within `GRACE`; None if they took half of it.

        In the background loop. What a task posts that has just been resumed, its end above all,
        comes before that.
        """
        if self._probe is None or self._probe.is_set():
            self._probe = trio.Event()
            self._turn(_TURNS, self._probe)
        probe, lasted = self._probe, math.inf
        # If this very wait wakes late, the process was frozen, or got no processor: asyncio's loop
        # could not run either, and has its time again.
        while not probe.is_set() and lasted > 1.5 * GRACE:
            began = trio.current_time()
            with trio.move_on_after(GRACE):
                await probe.wait()
            lasted = trio.current_time() - began
        if not probe.is_set():
            return False
        return True if lasted < GRACE / 2 else None

    def _turn(self, more: int, probe: trio.Event) -> None:
        if not more:
            self.background.post(probe.set)
        elif not self.bridge.post(partial(self._turn, more - 1, probe)):
            self.background.post(probe.set)  # the loop is closed, and nothing is waited for

    def waited_for(self, task: ProgramTask[Any]) -> None:
        """Add one that trio begins to wait for. In the background loop."""
        self.running.add(task)
        if self._abandoned:
            task.abandon()

    async def until_ended(self) -> None:
        """Wait for those that were cancelled and have not ended, and cancel them again.

        In the background loop.
        """
        async with trio.open_nursery() as nursery:
            for task in list(self.running):
                nursery.start_soon(task.until_ended)

    def abandon(self) -> None:
        """Wait for none of them any more, nor for later ones; in the background loop.

        asyncio's loop is closed, or the program exits. Leaving the group may still need a login,
        whose function that loop will never run.
        """
        self._abandoned = True
        if self._probe is not None:
            self._probe.set()
        for task in list(self.running):
            task.abandon()


@final
class ProgramTask(Generic[T]):
    """One function of the program. Made in any thread.

    Args:
        tasks: the group's.
        context: the context variables with which the function is called.
        fn: the function.
        args: its arguments.
        around: a block in which the function is called.
        unused: called in asyncio's loop if the function will not be called.
        alone: whether the task has no caller that awaits it. Then a CancelledError of the function
            is an error, unless the task itself was cancelled: it comes from another task or a
            future, which the function awaited. The cancellation of the task itself is an error too,
            unless the generation asked for it, or the task of the block's body is cancelled as
            well, as at the end of ``asyncio.run``.

    Attributes:
        name: the function's name.
        cancelled: whether it was cancelled by others than the trio task.
        is_work: whether a generation ends only after it; functions of the settings are no work.
    """

    def __init__(
        self,
        tasks: Tasks,
        context: contextvars.Context,
        fn: Callable[..., Awaitable[T]],
        *args: Any,
        around: AbstractContextManager[None] | None = None,
        unused: Callable[[], object] | None = None,
        alone: bool = False,
    ) -> None:
        self.name = name_of(fn)
        self.cancelled = False
        self.is_work = False
        self._tasks = tasks
        self._context = context
        self._around = around or nullcontext()
        self._unused = unused
        self._alone = alone
        self._call: Callable[[], Awaitable[T]] | None = partial(fn, *args)
        self._task: asyncio.Task[None] | None = None
        self._asked = False
        """Whether the trio task was cancelled, and therefore this one."""
        self._left = False
        """Whether the trio task has ended before the function."""
        self._result: list[T] = []
        self._error: BaseException | None = None
        self._done = trio.Event()

    # In asyncio's loop.

    def start(self) -> None:
        """Start the task."""
        if self._call is None:
            return  # it was cancelled before
        try:
            self._task = self._context.run(self._create)
        except BaseException as error:
            # Of the program's task factory, or what ends everything at once: a signal handler's, or
            # that of an eager task, which takes its first step here.
            if is_program_error(error):
                self._error = error  # raised in trio
            self.drop()
            if self._error is None:
                raise
        else:
            self._task.add_done_callback(self._ended)

    def drop(self) -> None:
        """End without a task, if there is none: the trio task must not wait for it."""
        if self._task is None:
            self.cancelled = self._error is None
            self._drop_call()
            self._finish()

    def _create(self) -> asyncio.Task[None]:
        coroutine = self._run()
        try:
            return asyncio.get_running_loop().create_task(coroutine, name=self.name)
        except BaseException:
            coroutine.close()
            raise

    async def _run(self) -> None:
        call, self._call = self._call, None  # its arguments are not kept for longer than the call
        assert call is not None  # it starts once
        try:
            with self._around:
                returned = call()
                if not inspect.isawaitable(returned):
                    raise UsageError(  # it ends the generation as the function's would
                        f"{self.name} is not an async function; tasks of kgroup.aio are"
                    )
                around = refusing_stray_cancellations(self.name) if self._alone else nullcontext()
                with around:
                    self._result.append(await returned)
        # Raised in the trio task. sys.exit() would stop asyncio's loop, and the others with it.
        except BaseException as error:
            if not is_program_error(error):
                raise
            self._error = error

    def _cancel(self) -> None:
        self._asked = True
        if self._task is not None:
            self._task.cancel()
        elif self._call is not None:  # it has not started
            self.drop()

    def _drop_call(self) -> None:
        if self._call is not None and self._unused is not None:
            self._unused()
        self._call = None

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._drop_call()  # it may have been cancelled before its first step
        self.cancelled = task.cancelled()
        by_itself = self.cancelled and self._alone and not self._asked
        if by_itself and not self._tasks.body.cancelled:
            self._error = UsageError(
                f"the task of {self.name} was cancelled, and not by kgroup: the function itself, or"
                " another part of the program, has called its cancel()"
            )
        elif not self.cancelled and (error := task.exception()) is not None:
            if isinstance(error, KeyboardInterrupt):
                self.cancelled = True  # it has stopped asyncio's loop, which raises it
            else:
                self._error = error
        self._finish()

    def _finish(self) -> None:
        self._tasks.background.post(self._end)

    # In the background loop.

    async def wait(
        self, emit: Callable[..., object] | None = None, *, shielded: bool = True
    ) -> T | None:
        """Be the task of trio: return when the function does, or raise its exception.

        Args:
            emit: called with the class and the fields of an event if the function continues after
                it was cancelled.
            shielded: whether a wait that is cancelled lasts until the function has ended. If not,
                `Tasks.until_ended` waits for it.

        Returns:
            what the function returned; None if it was cancelled by others.

        Cancellation: the function is cancelled, and waited for if the wait is shielded.
        """
        self.is_work = shielded
        self._tasks.waited_for(self)
        try:
            await self._done.wait()
        except trio.Cancelled:
            if not self._tasks.bridge.post(self._cancel):
                self.abandon()  # asyncio's loop is closed
            elif shielded:
                with trio.CancelScope(shield=True):
                    await self.until_ended(emit)
            if self._error is None and not self._result:
                self._left = not self._done.is_set()
                raise
        finally:
            if not self._left:
                self._tasks.running.discard(self)
        if self._error is not None:
            raise self._error
        return self._result[0] if self._result else None

    async def until_ended(self, emit: Callable[..., object] | None = None) -> None:
        """Wait for the function, which was cancelled, and cancel it again every `GRACE` seconds.

        Args:
            emit: called once if it continues, as for `wait`; without it, that is logged.
        """
        reported = False
        while not self._done.is_set():
            await self._until_loop_runs(emit)
            # What the loop could not run has not had its time.
            while not await self._ends_in_time():
                if await self._until_loop_runs(emit):
                    break
            if self._done.is_set():
                return
            if not reported:
                reported = True
                stack = stack_of_task(self._task, self._tasks.thread)
                if emit is None:  # the event says what holds for a generation's tasks only
                    LOG.warning(_HOLDS, self._tasks.bridge.group_id, self.name, GRACE, stack)
                else:
                    emit(TaskStillRunning, task=self.name, stack=stack)
            if not self._tasks.bridge.post(self._cancel):
                self.abandon()  # asyncio's loop is closed

    def abandon(self) -> None:
        """Wait for it no longer."""
        self.cancelled = True
        self._end()

    def _end(self) -> None:
        self._done.set()
        self._tasks.running.discard(self)
        if self._left and self._error is not None:
            group_id = self._tasks.bridge.group_id
            text = "group %s: %s raised after it was cancelled"
            LOG.error(text, group_id, self.name, exc_info=self._error)

    async def _ends_in_time(self) -> bool:
        with trio.move_on_after(GRACE):
            await self._done.wait()
        return self._done.is_set()

    async def _until_loop_runs(self, emit: Callable[..., object] | None) -> bool:
        """Wait until asyncio's loop runs, and report if it is blocked; True if it runs smoothly."""
        tasks, smooth = self._tasks, True
        while (runs := await tasks.loop_runs()) is False and not self._done.is_set():
            smooth = False
            if emit is not None and not tasks.loop_blocked:
                tasks.loop_blocked = True
                emit(ProgramLoopBlocked, stack=stack_of(tasks.thread) or "(it has ended)")
        if runs is not False:  # this task may have ended just before the loop was blocked
            tasks.loop_blocked = False
        return smooth and runs is True


@contextmanager
def refusing_stray_cancellations(name: str) -> Iterator[None]:
    """A block that awaits a function of the program, out of which only real cancellations come.

    Args:
        name: the function's name.

    Raises:
        UsageError: the function raised a CancelledError, and nothing has cancelled its task.
    """
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        raise UsageError(
            f"{name} raised CancelledError, and nothing has cancelled it: a task or a future that"
            " it awaited was cancelled; catch that in the function"
        ) from error


def stack_of_task(task: asyncio.Task[Any] | None, thread: threading.Thread) -> str:
    """Where a task waits; if it blocks asyncio's loop, that is its thread's stack.

    Args:
        task: the task; None if it has not begun.
        thread: the thread of its loop.
    """
    if task is None:
        return "(it has not begun)"
    if asyncio.current_task(task.get_loop()) is task:
        return stack_of(thread) or "(the thread has ended)"
    stacks = (traceback.format_stack(frame, limit=1) for frame in _frames(task.get_coro()))
    return "".join(line for stack in stacks for line in stack) or "(the task has ended)"


def _frames(awaited: object) -> Iterator[FrameType]:
    """The frames of a coroutine and of what it awaits; ``Task.get_stack`` has the first only."""
    while (frame := getattr(awaited, "cr_frame", None)) is not None:
        yield frame
        awaited = getattr(awaited, "cr_await", None)
