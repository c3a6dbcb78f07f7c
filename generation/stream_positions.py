"""Which partitions of a stream have a position, and which wait until one is found.

Where a partition starts is known before the hand-over as a rule. What is not, is searched for when
the stream is first read; so is a position at an offset that the log does not have, where
``auto_offset_reset`` decides. A record stream reads its other partitions meanwhile.
`PositionSearches` makes the searches, for all streams together, and sets the positions.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, TypeAlias, final

import trio

from kgroup.errors import OffsetOutOfRangeError, StaleGenerationError
from kgroup.generation.position_searches import PositionSearch
from kgroup.generation.streams import GenerationParts
from kgroup.notifier import Notifier
from kgroup.types import TopicPartition

OnFound: TypeAlias = Callable[[TopicPartition, int], None]
"""Is called with a position that a search has found."""


@final
class StreamPositions:
    """The partitions of one stream, and the searches for their positions.

    Args:
        parts: the generation's.
        partitions: those of the stream.
        fetched: whether the record source fetches them.
    """

    def __init__(
        self, parts: GenerationParts, partitions: frozenset[TopicPartition], *, fetched: bool
    ) -> None:
        self._source: Final = parts.member.source if fetched else None
        self._lifecycle: Final = parts.lifecycle
        self._positions: Final = parts.positions
        self._starts: Final = parts.starts
        self._searches: Final = parts.searches
        self._partitions: Final = partitions
        self._unopened = set(partitions)
        self._searching: dict[TopicPartition, PositionSearch] = {}
        self._failures: dict[TopicPartition, tuple[Exception, int]] = {}
        """Of each partition what its last search raised, and how often the program had sought."""
        self._closed = False
        self._receiving = trio.CancelScope()
        self._search_over = Notifier()

    @property
    def settled(self) -> bool:
        """Whether there is nothing to search for, to open or to raise; any thread may ask."""
        return not (self._unopened or self._searching or self._failures)

    async def open(self) -> None:
        """Open the partitions of which the positions are known, and search for those of others.

        It is a checkpoint if it does anything.

        Raises:
            OffsetOutOfRangeError, NoOffsetError: as `StartFinder.check_rule`.
            BrokerError: a leader has refused a search, and would refuse it again. The next call
                searches once more.
        """
        if not self._failures and self._unopened <= self._searching.keys():
            return
        await trio.lowlevel.checkpoint()
        if self._closed:
            return
        self.raise_failure()
        self._searches.begin_at_commits(self._unopened - self._searching.keys())
        unlocated = self._positions.unlocated & self._unopened
        self._starts.check_rule(unlocated)
        located = self._unopened - unlocated
        self._unopened -= located
        if located and self._source is not None:
            self._source.open(self._lifecycle.membership.epoch, located)
        for name in sorted(unlocated - self._searching.keys()):
            self._search(name, None)

    def reset(self, error: OffsetOutOfRangeError, on_found: OnFound | None = None) -> None:
        """Search for another position than one that does not exist, unless there is a search.

        Args:
            error: names the partition and the position.
            on_found: is called with the position that is found.

        Raises:
            OffsetOutOfRangeError: the very one, where ``auto_offset_reset`` is ``error``.
        """
        self._starts.check_rule([error.partition], error)
        if error.partition not in self._searching and not self._closed:
            self._search(error.partition, error, on_found)

    def readable(self) -> frozenset[TopicPartition]:
        """The partitions that wait for no search."""
        return self._partitions - self._searching.keys() if self._searching else self._partitions

    def until_changed(self) -> trio.CancelScope:
        """A scope that is cancelled when a search is over, or the stream closed; one at a time."""
        self._receiving = trio.CancelScope()
        return self._receiving

    async def wait_until_found(self) -> None:
        """Wait until all searches are over, with or without success.

        Raises:
            StaleGenerationError: the generation's end began before the leaders had answered; what
                was not found keeps the position it had.

        Cancellation: the searches go on.
        """
        if await self._lifecycle.until_ending(self._wait) is None:
            why = self._lifecycle.recorded_end
            raise StaleGenerationError(
                f"{self._lifecycle.membership}: the generation ended ({why}) before the"
                " partitions' leaders answered with a start offset. Continue with the next"
                " generation",
                why,
            )

    def raise_failure(self) -> None:
        """Raise what a search has raised, unless the program has sought there since; forget all.

        Raises:
            BrokerError: a leader has refused the request, and would refuse it again.
        """
        failures, self._failures = self._failures, {}
        for name, (error, seeks) in failures.items():
            if self._positions.seeks[name] == seeks:
                raise error

    def arrived(self, partition: TopicPartition) -> None:
        """A partition has given a record; any thread may call it."""
        self._searches.arrived(partition)

    def close(self) -> None:
        """End the searches, because nothing is read any more; later calls begin none."""
        self._closed = True
        self._searches.withdraw(self._searching.values())
        self._searching.clear()
        self._wake()

    async def _wait(self) -> None:
        await trio.lowlevel.checkpoint()
        while self._searching:
            await self._search_over.wait()

    def _search(
        self,
        partition: TopicPartition,
        error: OffsetOutOfRangeError | None,
        on_found: OnFound | None = None,
    ) -> None:
        self._searching[partition] = self._searches.begin(
            partition, error, partial(self._over, partition, on_found)
        )

    def _over(
        self, partition: TopicPartition, on_found: OnFound | None, error: Exception | None
    ) -> None:
        self._searching.pop(partition, None)
        if error is not None:
            self._failures[partition] = error, self._positions.seeks[partition]
        else:
            if self._source is None:  # no record will arrive
                self._searches.arrived(partition)
            if on_found is not None:
                on_found(partition, self._positions.lower_bound(partition))
        self._wake()

    def _wake(self) -> None:
        self._search_over.notify()
        self._receiving.cancel()
