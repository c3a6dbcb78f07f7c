"""Blocks of a task that can be cancelled from outside, as ``asyncio.timeout`` cancels its own."""

from __future__ import annotations

import asyncio
from typing import Self, final


@final
class CancellableBlock:
    """A block of the task that enters it; `cancel` ends the block, and not the task.

    A cancellation of the task by others that comes at the same time is not lost.
    """

    def __init__(self) -> None:
        self._task: asyncio.Task[object] | None = None
        self._before = 0
        self._requested = False

    def __enter__(self) -> Self:
        self._task = asyncio.current_task()
        assert self._task is not None  # only tasks run async functions
        self._before = self._task.cancelling()
        return self

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> bool:
        """Whether the block ends by `cancel` alone, so that there is nothing to raise."""
        task, self._task = self._task, None
        if task is None or not self._requested:
            return False
        others = task.uncancel() > self._before
        return kind is not None and issubclass(kind, asyncio.CancelledError) and not others

    def cancel(self) -> None:
        """Cancel the block, if the task is in it. Never called by the task itself."""
        if self._task is not None and not self._requested:
            self._requested = True
            self._task.cancel()
