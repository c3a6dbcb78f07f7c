"""``MemorySource``: records read out of a log in this process, without librdkafka or a thread.

For tests and simulations in virtual time: nothing but trio's clock is used. The queues and
their rules are those of every source (``kgroup.records.buffered_source``); here is only how
records get there: one task for each partition that is fetched reads ahead and waits for appends.

The log is behind a protocol, so that this file needs no broker; the embedded broker's
``LogReader`` conforms.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Final, Protocol, final

import attrs
import trio

from kgroup.config import GroupConfig
from kgroup.errors import FetchError, OffsetOutOfRangeError
from kgroup.records.buffer import BufferLimits
from kgroup.records.buffered_source import BufferedSource, OnFault
from kgroup.records.fetcher import (
    FetchedRun,
    FetchFailure,
    FetchStart,
    Item,
    OutOfRange,
    Unreadable,
)
from kgroup.types import IsolationLevel, TopicPartition

RETRY: Final = 0.1
"""Seconds after which a partition that does not exist is looked for again."""
CHUNK: Final = 500
"""The most records of one read."""
_CREATE_TIME: Final = 1
_LOG_APPEND_TIME: Final = 2


class LogRecord(Protocol):
    """A record as a log gives it."""

    @property
    def offset(self) -> int:
        """Its offset."""
        ...

    @property
    def timestamp(self) -> int:
        """Milliseconds since 1970."""
        ...

    @property
    def append_time(self) -> bool:
        """Whether the timestamp is the broker's."""
        ...

    @property
    def key(self) -> bytes | None:
        """The key, or None."""
        ...

    @property
    def value(self) -> bytes | None:
        """The value, or None."""
        ...

    @property
    def headers(self) -> Sequence[tuple[str, bytes | None]]:
        """(name, value) pairs."""
        ...


class LogRecords(Protocol):
    """What a read gives."""

    @property
    def records(self) -> Sequence[LogRecord]:
        """In the order of their offsets; possibly none."""
        ...

    @property
    def next_offset(self) -> int:
        """Where to go on, past markers and aborted records."""
        ...


class Log(Protocol):
    """The logs of a broker in this process, to read."""

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
    ) -> LogRecords:
        """Records from an offset on; does not wait.

        Raises:
            OffsetOutOfRangeError: the offset is outside of the log.
            FetchError: there is no such partition, or it cannot be read.
        """
        ...

    async def wait_for(
        self, partition: TopicPartition, offset: int, isolation: IsolationLevel = ..., /
    ) -> None:
        """Wait until a read at this offset may give something else than nothing.

        Raises:
            FetchError: there is no such partition.

        Cancellation: nothing is left behind.
        """
        ...


@final
class LogMessage:
    """A record out of a log in memory; a ``Message``."""

    __slots__ = ("_partition", "_record")

    def __init__(self, partition: TopicPartition, record: LogRecord) -> None:
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

    def timestamp(self) -> tuple[int, int]:
        """(kind, milliseconds since 1970): kind 1 is create time, 2 is log append time."""
        kind = _LOG_APPEND_TIME if self._record.append_time else _CREATE_TIME
        return kind, self._record.timestamp


@final
@attrs.define(eq=False)
class _Reading:
    """One fetch of a partition: where it is, and what ends its task."""

    partition: TopicPartition
    ticket: int
    offset: int
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)


