"""``MemorySource``: reads records from a log in this process, without librdkafka and threads.

It is for tests and simulations in virtual time: it uses no clock but trio's. Queues and rules are
those of every source (``kgroup.records.buffered_source``). This module adds the fetcher: one task
for each fetched partition, which reads ahead and waits for appends.

The log is a protocol, so that this module needs no broker; the embedded broker's ``LogReader``
conforms to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, Protocol, final

import attrs
import trio

from kgroup.config import GroupConfig
from kgroup.errors import FetchError, OffsetOutOfRangeError
from kgroup.notifier import Notifier
from kgroup.records.buffer import BufferLimits
from kgroup.records.buffered_source import BufferedSource, OnFault
from kgroup.records.fetcher import (
    FetchedItem,
    FetchedRun,
    FetchFailure,
    FetchStart,
    OutOfRange,
    PassedTo,
    Unreadable,
)
from kgroup.types import IsolationLevel, TopicPartition

RETRY: Final = 0.1
"""Seconds after which a read of a partition that does not exist is tried again."""
CHUNK: Final = 500
"""The largest number of records in one read."""
_CREATE_TIME: Final = 1
_LOG_APPEND_TIME: Final = 2


@final
@attrs.frozen(kw_only=True)
class StoredRecord:
    """A record that was read from a log.

    Attributes:
        offset: its offset.
        timestamp: milliseconds since 1970.
        append_time: whether the broker set the timestamp.
        key: the key, or None.
        value: the value, or None.
        headers: (name, value) pairs.
        leader_epoch: the leader epoch in which it was written, or -1.
    """

    offset: int
    timestamp: int
    append_time: bool
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int = -1


@final
@attrs.frozen
class BatchRecords:
    """The result of a read.

    Attributes:
        records: in the order of their offsets; possibly none.
        next_offset: the offset of the next read. It can be more than one past the last record,
            because markers and aborted records are skipped.
    """

    records: Sequence[StoredRecord]
    next_offset: int


class ReadableLog(Protocol):
    """The logs of a broker in this process, for reading."""

    def end_offset(self, partition: TopicPartition, isolation: IsolationLevel = ..., /) -> int:
        """The offset up to which records can be read.

        Raises:
            FetchError: there is no such partition.
        """
        ...

    def read(
        self,
        partition: TopicPartition,
        offset: int,
        max_records: int,
        isolation: IsolationLevel = ...,
        /,
    ) -> BatchRecords:
        """Read records from an offset on, without waiting.

        Raises:
            OffsetOutOfRangeError: the offset is outside of the log.
            FetchError: there is no such partition, or it cannot be read.
        """
        ...

    async def wait_for(
        self, partition: TopicPartition, offset: int, isolation: IsolationLevel = ..., /
    ) -> None:
        """Wait until a read at this offset may return records or fail.

        Raises:
            FetchError: there is no such partition.

        Cancellation: nothing is left behind.
        """
        ...


@final
class LogMessage:
    """A record of a log in memory; a ``Message``."""

    __slots__ = ("__weakref__", "_partition", "_record")

    def __init__(self, partition: TopicPartition, record: StoredRecord) -> None:
        self._partition = partition
        self._record = record

    def __repr__(self) -> str:
        return f"<LogMessage {self._partition} at {self._record.offset}>"

    def topic(self) -> str:
        """The topic."""
        return self._partition.topic

    def partition(self) -> int:
        """The partition's number."""
        return self._partition.partition

    def offset(self) -> int:
        """The offset."""
        return self._record.offset

    def key(self) -> bytes | None:
        """The key, or None."""
        return self._record.key

    def value(self) -> bytes | None:
        """The value, or None for a tombstone."""
        return self._record.value

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """A list of (name, value) pairs, or None."""
        return list(self._record.headers) or None

    def leader_epoch(self) -> int:
        """The leader epoch in which it was written, or -1."""
        return self._record.leader_epoch

    def timestamp(self) -> tuple[int, int]:
        """(kind, milliseconds since 1970): kind 1 is create time, 2 is log append time."""
        kind = _LOG_APPEND_TIME if self._record.append_time else _CREATE_TIME
        return kind, self._record.timestamp


@final
@attrs.define(eq=False)
class _PartitionReader:
    """One fetch of a partition: its next offset, and the scope that ends its task."""

    partition: TopicPartition
    fetch_id: int
    offset: int
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)


