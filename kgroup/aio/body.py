"""The task that runs the body of a group's block, which the group cancels when it fails.

Theory of operation. As a rule the task that enters the block runs its body too, and leaves it. Not
always: ``asyncio.wait_for`` of Python 3.11 runs what it waits for in a task of its own, so that
``await asyncio.wait_for(stack.enter_async_context(group), 5)`` enters the block in a task that ends
at once. asyncio does not say which task waited for that one. Then the calls that a body makes show
which task it is. The surest is `next`: of the running tasks that have got a generation from it, the
one that got the latest is the body. If each of these has ended, because the program calls `next` in
short tasks too, the body is the task that last opened a scope, or else the one that last started a
task of a generation. These count for less, because a helper may make such calls, as a web handler
that starts tasks does. Other calls do not count: a task that only watches the group makes them, and
it must not be cancelled in place of the body.

If no such task is known, none is cancelled. The body learns of the failure at its next call,
because a group that has failed has closed, and when it leaves the block.

INVARIANT: while the task that entered the block runs, no other one is cancelled.
"""

from __future__ import annotations

import asyncio
from enum import IntEnum
from itertools import count
from typing import Any, final

from kgroup.aio.bridge import running_loop


class BodyCall(IntEnum):
    """A call that a body makes; the surest sign of one comes first."""

    NEXT = 0
    SCOPE = 1
    START_SOON = 2


@final
class Body:
    """The body of one group's block. Its methods are called in asyncio's loop.

    Attributes:
        entered: the task that has entered the block; None outside of a task.
    """

    def __init__(self) -> None:
        self.entered: asyncio.Task[Any] | None = None
        self._ranks: dict[asyncio.Task[Any], tuple[BodyCall, int]] = {}
        """The surest call of each task, and when it last made that one: the least is the body's.

        Tasks that had ended before the last call are not kept."""
        self._times = count(0, -1)
        self._before: dict[asyncio.Task[Any], int] = {}
        """How often each task had been cancelled when it was seen first.

        Not 0 after an exception that a TaskGroup of Python 3.11 has raised, and the task caught."""
        self._failed = False
        self._left = False
        self._cancelled: asyncio.Task[Any] | None = None

    @property
    def task(self) -> asyncio.Task[Any] | None:
        """The task that runs the body; None if it is not known."""
        if self.entered is not None and not self.entered.done():
            return self.entered
        running = [task for task in self._ranks if not task.done()]
        return min(running, key=self._ranks.__getitem__, default=None)

    @property
    def cancelled(self) -> bool:
        """Whether the task that runs the body was cancelled.

        If all tasks that may be it have ended: whether one of them ended by a cancellation.
        """
        if (running := self.task) is not None:
            return self._cancelled_since(running)
        return any(task.cancelled() for task in self._before)

    def enter(self) -> None:
        """The current task enters the block."""
        self.entered = asyncio.current_task()
        if self.entered is not None:
            self._before[self.entered] = self.entered.cancelling()

    def called(self, call: BodyCall) -> None:
        """The current task, which is none of a generation's, makes a call as a body does."""
        if (task := asyncio.current_task()) is None:
            return
        for ended in [known for known in self._before if known.done()]:
            del self._before[ended]
            self._ranks.pop(ended, None)
        self._before.setdefault(task, task.cancelling())
        rank = (call, next(self._times))
        self._ranks[task] = min(rank, self._ranks.get(task, rank))

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
            True if `error` is only the consequence of `cancel`, so that it need not be raised. The
            cancelled task may be another one, for which the current task waited.
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
        return task.cancelling() > self._before.get(task, 0)
