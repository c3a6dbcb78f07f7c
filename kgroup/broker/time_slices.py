"""How long requests share one event loop: a step at a time, and only one of them at once.

Kafka serves requests on several threads, and a long one holds up one of them. Here there is one
loop, and whatever a handler does without a checkpoint holds up every client. So handlers count
steps as they go (a partition, a topic, a member), and give the loop back after some.

A request has a few steps for nothing, and most never take more. Past them it takes its turn in the
lane, of which there is one: between two slices of a long request the loop serves every short one
and one slice of one other long one, however many there are.

INVARIANT: nobody waits for another request while in the lane; ``Work.rest`` leaves it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator
from typing import Final, Generic, TypeVar, final

import trio
from kio.schema.errors import ErrorCode

from kgroup.broker.request_error import RequestError

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
        self.lane: Final = trio.Lock()
        self.longest = 0

    def work(self, most_items: int) -> Work:
        """The work of one request, whose answer may have so many items."""
        return Work(self, most_items)


@final
class Work:
    """The steps of one request. Used by the one task that serves it.

    Attributes:
        items: how many items its answer has, as far as they are counted.
    """

    def __init__(self, pace: TimeSlices, most_items: int) -> None:
        self._pace = pace
        self._most_items = most_items
        self._since = 0
        self._long = False
        self.items = 0

    async def spend(self, steps: int = 1) -> None:
        """Count steps that were done, and give the loop back where they are many.

        Cancellation: the lane is left.
        """
        self._since += steps
        if self._since >= (SLICE if self._long else FREE):
            await self.give_way()

    async def include(self, items: int) -> None:
        """Count items of the answer, each of which is a step.

        Raises:
            RequestError: POLICY_VIOLATION: the answer would have too many.

        Cancellation: the lane is left.
        """
        self.items += items
        if self.items > self._most_items:
            raise RequestError(
                ErrorCode.policy_violation,
                f"the answer has more than {self._most_items} items (kgroup.answer.max.items)",
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

    async def take_turn(self) -> None:
        """Enter the lane: what follows is long, and cannot give way.

        Nothing waits where the lane is free.

        Cancellation: the lane is left.
        """
        if self._long:
            return
        try:
            self._pace.lane.acquire_nowait()
        except trio.WouldBlock:
            await self._pace.lane.acquire()
        self._long = True

    async def give_way(self) -> None:
        """Let others go on; from now on this is a long request.

        Cancellation: the lane is left.
        """
        pace = self._pace
        pace.longest = max(pace.longest, self._since)
        self._since = 0
        if self._long:
            self.rest()
            await trio.lowlevel.checkpoint()
        await pace.lane.acquire()
        self._long = True

    def rest(self) -> None:
        """Leave the lane: what follows is waiting, or somebody else's work."""
        self._pace.longest = max(self._pace.longest, self._since)
        self._since = 0
        if self._long:
            self._long = False
            self._pace.lane.release()


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
