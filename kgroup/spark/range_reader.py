"""Reads ranges of offsets as Arrow batches: what a task does in a Python worker.

A task reads all its partitions at once, and the ranges of one partition one after the other. The
last offsets of a range may have no record (compaction, aborted transactions, control records), so
the end of a range is recognised by a record at or past it, or by the end of the log there.

INVARIANTS
- Every record of a range is read once, in order of offsets within its partition; none before the
  range's start or past its end. A record at an offset that was passed is an error: what comes out
  of order is no log, and records may be missing from it.
- A range is complete only when its position is at its end. Deleted records are an error, and are
  never skipped. Errors keep their places between the records: librdkafka goes on behind a damaged
  record of an old format, so that a later one would hide that it is missing. Only errors behind a
  range's end are ignored.
- A range is fetched from its start only, and never again from where it has come to: if the log has
  lost that offset, another log may take its place at any time, whose records do not follow those
  that were read.
- Time counts against ``no_progress_timeout`` only while the task waits for Kafka, never while Spark
  processes a batch. Only a position that moves is progress. An error that may pass is none:
  librdkafka repeats such errors about every 100 ms, for as long as the brokers answer with them.

Consumers are in ``kgroup.spark.consumer_pool``, columns in ``kgroup.spark.columns``.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Final, final

import attrs
import numpy
import pyarrow
from confluent_kafka import KafkaError, Message

from kgroup.errors import FetchError, OffsetOutOfRangeError, short_list
from kgroup.record_headers import headers_of
from kgroup.records.librdkafka_messages import (
    ErrorAction,
    action_for,
    describe_error,
    has_errors,
    runs,
)
from kgroup.spark.columns import (
    DEFAULT,
    MessageRun,
    OffsetArray,
    arrow_schema,
    check_columns,
    record_batch,
)
from kgroup.spark.consumer_pool import POOL, ConsumerPool, PooledConsumer
from kgroup.spark.offset_ranges import OffsetRange, merged
from kgroup.spark.reader_settings import ReaderSettings
from kgroup.spark.size_estimates import ReadCounts
from kgroup.types import IsolationLevel, TopicPartition

POLL_TIMEOUT: Final = 0.1
"""Seconds of one wait for messages: how late a lack of progress is noticed, and how long a
cancelled task runs on."""
QUERY_TIMEOUT: Final = 5.0
"""Seconds that a request may take that makes an error's text clearer."""
CHECK_AFTER: Final = 1.0
"""Seconds without progress after which the task checks whether its partitions exist; and from there
to the second check. A partition is gone only if both miss it: a broker that has just started, or is
slow to learn of a new topic, may not know it yet."""
FIRST_BATCH_RECORDS: Final = 1000
"""Rows of the first batch, when the size of the records is not known yet."""
SAMPLE: Final = 8
"""The most records of a run whose keys and headers are measured; each takes a few calls."""
_MOST_NAMED: Final = 5
"""An error names so many of the brokers; the driver passes all that it knows."""

OnRead = Callable[[Mapping[TopicPartition, ReadCounts]], None]
"""Is called when all ranges are read, with the counts of each partition."""


def read(
    ranges: Iterable[OffsetRange],
    settings: ReaderSettings,
    columns: Sequence[str] = DEFAULT,
    *,
    on_read: OnRead | None = None,
    pool: ConsumerPool = POOL,
) -> Iterator[pyarrow.RecordBatch]:
    """Read ranges as Arrow batches of at most ``batch_records`` rows.

    Args:
        ranges: the ranges to read; several of one partition are read one after the other.
        settings: how to read them.
        columns: names of columns; other columns are neither built nor shipped.
        on_read: is called at the end with the counts of what was read.
        pool: lends the consumer.

    Raises:
        UsageError: two ranges overlap.
        ConfigError: an unknown column, or a reference to a secret that cannot be resolved.
        OffsetOutOfRangeError: an offset of a range is not in the log (any more), or the log was
            cut below the offset that was to come next.
        FetchError: the partition does not exist or cannot be read, or there was no progress for
            ``no_progress_timeout``; the text says at which offset and why.
    """
    whole = merged(ranges)
    task = _Task(whole, settings, check_columns(columns))
    if task.parts:
        with pool.borrow(settings, whole) as consumer:
            yield from task.batches(consumer)
    counts = task.counts()
    pool.record_sizes(whole, counts)
    if on_read is not None:
        on_read(counts)


