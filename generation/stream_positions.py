"""Which partitions of a record stream can be read, and which wait until a position is found.

Where a partition starts is known before the hand-over as a rule. What is not, is searched for when
the stream is first read; so is a position at an offset that the log does not have, where
``auto_offset_reset`` decides. The other partitions are read meanwhile. `PositionSearches` makes the
searches, and sets the positions.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, final

import trio

from kgroup.errors import OffsetOutOfRangeError
from kgroup.generation.streams import GenerationParts
from kgroup.types import TopicPartition


@final
class StreamPositions:
    """The partitions of one record stream, and the searches for their positions.

    Args:
        parts: the generation's.
        partitions: those of the stream.
    """

    def __init__(self, parts: GenerationParts, partitions: frozenset[TopicPartition]) -> None:
        self._source: Final = parts.member.source
        self._epoch: Final = parts.lifecycle.membership.epoch
        self._positions: Final = parts.positions
        self._starts: Final = parts.starts
        self._searches: Final = parts.searches
        self._partitions: Final = partitions
        self._unopened = set(partitions)
        self._searched: set[TopicPartition] = set()
        self._failures: list[Exception] = []
        self._receiving: trio.CancelScope | None = None

    @property
    def settled(self) -> bool:
        """Whether every partition can be read; any thread may ask."""
        return not (self._unopened or self._searched or self._failures)

    def open(self) -> None:
        """Open the partitions of which the positions are known, and search for those of others.

        Raises:
            OffsetOutOfRangeError, NoOffsetError: as `StartFinder.check_rule`.
            BrokerError: a leader has refused a search, and would refuse it again. The next call
                searches once more.
        """
        if self._failures:
            raise self._failures.pop(0)
        if self._unopened <= self._searched:
            return
        unlocated = self._positions.unlocated & self._unopened
        self._starts.check_rule(unlocated)
        if located := self._unopened - unlocated:
            self._unopened -= located
            self._source.open(self._epoch, located)
        for name in sorted(unlocated - self._searched):
            self._search(name, None)

    def reset(self, error: OffsetOutOfRangeError) -> None:
        """Search for another position than one that does not exist.

        Raises:
            OffsetOutOfRangeError: the very one, where ``auto_offset_reset`` is ``error``.
        """
        self._starts.check_rule([error.partition], error)
        self._search(error.partition, error)

    def readable(self) -> frozenset[TopicPartition]:
        """The partitions of which the positions are known."""
        return self._partitions.difference(self._searched) if self._searched else self._partitions

    @contextmanager
    def until_found(self) -> Iterator[None]:
        """A block that is cancelled when a search is over; one at a time."""
        self._receiving = scope = trio.CancelScope()
        with scope:
            try:
                yield
            finally:
                self._receiving = None

    def arrived(self, partition: TopicPartition) -> None:
        """A partition has given a record; any thread may call it."""
        self._searches.arrived(partition)

    def close(self) -> None:
        """End the searches, because nothing is read any more."""
        self._searches.withdraw(self._searched)

    def _search(self, partition: TopicPartition, error: OffsetOutOfRangeError | None) -> None:
        self._searched.add(partition)
        self._searches.begin(partition, error, partial(self._over, partition))

    def _over(self, partition: TopicPartition, error: Exception | None) -> None:
        self._searched.discard(partition)
        if error is not None:
            self._failures.append(error)
        elif partition in self._unopened:
            self._unopened.discard(partition)
            self._source.open(self._epoch, {partition})
        if self._receiving is not None:
            self._receiving.cancel()
