"""The interface between a batch loop and Spark: frames of ranges, and runs that can be cancelled.

It is a protocol so that the loop can be tested without Spark; ``session`` implements it for a
real Spark session, and imports what only Spark programs have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeVar, final

import attrs

from kgroup.spark.offset_ranges import OffsetRange
from kgroup.spark.size_estimates import ReadCounts
from kgroup.types import TopicPartition

T = TypeVar("T")


@final
@attrs.frozen
class Frame:
    """The frame of one batch.

    Attributes:
        df: the DataFrame.
        read_counts: returns how much its tasks have read so far of each partition; None if the
            reader does not count.
        discard_counts: frees these counts.
    """

    df: Any
    read_counts: Callable[[], Mapping[TopicPartition, ReadCounts] | None]
    discard_counts: Callable[[], None]


class BatchEngine(Protocol):
    """Reads ranges as frames, and runs what the program does with them."""

    @property
    def counts_reads(self) -> bool:
        """Whether its frames count what was read."""
        ...

    async def frame(self, ranges: Collection[OffsetRange]) -> Frame:
        """Make a frame of these ranges; they are read when an action runs."""
        ...

    async def run(self, group: str, description: str, fn: Callable[..., T], *args: Any) -> T:
        """Call a function in a thread; the jobs that it starts belong to the group.

        Cancellation: the jobs are cancelled, no new one starts, and the call returns when the
        function and all its tasks have stopped.
        """
        ...

    async def aclose(self) -> None:
        """End the idle threads."""
        ...
