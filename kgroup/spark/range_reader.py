"""Reads ranges of offsets as Arrow batches: what a task does in a Python worker.

A task reads all its ranges at once, each to its end. A range's last offsets may hold no record
(compaction, aborted transactions, control records), so its end is found by position: a record at
or past it, or the end of the log there.

INVARIANTS
- Every record of a range comes once and in order of offsets within its partition; none before its
  start or past its end.
- A range ends well only when its position is at its end. What is gone is an error, no skip.
- Time counts against ``no_progress_timeout`` only while this waits for Kafka, never while Spark
  works on a batch.

Left to others: consumers (``kgroup.spark.consumer_pool``), columns (``kgroup.spark.columns``).
"""

from __future__ import annotations

import gc
import time
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, final

import attrs
import pyarrow
from confluent_kafka import KafkaError, Message

from kgroup.errors import FetchError, OffsetOutOfRangeError
from kgroup.records.librdkafka_messages import (
    ErrorAction,
    action_for,
    describe_error,
    has_errors,
    runs,
)
from kgroup.spark.columns import DEFAULT, MessageRun, arrow_schema, checked, record_batch
from kgroup.spark.consumer_pool import POOL, Pool, PooledConsumer
from kgroup.spark.offset_ranges import OffsetRange, merged
from kgroup.spark.reader_settings import ReaderSettings
from kgroup.spark.size_estimates import Seen
from kgroup.types import IsolationLevel, TopicPartition

POLL: Final = 0.1
"""Seconds of one wait: how late a lack of progress is noticed, and how long a task that was
cancelled goes on."""
ASK: Final = 5.0
"""Seconds that a question may take whose answer makes an error clearer."""
ASK_AFTER: Final = 1.0
"""Seconds without progress after which it is asked whether the partitions exist."""
FIRST_RECORDS: Final = 1000
"""Rows of the first batch, whose records' size is not known yet."""

OnRead = Callable[[Mapping[TopicPartition, Seen]], None]
"""Is told, once all ranges are read, what each partition brought."""


def read_range(
    part: OffsetRange,
    settings: ReaderSettings,
    columns: Sequence[str] = DEFAULT,
) -> Iterator[pyarrow.RecordBatch]:
    """Read one range; see ``read``."""
    return read((part,), settings, columns)


def read(
    ranges: Iterable[OffsetRange],
    settings: ReaderSettings,
    columns: Sequence[str] = DEFAULT,
    *,
    on_read: OnRead | None = None,
    pool: Pool = POOL,
) -> Iterator[pyarrow.RecordBatch]:
    """Read ranges as Arrow batches of at most ``batch_records`` rows.

    Args:
        ranges: what is read; several of one partition are read one after the other.
        settings: how.
        columns: names of columns; others are neither made nor shipped.
        on_read: is told at the end what was read.
        pool: where the consumer comes from.

    Raises:
        UsageError: two ranges overlap.
        ConfigError: an unknown column, or a reference to a secret that leads nowhere.
        OffsetOutOfRangeError: an offset of a range is not in the log (any more).
        FetchError: the partition does not exist or cannot be read, or there was no progress for
            ``no_progress_timeout``; it says at which offset and why.
    """
    whole = merged(ranges)
    task = _Task(whole, settings, checked(columns))
    if task.parts:
        with pool.borrow(settings, whole) as consumer:
            yield from task.batches(consumer)
    seen = task.seen()
    pool.learn(whole, seen)
    if on_read is not None:
        on_read(seen)


@final
@attrs.define(eq=False)
class _Part:
    """A partition that is being read: what is left of it, and where it is."""

    name: TopicPartition
    ranges: list[OffsetRange]
    position: int = 0
    records: int = 0
    bytes: int = 0
    verifying: bool = False

    @property
    def range(self) -> OffsetRange:
        return self.ranges[0]

    @property
    def left(self) -> int:
        return self.range.end - self.position

    def begin(self) -> None:
        self.position = self.range.start
        self.verifying = False


