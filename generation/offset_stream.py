"""The offsets of one generation's partitions: where they begin, and how far they can be read.

For programs that read records by other means than `records()`, as Spark's executors do. It has a
record stream's place: the partitions are its own while it is open, and count as read.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, final

import trio

from kgroup.client.cluster import EARLIEST, LATEST
from kgroup.config import GroupConfig
from kgroup.errors import OffsetOutOfRangeError
from kgroup.generation.lifecycle import Lifecycle, State
from kgroup.generation.member_context import MemberContext
from kgroup.generation.positions import Positions
from kgroup.generation.start_offsets import StartOffsets
from kgroup.types import IsolationLevel, TopicPartition


@final
class OffsetStream:
    """Offsets of some partitions of one generation, asked for when they are wanted.

    Attributes:
        partitions: whose.
    """

    def __init__(
        self,
        member: MemberContext,
        lifecycle: Lifecycle,
        positions: Positions,
        starts: StartOffsets,
        partitions: frozenset[TopicPartition],
        open_streams: set[Any],
    ) -> None:
        self._member = member
        self._lifecycle = lifecycle
        self._positions = positions
        self._starts = starts
        self._open_streams = open_streams
        self._closed = False
        self._held_since: float | None = None
        self.partitions = partitions

    @property
    def config(self) -> GroupConfig:
        """The member's settings."""
        return self._member.config

    @property
    def running(self) -> bool:
        """Whether new work may begin: the generation runs and the stream is open."""
        return self._lifecycle.state is State.RUNNING and not self._closed

    @property
    def held_for(self) -> float:
        """Seconds for which the program has worked on what it took; see `hold`."""
        return 0.0 if self._held_since is None else self._member.clock.now() - self._held_since

    def hold(self, *, working: bool) -> None:
        """Say that the program works on offsets that it took, or that it is done with them.

        ``max_processing_time`` is measured by that.
        """
        self._held_since = self._member.clock.now() if working else None

    async def begin(self) -> Mapping[TopicPartition, int]:
        """Where each partition starts: the committed offset, or what ``auto_offset_reset`` says.

        Raises:
            NoOffsetError: there is no position and ``auto_offset_reset`` is ``error``.
            BrokerError: a leader refuses for good.
            StaleGenerationError: the generation's end began before a leader had answered.

        Cancellation: nothing changes.
        """
        await self._starts.locate(self.partitions, None)
        return {name: self._positions[name] for name in sorted(self.partitions)}

    async def reset(self, partition: TopicPartition, offset: int) -> int:
        """Where to go on after an offset that the log does not have, by ``auto_offset_reset``.

        Raises:
            OffsetOutOfRangeError: ``auto_offset_reset`` is ``error``.
            BrokerError: a leader refuses for good.
            StaleGenerationError: the generation's end began before the leader had answered.
        """
        error = OffsetOutOfRangeError(
            f"{partition}: offset {offset} is not in the log, and auto_offset_reset is 'error'",
            partition,
            offset,
        )
        await self._starts.locate([partition], error)
        return self._positions[partition]

    async def first(self) -> Mapping[TopicPartition, int]:
        """The first offset of each partition's log.

        A partition whose leader does not answer for now is left out.

        Raises:
            BrokerError: a leader refuses for good.
        """
        return await self._starts.list_offsets(self.partitions, EARLIEST)

    async def end(
        self, isolation_level: IsolationLevel | None = None
    ) -> Mapping[TopicPartition, int]:
        """The offset behind the last record of each partition that can be read now.

        Under ``read_committed`` that is the last stable offset. A partition whose leader does not
        answer for now is left out.

        Args:
            isolation_level: the group's by default.

        Raises:
            BrokerError: a leader refuses for good.
        """
        return await self._starts.list_offsets(self.partitions, LATEST, isolation_level)

    async def confirmed(self) -> bool:
        """Wait until the lease is valid; False if nothing new may begin any more."""
        await self._lifecycle.wait_to_read()
        await trio.lowlevel.checkpoint()
        return self.running and self._lifecycle.lease.left > 0

    def serve(self, fn: Callable[[], Awaitable[None]]) -> None:
        """Start a task that is cancelled when the generation is, unless its end has begun."""
        self._lifecycle.start_service(fn)

    def close(self) -> None:
        """Give the partitions up, so that another stream of this generation can have them."""
        if not self._closed:
            self._closed = True
            self._open_streams.discard(self)

    def __repr__(self) -> str:
        names = ", ".join(map(str, sorted(self.partitions)))
        return f"<OffsetStream of {names}{', closed' if self._closed else ''}>"
