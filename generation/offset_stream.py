"""``OffsetStream``: from which and up to which offsets a program reads that has readers of its own.

Spark's executors are such readers. kgroup hands out no record then, and knows how far they have
read only by the commits.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Hashable, Mapping
from typing import Any, final
from uuid import UUID

import trio

from kgroup.client.cluster import EARLIEST, LATEST
from kgroup.config import GroupConfig
from kgroup.errors import OffsetOutOfRangeError
from kgroup.generation.stream_positions import StreamPositions
from kgroup.generation.streams import GenerationParts, PartitionStream
from kgroup.types import IsolationLevel, TopicPartition


@final
class OffsetStream(PartitionStream):
    """The offsets from which, and up to which, partitions of one generation can be read."""

    def __init__(
        self,
        parts: GenerationParts,
        partitions: frozenset[TopicPartition],
        open_streams: set[Any],
    ) -> None:
        super().__init__(parts, partitions, open_streams)
        self._requests = parts.starts.requests
        self._stream_positions = StreamPositions(parts, partitions, fetched=False)
        self._pauses = parts.pauses
        self._seeks: dict[TopicPartition, int] = {}
        """How often the program had sought in each partition when that was last asked."""

    @property
    def config(self) -> GroupConfig:
        """The member's settings."""
        return self._member.config

    @property
    def running(self) -> bool:
        """Whether new work may begin: the generation runs and the stream is open."""
        return self._is_running()

    def hold(self, work: Hashable = None, *, working: bool) -> None:
        """Report that the program processes the offsets that it took, or has processed them.

        ``max_processing_time`` counts the time in between.

        Args:
            work: identifies these offsets, if the program processes others at the same time.
            working: whether it processes them now.
        """
        if working:
            self._hold(work)
        else:
            self._release(work)

    async def begin(self) -> Mapping[TopicPartition, int]:
        """Where each partition starts, as `StartFinder` found it.

        Raises:
            NoOffsetError: no offset is committed, and ``auto_offset_reset`` is ``error``.
            BrokerError: a leader refused the request, and would refuse it again.
            StaleGenerationError: the generation began to end before a leader answered.

        Cancellation: the searches for the starts go on.
        """
        await self._stream_positions.open()
        await self._stream_positions.wait_until_found()
        self._stream_positions.raise_failure()
        # If the stream was closed meanwhile, some are not known.
        located = sorted(self.partitions - self._positions.unlocated)
        self._seeks = {name: self._positions.seeks[name] for name in located}
        return {name: self._positions.lower_bound(name) for name in located}

    def sought(self) -> Mapping[TopicPartition, int]:
        """Where the program has sought since `begin`, or since the last call."""
        found = {}
        for name, before in self._seeks.items():
            if (seeks := self._positions.seeks[name]) != before:
                self._seeks[name] = seeks
                found[name] = self._positions.lower_bound(name)
        return found

    def is_paused(self, partition: TopicPartition) -> bool:
        """Whether the program has paused a partition."""
        return self._pauses.is_paused(partition)

    def reset(
        self,
        offsets: Mapping[TopicPartition, int],
        on_found: Callable[[TopicPartition, int], None],
    ) -> None:
        """Begin to search where to continue after offsets that are not in the logs.

        ``auto_offset_reset`` decides where. A partition for which there is a search gets no other.

        Args:
            offsets: of each partition the offset that its log does not have.
            on_found: is called in the event loop with each position that is found.

        Raises:
            OffsetOutOfRangeError: ``auto_offset_reset`` is ``error``.
        """
        for name, offset in offsets.items():
            error = OffsetOutOfRangeError(
                f"{self._lifecycle.membership}: offset {offset} of {name} is not in the log, and"
                " auto_offset_reset is 'error'; seek to an offset in the log, or set it to"
                " 'earliest' or 'latest'",
                name,
                offset,
            )
            self._stream_positions.reset(error, on_found)

    async def wait_until_reset(self) -> None:
        """Wait until there are no searches, with or without success.

        Raises:
            BrokerError: a leader refused the request, and would refuse it again.
            StaleGenerationError: the generation began to end before a leader answered.

        Cancellation: the searches go on.
        """
        await self._stream_positions.wait_until_found()
        self._stream_positions.raise_failure()

    async def first(self) -> Mapping[TopicPartition, int]:
        """The first offset of each partition's log.

        A partition whose leader does not answer now is left out.

        Raises:
            BrokerError: a leader refused the request, and would refuse it again.
        """
        return await self._requests.list_offsets(self.partitions, EARLIEST)

    async def end(
        self, isolation_level: IsolationLevel | None = None
    ) -> Mapping[TopicPartition, int]:
        """The offset after the last record of each partition that can be read now.

        Under ``read_committed`` that is the last stable offset. A partition whose leader does not
        answer now is left out.

        Args:
            isolation_level: the group's by default.

        Raises:
            BrokerError: a leader refused the request, and would refuse it again.
        """
        return await self._requests.list_offsets(self.partitions, LATEST, isolation_level)

    async def topic_ids(self, topics: Collection[str]) -> Mapping[str, UUID]:
        """The ids of topics: a topic that is deleted and created again has another one.

        A topic that does not exist now is left out, and all are where the brokers have no ids. A
        failed request is sent again.

        Raises:
            BrokerError: a broker refused the request, and would refuse it again.
        """
        return await self._requests.topic_ids(topics)

    async def confirmed(self) -> bool:
        """Wait until the lease is valid; return False if no new work may begin any more."""
        await self._lifecycle.wait_to_read()
        await trio.lowlevel.checkpoint()
        return self.running and self._lifecycle.lease.left > 0

    def close(self) -> None:
        """Release the partitions, so that another stream of this generation can read them.

        Raises:
            UsageError: another thread calls it.
        """
        super().close()
        self._stream_positions.close()

    def serve(self, fn: Callable[[], Awaitable[None]]) -> None:
        """Start a task that is cancelled with the generation, unless the generation is ending."""
        self._lifecycle.start_service(fn)
