"""A fake engine, for tests of the batch loop in one event loop and in virtual time."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, TypeVar, final

import trio

from kgroup.generation.generation import Generation
from kgroup.spark.batch_limits import BatchPace, Limits
from kgroup.spark.batch_loop import Batches
from kgroup.spark.engine import Frame
from kgroup.spark.offset_ranges import OffsetRange
from kgroup.spark.size_estimates import ReadCounts

T = TypeVar("T")


@final
class FakeEngine:
    """An engine whose frames are their ranges; the duration of a run and of its stop are arguments.

    Attributes:
        lasts: seconds that a run takes.
        stops_in: seconds from its cancellation until it has stopped.
        groups: the job groups of all runs.
        stopped: when cancelled runs had stopped.
        forgotten: the frames whose counts were discarded.
        closed: how often it was closed.
    """

    def __init__(self, *, lasts: float = 1.0, stops_in: float = 0.0, row_bytes: int = 10) -> None:
        self.lasts = lasts
        self.stops_in = stops_in
        self.row_bytes = row_bytes
        self.groups: list[str] = []
        self.descriptions: list[str] = []
        self.stopped: list[float] = []
        self.forgotten: list[tuple[OffsetRange, ...]] = []
        self.running = 0
        self.closed = 0

    @property
    def counts_reads(self) -> bool:
        """True: a frame's reads are counted."""
        return True

    async def frame(self, ranges: Collection[OffsetRange]) -> Frame:
        """The ranges themselves; every offset is a record."""
        await trio.lowlevel.checkpoint()
        given = tuple(ranges)
        return Frame(
            given,
            lambda: {
                part.topic_partition: ReadCounts(part.offsets, part.offsets * self.row_bytes)
                for part in given
            },
            lambda: self.forgotten.append(given),
        )

    async def run(self, group: str, description: str, fn: Callable[..., T], *args: Any) -> T:
        """Call it at the end of the time that a run lasts."""
        self.groups.append(group)
        self.descriptions.append(description)
        self.running += 1
        try:
            await trio.sleep(self.lasts)
        except trio.Cancelled:
            with trio.CancelScope(shield=True, deadline=trio.current_time() + 1000):
                await trio.sleep(self.stops_in)
            self.stopped.append(trio.current_time())
            raise
        finally:
            self.running -= 1
        return fn(*args)

    async def aclose(self) -> None:
        """Count the call."""
        self.closed += 1
        await trio.lowlevel.checkpoint()


def loop_of(
    generation: Generation, engine: FakeEngine, limits: Limits | None = None, **pace: Any
) -> Batches:
    """A batch loop on a fake Spark."""
    return Batches(generation, engine, limits or Limits(), BatchPace(**pace))