@final
@attrs.define(eq=False)
class _Part:
    """A partition that is being read: the ranges that are left, and the position in the first.

    Attributes:
        verifying: whether it is fetched once more to verify that the range's start is out of range.
    """

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
    """The state of reading the ranges of one task."""

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
        self._target = min(FIRST_BATCH_RECORDS, settings.batch_records)
        self._moved = False
        """Whether the last chunk has moved a position."""
        self._finished: list[_Part] = []
        self._refetched: list[_Part] = []

    @property
    def _brokers(self) -> str:
        return short_list(self._settings.bootstrap_servers, most=_MOST_NAMED)

    def counts(self) -> dict[TopicPartition, ReadCounts]:
        """How many records and bytes were read of each partition."""
        return {part.name: ReadCounts(part.records, part.bytes) for part in self._all}

    def batches(self, consumer: PooledConsumer) -> Iterator[pyarrow.RecordBatch]:
        """Read all ranges."""
        for part in self.parts.values():
            part.begin()
        consumer.assign({part.name: part.position for part in self.parts.values()})
        waits = _ProgressTimer(self._settings.no_progress_timeout)
        while self.parts:
            batch = None
            with _no_collection():
                left = sum(part.left for part in self.parts.values())
                chunk = consumer.poll(min(self._target - self._rows, left), POLL_TIMEOUT)
                self._moved = False
                self._process(chunk, consumer)
                if self._moved:
                    waits.begin()
                self._advance(consumer)
                if self._rows and (not self._moved or self._is_full() or not self.parts):
                    batch = self._batch()
                chunk.clear()  # free the messages while Spark processes the batch
            if batch is not None:
                yield batch
                waits.begin()
            elif not self._moved:
                if waits.is_over(consumer.positions()):
                    raise self._no_progress_error(consumer)
                if waits.should_check():
                    self._check_partitions_exist(consumer, waits)

    def _is_full(self) -> bool:
        return self._rows >= self._target or self._bytes >= self._settings.batch_bytes

    def _batch(self) -> pyarrow.RecordBatch:
        batch = record_batch(self._runs, self._columns, self._schema)
        mean = max(1, self._bytes // self._rows)
        self._target = max(1, min(self._settings.batch_records, self._settings.batch_bytes // mean))
        self._runs = []
        self._rows = self._bytes = 0
        return batch

    def _process(self, chunk: list[Message], consumer: PooledConsumer) -> None:
        if not has_errors(chunk):
            self._add_messages(chunk)
            return
        records: list[Message] = []
        for message in chunk:
            error = message.error()
            if error is None:
                records.append(message)
                continue
            self._add_messages(records)
            records = []
            self._handle_error(message, error, consumer)
        self._add_messages(records)

    def _add_messages(self, chunk: list[Message]) -> None:
        for start, end in runs(chunk, topics=self._topics):
            messages = chunk[start:end]
            part = self.parts.get(_partition_of(messages[0]))
            if part is None or part.left <= 0:
                continue  # past the end of the partition's last range
            offsets = numpy.fromiter(map(Message.offset, messages), numpy.int64, len(messages))
            if offsets[0] < part.position or (offsets[1:] <= offsets[:-1]).any():
                raise _disorder_error(part, offsets)
            wanted = int(numpy.searchsorted(offsets, part.range.end))
            if wanted:
                self._append_run(part, messages[:wanted], offsets[:wanted])
            # A record past the end proves that the range is complete.
            self._move(part, int(offsets[-1]) + 1)

    def _move(self, part: _Part, position: int) -> None:
        """The log has shown what it has before this position; it may be the old one."""
        self._moved = self._moved or position > part.position
        part.position = max(part.position, position)
        part.verifying = False
        if part.left <= 0:
            self._finished.append(part)

    def _append_run(self, part: _Part, messages: list[Message], offsets: OffsetArray) -> None:
        self._runs.append(MessageRun(part.name.topic, part.name.partition, messages, offsets))
        size = _size_of(messages)
        self._rows += len(messages)
        self._bytes += size
        part.records += len(messages)
        part.bytes += size

    def _advance(self, consumer: PooledConsumer) -> None:
        """Begin the next range of partitions whose range is complete, or stop fetching them."""
        if not self._finished and not self._refetched:
            return
        finished, self._finished = self._finished, []
        following = {part.name: part.position for part in self._refetched if part.verifying}
        self._refetched = []
        for part in finished:
            part.ranges.pop(0)
            if part.ranges:
                part.begin()
                following[part.name] = part.position
            else:
                del self.parts[part.name]
        consumer.unassign([part.name for part in finished if not part.ranges])
        if following:
            consumer.assign(following)

    def _handle_error(self, message: Message, error: KafkaError, consumer: PooledConsumer) -> None:
        part = self.parts.get(_partition_of(message))
        if part is None or part.left <= 0:
            if action_for(error) is ErrorAction.FAIL and message.topic() is None:
                raise FetchError(f"no partition of this task can be read: {describe_error(error)}")
            return
        if error.code() == KafkaError._PARTITION_EOF:  # noqa: SLF001 - a public name
            self._move(part, _offset_of(message))
        elif action_for(error) is ErrorAction.RESET:
            self._out_of_range(part, error, consumer)
        elif action_for(error) is ErrorAction.FAIL:
            raise FetchError(
                f"{part.range} cannot be read at offset {part.position}:"
                f" {describe_error(error, part.name.topic)}",
                part.name,
            )
        else:
            consumer.last_error = describe_error(error, part.name.topic)

    def _check_partitions_exist(self, consumer: PooledConsumer, waits: _ProgressTimer) -> None:
        """Refuse partitions that do not exist; librdkafka often waits for them without an error."""
        missing = consumer.missing(self.parts, QUERY_TIMEOUT)
        if missing is None:
            return
        if missing != waits.missing:
            waits.check_again(missing)
            return
        raise FetchError(
            f"{self.parts[missing].range} cannot be read: the cluster has no partition {missing};"
            " it was deleted after the ranges were planned, or the bootstrap servers"
            f" ({self._brokers}) belong to another cluster",
            missing,
        )

    def _out_of_range(self, part: _Part, error: KafkaError, consumer: PooledConsumer) -> None:
        if part.position == part.range.start and not part.verifying:
            # librdkafka does not say which assignment an error belongs to: it may be that of the
            # previous range. So the start is assigned once more; a second error is this one's.
            part.verifying = True
            self._refetched.append(part)
            return
        bounds = consumer.watermarks(part.name, QUERY_TIMEOUT)
        log = f"it has {bounds[0]} to {bounds[1]} now" if bounds else "its bounds are unknown"
        if bounds and bounds[0] <= part.position <= bounds[1]:
            why = (
                f"its log was truncated below offset {part.position}, and has grown again since"
                f" ({log}); nothing was skipped. The range can be read again from its start"
            )
        else:
            why = (
                f"its log has no offset {part.position} ({log}). Retention or DeleteRecords deleted"
                " it, or the log was truncated; nothing was skipped. Start at an offset that the"
                " log has, or keep records for longer"
            )
        raise OffsetOutOfRangeError(
            f"{part.range} cannot be read: {why} ({describe_error(error)})",
            part.name,
            part.position,
        )

    def _no_progress_error(self, consumer: PooledConsumer) -> FetchError:
        part, *others = self.parts.values()
        bounds = consumer.watermarks(part.name, QUERY_TIMEOUT)
        if bounds is None:
            why = "no broker answers for it"
        elif bounds[1] >= part.range.end:
            why = f"its log goes from {bounds[0]} to {bounds[1]}"
        elif self._settings.isolation_level is IsolationLevel.READ_COMMITTED:
            why = (
                f"the last stable offset of its log is {bounds[1]}: a transaction is open there, or"
                " the log was truncated after the range was planned"
            )
        else:
            why = f"its log ends at {bounds[1]}: it was truncated after the range was planned"
        last_error = f"; the last error was {consumer.last_error}" if consumer.last_error else ""
        further = f"; {len(others)} more partitions of this task also wait" if others else ""
        return FetchError(
            f"{part.range} cannot be read to its end: no progress for"
            f" {self._settings.no_progress_timeout:g} s (no_progress_timeout) at offset"
            f" {part.position}, {part.left} offsets before the end; {why}{last_error}{further}."
            f" Check the brokers ({self._brokers}); the same range"
            " can be read again",
            part.name,
        )


@contextmanager
def _no_collection() -> Iterator[None]:
    """Disable Python's garbage collector.

    It would visit thousands of new messages again and again, for a third of the reading time, and
    free none of them: they are not in reference cycles.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@final
class _ProgressTimer:
    """Measures for how long there was no progress while the task waited for Kafka.

    Attributes:
        missing: the partition that the last check since then has missed.
    """

    def __init__(self, timeout: float) -> None:
        self._timeout = timeout
        self._positions: Mapping[TopicPartition, int] = {}
        self.begin()

    def begin(self) -> None:
        """Start again: there was progress, or the task was not waiting until now."""
        self._since = time.monotonic()
        self._check_at = self._since + CHECK_AFTER
        self.missing: TopicPartition | None = None

    def should_check(self) -> bool:
        """Whether to check that the partitions exist: once, and as often as `check_again` says."""
        due = time.monotonic() > self._check_at
        if due:
            self._check_at = math.inf
        return due

    def check_again(self, missing: TopicPartition) -> None:
        """Check again after `CHECK_AFTER`, because this partition was missing."""
        self.missing = missing
        self._check_at = time.monotonic() + CHECK_AFTER

    def is_over(self, positions: Mapping[TopicPartition, int]) -> bool:
        """Whether the timeout has passed; another position than before counts as progress."""
        if positions != self._positions:
            self._positions = positions
            self.begin()
        return time.monotonic() - self._since > self._timeout


def _disorder_error(part: _Part, offsets: OffsetArray) -> FetchError:
    before = numpy.maximum.accumulate(numpy.concatenate(([part.position - 1], offsets)))[:-1]
    number = int(numpy.argmax(offsets <= before))
    return FetchError(
        f"{part.range} cannot be read: librdkafka returned a record at offset {offsets[number]}"
        f" where one past {before[number]} had to follow. A batch of records about there is"
        " malformed, although its checksum is right; look at it with kafka-dump-log, and start"
        " after it to leave it out",
        part.name,
    )


def _offset_of(message: Message) -> int:
    return message.offset() or 0


def _partition_of(message: Message) -> TopicPartition:
    number = message.partition()
    return TopicPartition(message.topic() or "", -1 if number is None else number)


def _size_of(messages: Sequence[Message]) -> int:
    """The bytes of the values, and of keys and headers as a sample has them on average."""
    sample = messages[:: -(-len(messages) // SAMPLE)]
    beside = sum(map(_size_beside_value, sample))
    return sum(map(len, messages)) + beside * len(messages) // len(sample)


def _size_beside_value(message: Message) -> int:
    pairs = headers_of(message) or ()
    return len(message.key() or ()) + sum(len(name) + len(value or ()) for name, value in pairs)
