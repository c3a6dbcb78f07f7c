"""How long requests share one event loop: in time slices, and one long request at a time.

Kafka serves requests on several threads, and a long request holds up one of them. Here there is one
event loop, and a handler that does not yield holds up every client. So handlers count their steps
(a partition, a topic, a member) and yield after some of them.

The first steps of a request are free, and most requests need no more. Beyond them a request is
long, and must hold the one lock for long requests while it works. So between two slices of a long
request the loop serves every short request, and one slice of one other long request, however many
there are: trio's lock is fair.

INVARIANT: no request waits for another one while it holds the lock; ``Work.release`` gives it back.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final, Generic, TypeVar, final

import trio

from kgroup.broker.request_error import RequestError
from kgroup.error_codes import ErrorCode

SLICE: Final = 500
"""Steps of a long request between two checkpoints; a step takes some 10 microseconds."""
FREE: Final = 100
"""Steps of a request before it counts as long."""

BYTES_OF_AN_ITEM: Final = 1024
"""Bytes of a client's own data in a response that count as one item."""

Item = TypeVar("Item")


@final
class TimeSlices:
    """The lock for long requests of one cluster.

    Attributes:
        longest: the most steps from one checkpoint to the next so far.
    """

    def __init__(self) -> None:
        self.lock: Final = trio.Lock()
        self.longest = 0

    def work(self, max_items: int) -> Work:
        """The work of one request, whose response may have so many items."""
        return Work(self, max_items)


@final
class Work:
    """The steps of one request. Used by the one task that serves it.

    Attributes:
        items: how many items of its response have been counted.
    """

    def __init__(self, time_slices: TimeSlices, max_items: int) -> None:
        self._time_slices = time_slices
        self._max_items = max_items
        self._since = 0
        self._long = False
        self.items = 0

    async def spend(self, steps: int = 1) -> None:
        """Count steps that were done, and yield to other requests if they are many.

        Cancellation: the lock is released.
        """
        self._since += steps
        if self._since >= (SLICE if self._long else FREE):
            await self.yield_to_others()

    async def include(self, items: int) -> None:
        """Count items of the response; each is a step, too.

        Raises:
            RequestError: POLICY_VIOLATION: the response would have too many.

        Cancellation: the lock is released.
        """
        self.items += items
        if self.items > self._max_items:
            raise RequestError(
                ErrorCode.POLICY_VIOLATION,
                f"the response has more than {self._max_items} items (kgroup.answer.max.items)",
            )
        await self.spend(items)

    async def include_bytes(self, size: int) -> None:
        """Count bytes of a client's own data in a response, as items of ``BYTES_OF_AN_ITEM``.

        Raises:
            RequestError: as ``include``.

        Cancellation: the lock is released.
        """
        await self.include(size // BYTES_OF_AN_ITEM)

    def each(self, items: Iterable[Item]) -> AsyncIterator[Item]:
        """Iterate over items; each counts as a step."""
        return _Each(self, iter(items))

    async def acquire(self) -> None:
        """Take the lock before long work that cannot yield.

        If the lock is free, this does not wait.

        Cancellation: the lock is released.
        """
        if self._long:
            return
        try:
            self._time_slices.lock.acquire_nowait()
        except trio.WouldBlock:
            await self._time_slices.lock.acquire()
        self._long = True

    async def yield_to_others(self) -> None:
        """Let other requests run; from now on this request is a long one.

        Cancellation: the lock is released.
        """
        time_slices = self._time_slices
        time_slices.longest = max(time_slices.longest, self._since)
        self._since = 0
        if self._long:
            self.release()
            await trio.lowlevel.checkpoint()
        await time_slices.lock.acquire()
        self._long = True

    def release(self) -> None:
        """Release the lock, before the request waits for something and when it is done."""
        self._time_slices.longest = max(self._time_slices.longest, self._since)
        self._since = 0
        if self._long:
            self._long = False
            self._time_slices.lock.release()


@final
class _Each(Generic[Item]):
    """An asynchronous iterator over items that are there already."""

    __slots__ = ("_items", "_work")

    def __init__(self, work: Work, items: Iterator[Item]) -> None:
        self._work = work
        self._items = items

    def __aiter__(self) -> _Each[Item]:
        return self

    async def __anext__(self) -> Item:
        for item in self._items:
            await self._work.spend()
            return item
        raise StopAsyncIteration
