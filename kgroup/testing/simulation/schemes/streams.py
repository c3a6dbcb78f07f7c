"""How a member of the earlier protocols reads: a stream for each partition, and stored offsets.

As in Kafka 0.8, a record counts as consumed when it is handed out, not when it is processed, and to
stop a stream is to hand out no more: the record in hand is processed to its end, even if another
member owns the partition by then.

Source: Kafka 0.8's ``ConsumerIterator`` and ``ConsumerFetcherManager``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

import attrs
import trio

from kgroup.errors import FetchError, OffsetOutOfRangeError
from kgroup.records.memory import LogMessage
from kgroup.testing.simulation import history
from kgroup.testing.simulation.process import Process
from kgroup.types import TopicPartition

GROUP: Final = "group"
_CHUNK: Final = 20
"""The most records that are handed out at once."""
_RETRY: Final = 0.1
"""Seconds after which a partition that cannot be read is tried again."""
NO_GENERATION: Final = -1


@final
@attrs.define(eq=False)
class _Stream:
    """One stream; ``consumed`` is the offset after the last record that was handed out."""

    partition: TopicPartition
    consumed: int
    reading: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    stopped: bool = False


@final
class Streams:
    """The streams of one member."""

    def __init__(self, process: Process, nursery: trio.Nursery) -> None:
        self._process = process
        self._nursery = nursery
        self._streams: dict[TopicPartition, _Stream] = {}
        self._busy: dict[TopicPartition, trio.Event] = {}
        self._takings = 0

    @property
    def consumed(self) -> dict[TopicPartition, int]:
        """For each partition the offset after the last record that was handed out."""
        return {partition: stream.consumed for partition, stream in self._streams.items()}

    def start(self, starts: Mapping[TopicPartition, int]) -> None:
        """Own these partitions and read them from these offsets on."""
        self._takings += 1
        self._process.observer.record(history.PartitionsTaken, starts=dict(starts))
        for partition, offset in starts.items():
            stream = self._streams[partition] = _Stream(partition, offset)
            self._nursery.start_soon(self._run, stream)

    def stop(self) -> None:
        """Hand out no more records."""
        for stream in self._streams.values():
            stream.stopped = True
            stream.reading.cancel()

    def give_up(self) -> None:
        """Own nothing any more."""
        self.stop()
        self._streams.clear()
        self._process.observer.record(history.PartitionsGivenUp)

    async def _run(self, stream: _Stream) -> None:
        # One thread handles a partition: it first ends what it has in hand.
        while (busy := self._busy.get(stream.partition)) is not None:
            await busy.wait()
        done = self._busy[stream.partition] = trio.Event()
        try:
            while not stream.stopped:
                messages = await self._read(stream)
                await self._handle(stream, messages)
        finally:
            del self._busy[stream.partition]
            done.set()

    async def _read(self, stream: _Stream) -> list[LogMessage]:
        """The next records; none if the stream is stopped."""
        log, partition = self._process.log, stream.partition
        messages: list[LogMessage] = []
        with trio.CancelScope() as stream.reading:
            while True:
                await trio.lowlevel.checkpoint()
                try:
                    found = log.read(partition, stream.consumed, _CHUNK)
                    if found.records:
                        messages = [LogMessage(partition, one) for one in found.records]
                        break
                    await log.wait_for(partition, stream.consumed)
                except (FetchError, OffsetOutOfRangeError):
                    await trio.sleep(_RETRY)
        return [] if stream.stopped else messages

    async def _handle(self, stream: _Stream, messages: list[LogMessage]) -> None:
        if not messages:
            return
        observer = self._process.observer
        observer.record(
            history.HandedOut,
            group_id=GROUP,
            member_id=self._process.name,
            generation_id=NO_GENERATION,
            epoch=self._takings,
            partition=stream.partition,
            first=messages[0].offset(),
            next_offset=messages[-1].offset() + 1,
        )
        for message in messages:
            if stream.stopped:
                return
            stream.consumed = message.offset() + 1
            await self._process.process(message)
