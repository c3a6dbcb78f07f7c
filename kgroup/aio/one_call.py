"""Calls of which there is one at a time, such as those of `next()`: the next waits for the last.

Theory of operation. A call of asyncio ends twice: first it has a result in the background thread,
then its task continues with that, or takes it back because it was cancelled. In between, the
call has ended for the background thread only. A program that cancels a task and does not await it
may call again in that moment. If its new call began at once, it would get what comes after the
result that is about to be taken back: batches out of order, or no generation.

INVARIANT: when a call begins, the result of the last one has reached its task, or was taken back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Generic, TypeVar, final

import attrs

from kgroup.aio.bridge import Bridge
from kgroup.errors import UsageError

T = TypeVar("T")


@final
@attrs.define(eq=False)
class _Outstanding(Generic[T]):
    """A call whose task has not continued yet."""

    task: asyncio.Task[Any]
    requests: int
    """How often the task had been cancelled when the call began."""
    results: list[T] = attrs.field(factory=list)
    taken_back: bool = False
    learnt: bool = False
    """Whether the task has learnt that it was cancelled."""
    finished: asyncio.Event = attrs.field(factory=asyncio.Event)

    @property
    def cancelled(self) -> bool:
        """Whether its task was cancelled since.

        The count alone does not tell if an earlier cancellation was delivered only now.
        """
        return self.learnt or self.task.cancelling() > self.requests


@final
class OneCall(Generic[T]):
    """Calls into the background thread, one at a time.

    Args:
        bridge: the way to that thread.
        take_back: called in asyncio's loop with a result that no task gets.
        refuse: makes the error of a call while another task waits that was not cancelled.
    """

    def __init__(
        self,
        bridge: Bridge,
        take_back: Callable[[T], object],
        refuse: Callable[[], UsageError],
    ) -> None:
        self._bridge = bridge
        self._take_back = take_back
        self._refuse = refuse
        self._outstanding: _Outstanding[T] | None = None

    @property
    def outstanding(self) -> bool:
        """Whether a task is in a call."""
        return self._outstanding is not None

    async def __call__(self, fn: Callable[[], Awaitable[T]]) -> T | None:
        """Call an async function in the background thread, after the call before.

        Returns:
            its result; None if `take_back_now` has taken that back.

        Raises:
            LoopEndedError: the background thread ended before the call did.
            UsageError: another task waits, or another event loop runs here.
            Exception: the function's own exception.

        Cancellation: a result that has come nevertheless is taken back.
        """
        await self.wait_for_cancelled()
        task = asyncio.current_task()
        assert task is not None  # only tasks run async functions
        mine = self._outstanding = _Outstanding[T](task, task.cancelling())

        async def noted() -> T:
            value = await fn()
            mine.results.append(value)
            return value

        def take_back(value: T) -> None:
            if not mine.taken_back:
                self._take_back(value)

        def learn() -> None:
            mine.learnt = True

        try:
            value = await self._bridge.call(noted, take_back, learn)
            return None if mine.taken_back else value
        finally:
            self._outstanding = None
            mine.finished.set()

    async def wait_for_cancelled(self) -> None:
        """Wait for calls that were cancelled; no checkpoint if there is none.

        Raises:
            UsageError: another task waits that was not cancelled, or another event loop runs here.
        """
        self._bridge.check_loop()
        while (earlier := self._outstanding) is not None:
            if not earlier.cancelled:
                raise self._refuse()
            await earlier.finished.wait()

    def take_back_now(self) -> None:
        """Take back a result that is there and that no task has got yet."""
        mine = self._outstanding
        if mine is not None and mine.results and not mine.taken_back:
            mine.taken_back = True
            self._take_back(mine.results[0])
