"""How long requests share one event loop: a step at a time, and only one of them at once.

Kafka serves requests on several threads, and a long one holds up one of them. Here there is one
loop, and whatever a handler does without a checkpoint holds up every client. So handlers count
steps as they go (a partition, a topic, a member), and give the loop back after some.

A request has a few steps for nothing, and most never take more. Past them it takes its turn in the
lane, of which there is one: between two slices of a long request the loop serves every short one
and one slice of one other long one, however many there are.

INVARIANT: nobody waits for another request while in the lane; ``Work.release`` leaves it.
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
"""Steps that a request may do before it has to take its turn."""

BYTES_OF_AN_ITEM: Final = 1024
"""What clients have stored of their own and is answered again counts by its bytes."""

Item = TypeVar("Item")


@final
class TimeSlices:
    """The lane of one cluster.

    Attributes:
        longest: the most steps that were done from one checkpoint to the next, so far.
    """

    def __init__(self) -> None:
        self.lock: Final = trio.Lock()
        self.longest = 0

    def work(self, max_items: int) -> Work:
        """The work of one request, whose answer may have so many items."""
        return Work(self, max_items)


@final
class Work:
    """The steps of one request. Used by the one task that serves it.

    Attributes:
        items: how many items its answer has, as far as they are counted.
    """

    def __init__(self, time_slices: TimeSlices, max_items: int) -> None:
        self._time_slices = time_slices
        self._max_items = max_items
        self._since = 0
        self._long = False
        self.items = 0

    async def spend(self, steps: int = 1) -> None:
        """Count steps that were done, and give the loop back where they are many.

        Cancellation: the lane is left.
        """
        self._since += steps
        if self._since >= (SLICE if self._long else FREE):
            await self.yield_to_others()

    async def include(self, items: int) -> None:
        """Count items of the answer, each of which is a step.

        Raises:
            RequestError: POLICY_VIOLATION: the answer would have too many.

        Cancellation: the lane is left.
        """
        self.items += items
        if self.items > self._max_items:
            raise RequestError(
                ErrorCode.POLICY_VIOLATION,
                f"the answer has more than {self._max_items} items (kgroup.answer.max.items)",
            )
        await self.spend(items)

    async def include_bytes(self, size: int) -> None:
        """Count a client's own bytes in an answer: so many are worth an item.

        Raises:
            RequestError: as ``include``.

        Cancellation: the lane is left.
        """
        await self.include(size // BYTES_OF_AN_ITEM)

    def each(self, items: Iterable[Item]) -> AsyncIterator[Item]:
        """The items, each a step when the next one is asked for."""
        return _Each(self, iter(items))

    async def acquire(self) -> None:
        """Enter the lane: what follows is long, and cannot give way.

        Nothing waits where the lane is free.

        Cancellation: the lane is left.
        """
        if self._long:
            return
        try:
            self._time_slices.lock.acquire_nowait()
        except trio.WouldBlock:
            await self._time_slices.lock.acquire()
        self._long = True

    async def yield_to_others(self) -> None:
        """Let others go on; from now on this is a long request.

        Cancellation: the lane is left.
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
        """Leave the lane: what follows is waiting, or somebody else's work."""
        self._time_slices.longest = max(self._time_slices.longest, self._since)
        self._since = 0
        if self._long:
            self._long = False
            self._time_slices.lock.release()


@final
class _Each(Generic[Item]):
    """An asynchronous iterator over what is there already."""

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
