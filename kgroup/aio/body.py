"""The task that runs the body of a group's block, which the group cancels when it fails.

Theory of operation. As a rule the task that enters the block runs its body too, and leaves it. Not
always: ``asyncio.wait_for`` of Python 3.11 runs what it waits for in a task of its own, so that
``await asyncio.wait_for(stack.enter_async_context(group), 5)`` enters the block in a task that ends
at once. asyncio does not say which task waited for that one. The body is then in the task that last
did what only a body does: it was given a generation by `next`, it started a task of a generation,
or it opened a scope. Other calls do not count, because a task that only watches the group makes
them, and it must not be cancelled in place of the body. A call may have been made in a short task
too, so the last one that still runs is taken.

If no such task is known, none is cancelled. The body learns of the failure at its next call,
because a group that has failed has closed, and when it leaves the block.

INVARIANT: while the task that entered the block runs, no other one is cancelled.
"""

from __future__ import annotations

import asyncio
from typing import Any, final
from weakref import WeakKeyDictionary

from kgroup.aio.bridge import running_loop


@final
class Body:
    """The body of one group's block. Its methods are called in asyncio's loop.

    Attributes:
        entered: the task that has entered the block; None outside of a task.
    """

    def __init__(self) -> None:
        self.entered: asyncio.Task[Any] | None = None
        self._requests: WeakKeyDictionary[asyncio.Task[Any], int] = WeakKeyDictionary()
        """How often each task had been cancelled when it was seen first; the last seen comes last.

        Not 0 after an exception that a TaskGroup of Python 3.11 has raised, and the task caught."""
        self._failed = False
        self._left = False
        self._cancelled: asyncio.Task[Any] | None = None

    @property
    def task(self) -> asyncio.Task[Any] | None:
        """The task that runs the body; None if it is not known."""
        if self.entered is not None and not self.entered.done():
            return self.entered
        return next((task for task in reversed(list(self._requests)) if not task.done()), None)

    @property
    def cancelled(self) -> bool:
        """Whether the task that runs the body, or did until it was cancelled, was cancelled."""
        tasks = list(self._requests)
        if self.entered is not None:
            tasks.append(self.entered)
        for task in reversed(tasks):
            if task.cancelled():
                return True
            if not task.done():
                return self._cancelled_since(task)
        return False

    def enter(self) -> None:
        """The current task enters the block."""
        self.entered = asyncio.current_task()
        self.called()

    def called(self) -> None:
        """The current task, which is none of a generation's, does what a body does."""
        if (task := asyncio.current_task()) is not None:
            self._requests[task] = self._requests.pop(task, task.cancelling())

    def cancel(self) -> None:
        """Cancel the body, because the group has failed; once, and not when it has been left."""
        if self._failed or self._left:
            return
        self._failed = True
        self._cancelled = self.task
        if self._cancelled is not None:
            self._cancelled.cancel()

    def leave(self, error: BaseException | None) -> bool:
        """The block is left, in whatever task.

        Args:
            error: the exception that leaves it.

        Returns:
            whether that comes of `cancel` alone, so that it need not be raised. It may be that of
            another task, which was cancelled, and for which the current one has waited.
        """
        self._left = True
        cancelled, self._cancelled = self._cancelled, None
        here = None if running_loop() is None else asyncio.current_task()
        if cancelled is None or here is None:
            return False
        if here is cancelled:
            here.uncancel()
        return isinstance(error, asyncio.CancelledError) and not self._cancelled_since(here)

    def _cancelled_since(self, task: asyncio.Task[Any]) -> bool:
        before: int = self._requests.get(task, 0)
        return task.cancelling() > before