@final
class _LogFetcher:
    """A ``Fetcher`` that reads a log with one task for each partition."""

    def __init__(self, log: ReadableLog, isolation: IsolationLevel, limits: BufferLimits) -> None:
        self._log = log
        self._isolation = isolation
        self._limits = limits
        self._readers: dict[TopicPartition, _PartitionReader] = {}
        self._held: set[TopicPartition] = set()
        self._active = False
        self._changed = Notifier()

    def launch(self, source: BufferedSource, nursery: trio.Nursery) -> None:
        """Set the source that gets the records and the nursery that runs the tasks."""
        self._source = source
        self._nursery = nursery

    @property
    def serves_threads(self) -> bool:
        """See ``Fetcher``: its tasks run in the event loop."""
        return False

    @property
    def has_more(self) -> bool:
        """See ``Fetcher``: its tasks deliver everything."""
        return False

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """See ``Fetcher``."""
        if partition not in self._readers:
            return None
        try:
            return self._log.end_offset(partition, IsolationLevel.READ_UNCOMMITTED)
        except FetchError:
            return None

    def take_into(
        self, take_in: Callable[[Sequence[FetchedItem]], None], *, in_loop: bool = True
    ) -> bool:
        """See ``Fetcher``."""
        del take_in, in_loop
        return False

    def activate(self) -> None:
        """See ``Fetcher``."""
        self._active = True
        self._changed.notify()

    def deactivate(self) -> None:
        """See ``Fetcher``."""
        self._active = False

    def start(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        """See ``Fetcher``."""
        self.stop(starts)
        for partition, start in starts.items():
            reader = _PartitionReader(partition, start.fetch_id, start.offset)
            self._readers[partition] = reader
            self._nursery.start_soon(self._read, reader)

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """See ``Fetcher``."""
        for partition in partitions:
            self._held.discard(partition)
            reader = self._readers.pop(partition, None)
            if reader is not None:
                reader.scope.cancel()

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """See ``Fetcher``."""
        self._held.update(partitions)

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """See ``Fetcher``."""
        self._held.difference_update(partitions)
        self._changed.notify()

    def resume_fetching(self) -> None:
        """See ``Fetcher``."""
        self._limits.stopped = False
        self._changed.notify()

    def _may_read(self, partition: TopicPartition) -> bool:
        return self._active and not self._limits.stopped and partition not in self._held

    @trio.lowlevel.enable_ki_protection
    async def _read(self, reader: _PartitionReader) -> None:
        with reader.scope:
            while True:
                await trio.lowlevel.checkpoint()
                while not self._may_read(reader.partition):
                    await self._changed.wait()
                try:
                    await self._read_once(reader)
                except OffsetOutOfRangeError as error:
                    self._fault(
                        OutOfRange(reader.partition, reader.fetch_id, error.offset, str(error))
                    )
                    return
                except FetchError as error:
                    if self._exists(reader.partition):
                        self._fault(
                            Unreadable(reader.partition, reader.fetch_id, reader.offset, str(error))
                        )
                        return
                    self._fault(FetchFailure(reader.partition, "UNKNOWN_TOPIC_OR_PART", str(error)))
                    await trio.sleep(RETRY)

    async def _read_once(self, reader: _PartitionReader) -> None:
        found = self._log.read(reader.partition, reader.offset, CHUNK, self._isolation)
        after = found.records[-1].offset + 1 if found.records else reader.offset
        reader.offset = found.next_offset
        items: list[FetchedItem] = []
        if reader.offset > after:
            items.append(PassedTo(reader.partition, reader.fetch_id, reader.offset))
        if not found.records:
            if items:
                self._source.deliver(items)
            await self._log.wait_for(reader.partition, reader.offset, self._isolation)
            return
        messages = [LogMessage(reader.partition, record) for record in found.records]
        size = sum(_size_of(record) for record in found.records)
        self._limits.count_delivered(len(messages), size)
        if self._limits.is_full():
            self._limits.stopped = True
        run = FetchedRun(reader.partition, reader.fetch_id, messages, size)
        self._source.deliver([run, *items])

    def _fault(self, item: FetchedItem) -> None:
        self._source.deliver([item])

    def _exists(self, partition: TopicPartition) -> bool:
        try:
            self._log.end_offset(partition, self._isolation)
        except FetchError:
            return False
        return True


@final
class MemorySource(BufferedSource):
    """Reads partitions of a log in this process; a ``RecordSource`` for one member.

    It behaves as ``LibrdkafkaSource`` does: with the same queues, limits and errors, and in the
    same way when a topic is deleted and created again.

    Args:
        config: the member's settings.
        on_fault: reports faults that are retried.
        log: the log to read, such as ``kgroup.broker.EmbeddedBroker.log``.
    """

    def __init__(self, config: GroupConfig, on_fault: OnFault, log: ReadableLog) -> None:
        limits = BufferLimits(config.max_buffered_records, config.max_buffered_bytes)
        self._log_fetcher = _LogFetcher(log, config.isolation_level, limits)
        super().__init__(self._log_fetcher, limits, on_fault)
        self._scope = AsyncExitStack()

    async def __aenter__(self) -> MemorySource:
        """Open the nursery of the reading tasks; no partition is read yet.

        Cancellation: nothing has begun.
        """
        # Before the nursery opens, because a caller that is cancelled here never closes it.
        await trio.lowlevel.checkpoint()
        self._nursery = await self._scope.enter_async_context(trio.open_nursery())
        self._log_fetcher.launch(self, self._nursery)
        return self

    async def __aexit__(self, *details: object) -> None:
        """End every reading task.

        Cancellation: it still waits for the tasks, which end at once.
        """
        self.close_queues()
        self._nursery.cancel_scope.cancel()
        await self._scope.aclose()


def _size_of(record: StoredRecord) -> int:
    return len(record.value or b"") + len(record.key or b"")
