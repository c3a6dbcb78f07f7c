"""What a batch loop needs of Spark: frames over ranges, runs that can be cancelled, what was read.

The protocol is there so that the loop can be tested, and simulated, without Spark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Protocol, TypeVar, final

import attrs

from kgroup.spark.offset_ranges import OffsetRange
from kgroup.spark.size_estimates import Seen
from kgroup.types import TopicPartition

T = TypeVar("T")


@final
@attrs.frozen
class Frame:
    """Ranges as a frame.

    Attributes:
        df: the DataFrame.
        seen: what its tasks have read so far, of each partition; None where nobody counts.
        forget: nobody asks for that any more.
    """

    df: Any
    seen: Callable[[], Mapping[TopicPartition, Seen] | None]
    forget: Callable[[], None]


class Engine(Protocol):
    """Reads ranges as frames, and runs what the program does with them."""

    @property
    def counts(self) -> bool:
        """Whether its frames tell what was read."""
        ...

    async def frame(self, ranges: Collection[OffsetRange]) -> Frame:
        """A frame that reads these ranges when an action needs it; nothing is read yet."""
        ...

    async def run(self, group: str, description: str, fn: Callable[..., T], *args: Any) -> T:
        """Call a function in a thread; its jobs are the group's.

        Cancellation: the jobs are cancelled, none starts any more, and it is waited until all
        of it has stopped.
        """
        ...

    async def aclose(self) -> None:
        """End the thread."""
        ...