@final
class _LogFetcher:
    """A ``Fetcher`` of tasks that read a log."""

    def __init__(self, log: Log, isolation: IsolationLevel, ledger: BufferLimits) -> None:
        self._log = log
        self._isolation = isolation
        self._ledger = ledger
        self._readings: dict[TopicPartition, _Reading] = {}
        self._held: set[TopicPartition] = set()
        self._working = False
        self._changed = trio.Event()

    def launch(self, source: BufferedSource, nursery: trio.Nursery) -> None:
        """Be told where records go and where tasks run."""
        self._source = source
        self._nursery = nursery

    def work(self) -> None:
        """See ``Fetcher``."""
        self._working = True
        self._wake()

    def rest(self) -> None:
        """See ``Fetcher``."""
        self._working = False

    def start(self, starts: Mapping[TopicPartition, FetchStart]) -> None:
        """See ``Fetcher``."""
        self.stop(starts)
        for partition, start in starts.items():
            reading = _Reading(partition, start.ticket, start.offset)
            self._readings[partition] = reading
            self._nursery.start_soon(self._read, reading)

    def stop(self, partitions: Collection[TopicPartition]) -> None:
        """See ``Fetcher``."""
        for partition in partitions:
            self._held.discard(partition)
            reading = self._readings.pop(partition, None)
            if reading is not None:
                reading.scope.cancel()

    def hold(self, partitions: Collection[TopicPartition]) -> None:
        """See ``Fetcher``."""
        self._held.update(partitions)

    def release(self, partitions: Collection[TopicPartition]) -> None:
        """See ``Fetcher``."""
        self._held.difference_update(partitions)
        self._wake()

    def go(self) -> None:
        """See ``Fetcher``."""
        self._ledger.stopped = False
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _may_read(self, partition: TopicPartition) -> bool:
        return self._working and not self._ledger.stopped and partition not in self._held

    async def _read(self, reading: _Reading) -> None:
        with reading.scope:
            while True:
                await trio.lowlevel.checkpoint()
                while not self._may_read(reading.partition):
                    await self._changed.wait()
                try:
                    await self._read_once(reading)
                except OffsetOutOfRangeError as error:
                    self._fault(
                        OutOfRange(reading.partition, reading.ticket, error.offset, str(error))
                    )
                    return
                except FetchError as error:
                    if self._exists(reading.partition):
                        self._fault(Unreadable(reading.partition, reading.ticket, str(error)))
                        return
                    self._fault(
                        FetchFailure(reading.partition, "UNKNOWN_TOPIC_OR_PART", str(error))
                    )
                    await trio.sleep(RETRY)

    async def _read_once(self, reading: _Reading) -> None:
        found = self._log.read(reading.partition, reading.offset, CHUNK, self._isolation)
        reading.offset = found.next_offset
        if not found.records:
            await self._log.wait_for(reading.partition, reading.offset, self._isolation)
            return
        messages = [LogMessage(reading.partition, record) for record in found.records]
        size = sum(_size_of(record) for record in found.records)
        self._ledger.handed_over(len(messages), size)
        if self._ledger.is_full():
            self._ledger.stopped = True
        self._source.deliver([FetchedRun(reading.partition, reading.ticket, messages, size)])

    def _fault(self, item: Item) -> None:
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

    It behaves as ``LibrdkafkaSource`` does: the same queues, bounds and errors, and the same
    outcomes for a deleted and a re-created topic.

    Args:
        config: the member's settings.
        on_fault: is told of faults that are waited out.
        log: what is read; ``kgroup.broker.Broker.log`` is one.
    """

    def __init__(self, config: GroupConfig, on_fault: OnFault, log: Log) -> None:
        ledger = BufferLimits(config.max_buffered_records, config.max_buffered_bytes)
        self._log_fetcher = _LogFetcher(log, config.isolation_level, ledger)
        super().__init__(self._log_fetcher, ledger, on_fault)
        self._scope = AsyncExitStack()

    async def __aenter__(self) -> MemorySource:
        """Make it ready; no partition is read yet.

        Cancellation: nothing has begun.
        """
        # Before the nursery is open: who is cancelled here does not close it.
        await trio.lowlevel.checkpoint()
        self._nursery = await self._scope.enter_async_context(trio.open_nursery())
        self._log_fetcher.launch(self, self._nursery)
        return self

    async def __aexit__(self, *details: object) -> None:
        """End every reading task.

        Cancellation: waits all the same; the tasks wait for nothing that could fail to end.
        """
        self.close_queues()
        self._nursery.cancel_scope.cancel()
        await self._scope.aclose()


def _size_of(record: LogRecord) -> int:
    return len(record.value or b"") + len(record.key or b"")
