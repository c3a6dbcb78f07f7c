"""Finds the positions of a record stream's partitions: at its beginning, and after each reset.

Where a partition starts is known before the hand-over as a rule. What is not, is found when the
stream is first read. At an offset that the log does not have, ``auto_offset_reset`` decides where
reading goes on.

A search is a task of the generation. It goes on if the program gives up the call that began it, and
the next call waits for it: a program whose calls are shorter than the brokers take to answer would
otherwise never get a record. A stream has one search at a time.

A partition is reset at once, and after a rising wait if that was of no use; the others are read
meanwhile. What decides is `StartFinder`, and it sets the position.
"""

from __future__ import annotations

from typing import Final, final

import attrs
import trio

from kgroup.client.backoff import Backoff
from kgroup.errors import OffsetOutOfRangeError
from kgroup.generation.streams import GenerationParts
from kgroup.types import TopicPartition


@final
@attrs.frozen
class _WaitingForReset:
    """A partition that is not read until its position is reset again.

    Attributes:
        until: when it is reset, by trio's clock.
        error: why the position has to be reset.
        moves: `Positions.moves` when the wait began; a seek raises it.
    """

    until: float
    error: OffsetOutOfRangeError
    moves: int


@final
@attrs.define(eq=False)
class _PositionSearch:
    """A search for the positions with which a stream begins, or for one that the log has.

    Attributes:
        error: why a position has to be reset; None at the beginning of the stream.
        over: set when the search has ended, whatever the cause.
        scope: cancels it.
        found: whether the positions are known now.
        raised: what the search raised instead.
    """

    error: OffsetOutOfRangeError | None
    over: trio.Event = attrs.field(factory=trio.Event)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    found: bool = False
    raised: Exception | None = None


@final
class StreamPositions:
    """Finds and resets the positions of the partitions of one record stream.

    Args:
        parts: the generation's.
        partitions: those of the stream.
    """

    def __init__(self, parts: GenerationParts, partitions: frozenset[TopicPartition]) -> None:
        self._member: Final = parts.member
        self._lifecycle: Final = parts.lifecycle
        self._positions: Final = parts.positions
        self._starts: Final = parts.starts
        self._partitions: Final = partitions
        self._located = False
        self._search: _PositionSearch | None = None
        self._resets: dict[TopicPartition, Backoff] = {}
        """The waits of partitions whose position was reset and that have given no record since."""
        self._waiting: dict[TopicPartition, _WaitingForReset] = {}

    @property
    def must_search(self) -> bool:
        """Whether `search` has to be called before anything is read."""
        return not self._located or self._search is not None

    @property
    def settled(self) -> bool:
        """Whether every partition can be read; any thread may ask."""
        return not self.must_search and not self._waiting

    async def search(self) -> None:
        """Wait for the search that this call begins, or that an earlier call has begun.

        Raises:
            StaleGenerationError: the generation's end began before anything was found.
            OffsetOutOfRangeError, NoOffsetError, BrokerError: as `StartFinder.locate`.

        Cancellation: the search goes on.
        """
        search = self._search or self._begin(None)
        await search.over.wait()
        self._search = None
        if search.raised is not None:
            if search.error is not None:  # each further call tries at once
                self._resets.pop(search.error.partition, None)
            raise search.raised
        if search.found and search.error is None:
            self._located = True
            self._member.source.open(self._lifecycle.membership.epoch, self._partitions)

    def reset(self, error: OffsetOutOfRangeError) -> None:
        """Reset a position that does not exist: at once, and after a wait if it happens again.

        A faulty leader may keep naming an end that its log does not have. Each reset costs a
        Metadata, a ListOffsets and perhaps an OffsetCommit.
        """
        name = error.partition
        if name not in self._resets:
            self._resets[name] = self._member.new_backoff()
            self._begin(error)
        else:
            until = trio.current_time() + self._resets[name].next()
            self._waiting[name] = _WaitingForReset(until, error, self._moves(name))

    def readable(self) -> frozenset[TopicPartition]:
        """The partitions that do not wait to be reset."""
        self._forget_sought()
        return self._partitions.difference(self._waiting) if self._waiting else self._partitions

    @property
    def next_reset(self) -> float:
        """When the first partition that waits is reset, by trio's clock."""
        return min(waiting.until for waiting in self._waiting.values())

    def begin_reset(self) -> None:
        """Begin the reset of a partition whose wait is over, if there is one."""
        self._forget_sought()
        now = trio.current_time()
        for name, waiting in self._waiting.items():
            if waiting.until <= now:
                del self._waiting[name]
                self._begin(waiting.error)
                return

    def arrived(self, partition: TopicPartition) -> None:
        """A partition has given a record: its next reset is immediate."""
        self._resets.pop(partition, None)

    def close(self) -> None:
        """End a search, because nothing is read any more."""
        if self._search is not None:
            self._search.scope.cancel()

    def _forget_sought(self) -> None:
        """A partition that the program sought meanwhile is read from there, and not reset."""
        for name, waiting in list(self._waiting.items()):
            if self._moves(name) != waiting.moves:
                del self._waiting[name]
                self._resets.pop(name, None)

    def _moves(self, partition: TopicPartition) -> int:
        return self._positions.moves([partition])[partition]

    def _begin(self, error: OffsetOutOfRangeError | None) -> _PositionSearch:
        self._search = search = _PositionSearch(error)
        if error is None and self._positions.unlocated.isdisjoint(self._partitions):
            search.found = True
            search.over.set()
        else:
            self._lifecycle.start_service(self._find, search)
        return search

    async def _find(self, search: _PositionSearch) -> None:
        partitions = self._partitions if search.error is None else [search.error.partition]
        try:
            with search.scope:
                await self._starts.locate(partitions, search.error)
                search.found = True
        except Exception as error:  # noqa: BLE001  # the program's next call raises it
            search.raised = error
        finally:
            search.over.set()