@final
class _Task:
    """The ranges of one task on their way."""

    def __init__(
        self, ranges: Sequence[OffsetRange], settings: ReaderSettings, columns: Sequence[str]
    ) -> None:
        self.parts: dict[TopicPartition, _Part] = {}
        for part in ranges:
            self.parts.setdefault(
                part.topic_partition, _Part(part.topic_partition, [])
            ).ranges.append(part)
        self._all = tuple(self.parts.values())
        self._settings = settings
        self._columns = columns
        self._schema = arrow_schema(columns)
        self._topics = len({name.topic for name in self.parts})
        self._runs: list[MessageRun] = []
        self._rows = 0
        self._bytes = 0
        self._target = min(FIRST_RECORDS, settings.batch_records)
        self._over: list[_Part] = []

    def seen(self) -> dict[TopicPartition, Seen]:
        """What each partition brought."""
        return {part.name: Seen(part.records, part.bytes) for part in self._all}

    def batches(self, consumer: PooledConsumer) -> Iterator[pyarrow.RecordBatch]:
        """Read all of it."""
        for part in self.parts.values():
            part.begin()
        consumer.start({part.name: part.position for part in self.parts.values()})
        waits = _Patience(self._settings.no_progress_timeout)
        while self.parts:
            batch = None
            with _no_collection():
                left = sum(part.left for part in self.parts.values())
                chunk = consumer.take(min(self._target - self._rows, left), POLL)
                if chunk:
                    self._look_at(chunk, consumer)
                    waits.begin()
                self._go_on(consumer)
                if self._rows and (not chunk or self._is_full() or not self.parts):
                    batch = self._batch()
                idle = not chunk
                chunk.clear()  # messages are not kept while Spark works
            if batch is not None:
                yield batch
                waits.begin()
            elif idle:
                if waits.is_over(consumer.positions()):
                    raise self._stuck(consumer)
                if waits.is_time_to_ask():
                    self._refuse_absent(consumer)

    def _is_full(self) -> bool:
        return self._rows >= self._target or self._bytes >= self._settings.batch_bytes

    def _batch(self) -> pyarrow.RecordBatch:
        batch = record_batch(self._runs, self._columns, self._schema)
        mean = max(1, self._bytes // self._rows)
        self._target = max(1, min(self._settings.batch_records, self._settings.batch_bytes // mean))
        self._runs = []
        self._rows = self._bytes = 0
        return batch

    def _look_at(self, chunk: list[Message], consumer: PooledConsumer) -> None:
        if not has_errors(chunk):
            self._take_in(chunk)
            return
        # Records first: the end of a log comes behind its last record.
        self._take_in([message for message in chunk if message.error() is None])
        for message in chunk:
            error = message.error()
            if error is not None:
                self._judge(message, error, consumer)

    def _take_in(self, chunk: list[Message]) -> None:
        for start, end in runs(chunk, topics=self._topics):
            messages = chunk[start:end]
            part = self.parts.get(_partition_of(messages[0]))
            if part is None or part.left <= 0:
                continue  # past the end of a range that is over
            first, last = messages[0].offset() or 0, messages[-1].offset() or 0
            if first < part.position or last >= part.range.end:
                low = bisect_left(messages, part.position, key=_offset_of)
                messages = messages[low : bisect_left(messages, part.range.end, key=_offset_of)]
            if messages:
                self._keep(part, messages)
            # A record past the end proves that the range is over.
            part.position = max(part.position, last + 1)
            if part.left <= 0:
                self._over.append(part)

    def _keep(self, part: _Part, messages: list[Message]) -> None:
        first, last = _offset_of(messages[0]), _offset_of(messages[-1])
        self._runs.append(MessageRun(part.name.topic, part.name.partition, messages, first, last))
        size = _size_of(messages)
        self._rows += len(messages)
        self._bytes += size
        part.records += len(messages)
        part.bytes += size
        part.verifying = False

    def _go_on(self, consumer: PooledConsumer) -> None:
        """From ranges that are over to the next of their partitions, if any."""
        if not self._over:
            return
        over, self._over = self._over, []
        for part in over:
            part.ranges.pop(0)
            if part.ranges:
                part.begin()
            else:
                del self.parts[part.name]
        consumer.stop([part.name for part in over if not part.ranges])
        if again := {part.name: part.position for part in over if part.ranges}:
            consumer.start(again)

    def _judge(self, message: Message, error: KafkaError, consumer: PooledConsumer) -> None:
        part = self.parts.get(_partition_of(message))
        if part is None or part.left <= 0:
            if action_for(error) is ErrorAction.FAIL and message.topic() is None:
                raise FetchError(f"nothing can be read: {describe_error(error)}")
            return
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - a public name
            part.position = max(part.position, _offset_of(message))
            if part.left <= 0:
                self._over.append(part)
        elif action_for(error) is ErrorAction.RESET:
            self._out_of_range(part, error, consumer)
        elif action_for(error) is ErrorAction.FAIL:
            raise FetchError(
                f"{part.range} cannot be read at offset {part.position}: {describe_error(error)}",
                part.name,
            )
        else:
            consumer.trouble = describe_error(error)

    def _refuse_absent(self, consumer: PooledConsumer) -> None:
        """librdkafka waits for a partition that is not there, often without a word."""
        for part in self.parts.values():
            if consumer.exists(part.name, ASK) is False:
                raise FetchError(
                    f"{part.range} cannot be read: the brokers know no partition {part.name}; it"
                    " was deleted after the ranges were planned, or these are other brokers"
                    f" ({', '.join(self._settings.bootstrap_servers)})",
                    part.name,
                )

    def _out_of_range(self, part: _Part, error: KafkaError, consumer: PooledConsumer) -> None:
        if not part.verifying:
            # librdkafka gives this error no version: it may be of the range before. Asked once
            # more, it answers for this one.
            part.verifying = True
            consumer.start({part.name: part.position})
            return
        bounds = consumer.bounds(part.name, ASK)
        log = f"it holds {bounds[0]} to {bounds[1]} now" if bounds else "what it holds is unknown"
        raise OffsetOutOfRangeError(
            f"{part.range} cannot be read: its log has no offset {part.position} ({log}). Retention"
            " or DeleteRecords removed it, or the log was cut; nothing was skipped. Plan from an"
            f" offset that the log has, or keep records for longer ({describe_error(error)})",
            part.name,
            part.position,
        )

    def _stuck(self, consumer: PooledConsumer) -> FetchError:
        part, *others = self.parts.values()
        bounds = consumer.bounds(part.name, ASK)
        if bounds is None:
            why = "no broker answers for it"
        elif bounds[1] >= part.range.end:
            why = f"its log goes from {bounds[0]} to {bounds[1]}"
        elif self._settings.isolation_level is IsolationLevel.READ_COMMITTED:
            why = (
                f"what read_committed may read of its log ends at {bounds[1]}: a transaction is"
                " open there, or the log was cut after the range was planned"
            )
        else:
            why = f"its log ends at {bounds[1]}: it was cut after the range was planned"
        trouble = f"; the last trouble was {consumer.trouble}" if consumer.trouble else ""
        further = f"; {len(others)} more partitions of this task wait too" if others else ""
        return FetchError(
            f"{part.range} cannot be read to its end: no progress for"
            f" {self._settings.no_progress_timeout:g} s (no_progress_timeout) at offset"
            f" {part.position}, {part.left} offsets before the end; {why}{trouble}{further}. Look"
            f" at the brokers ({', '.join(self._settings.bootstrap_servers)}); the range can be"
            " read again as it is",
            part.name,
        )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Without Python's garbage collector.

    It would walk over thousands of new messages again and again, a third of the time of reading
    them, and find nothing: they are in no cycles.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@final
class _Patience:
    """How long nothing has moved while this waited for Kafka."""

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._positions: Mapping[TopicPartition, int] = {}
        self.begin()

    def begin(self) -> None:
        """Something has moved, or the waiting begins only now."""
        self._since = time.monotonic()
        self._asked = False

    def is_time_to_ask(self) -> bool:
        """Whether it has lasted so long that what is wanted may not be there; true once."""
        due = not self._asked and time.monotonic() - self._since > ASK_AFTER
        self._asked = self._asked or due
        return due

    def is_over(self, positions: Mapping[TopicPartition, int]) -> bool:
        """Whether it has lasted too long, now that fetching is at these positions."""
        if positions != self._positions:
            self._positions = positions
            self.begin()
        return time.monotonic() - self._since > self._timeout


def _offset_of(message: Message) -> int:
    return message.offset() or 0


def _partition_of(message: Message) -> TopicPartition:
    number = message.partition()
    return TopicPartition(message.topic() or "", -1 if number is None else number)


def _size_of(messages: Sequence[Message]) -> int:
    """Bytes of the values, and of the keys as if all were like the first one."""
    key = messages[0].key()
    return sum(map(len, messages)) + (len(key) * len(messages) if key else 0)
