"""The fetched records that have not been handed out: a queue for each partition, and the limits.

A ``PartitionQueue`` holds the records of one partition. ``BufferLimits`` counts records and bytes
of all partitions together and decides when fetching stops.

INVARIANT: what is queued continues ``position`` without a gap that a reader could see. The first
queued record is the log's first record at or after ``position``, and none lies between the last
one, or ``position`` if nothing is queued, and ``passed_to``.

**Counting without a common lock.** Each counter has one writer at a time, so that the fetcher and
the source can share them: the fetcher, under its lock, counts the records that it delivers; the
source, under its own, counts those that leave its queues, less those that are put back. ``stopped``
is a handshake. Only the fetcher sets it, and then it fetches nothing until
``Fetcher.resume_fetching`` clears it.

**How much is where.** librdkafka's own queue may hold half of the buffer (``LIBRDKAFKA_PART``),
because a record costs least there: a Python object that waits is visited by the garbage collector
and drops out of the processor's cache. The queues here may hold the other half. Fetching stops
when they hold a quarter of the whole (``FULL``), and resumes when half of that has left
(``RESUME``). If a reader waits for a partition while others fill the queues, those that hold more
than their equal part of ``FULL`` are held back and fetching resumes. So the queues hold less than
``FULL``, and each partition that is fetched beyond that holds less than its part. One delivery can
exceed each of these bounds.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from fractions import Fraction
from itertools import chain
from typing import Final, final

import attrs

from kgroup.interfaces import Message
from kgroup.records.fetcher import NO_EPOCH, FetchedRun, OutOfRange, Unreadable
from kgroup.records.waiters import Waiter
from kgroup.types import TopicPartition

LIBRDKAFKA_PART: Final = Fraction(1, 2)
"""The part of the buffer that librdkafka's own queue may hold."""
FULL: Final = Fraction(1, 4)
"""The part of the buffer that the queues hold when fetching stops."""
RESUME: Final = Fraction(1, 2)
"""Fetching resumes when no more than this part of ``FULL`` is left."""
RELEASE: Final = Fraction(1, 4)
"""A held partition is released when it has no more than this part of its share."""


@final
@attrs.define(eq=False)
class _QueuedRun:
    """The rest of a run: its messages from ``start`` on, and their bytes."""

    messages: Sequence[Message]
    size: int
    start: int = 0


@final
@attrs.define(eq=False)
class PartitionQueue:
    """One partition of a generation: its queue, its position and its switches.

    Attributes:
        partition: the partition.
        position: the offset of the next record to hand out. This is the only place that knows
            it; a fetch has its own offset, which is further on.
        start_epoch: the leader epoch of the record before the position, for the first fetch;
            `NO_EPOCH` if it is not known, and afterwards.
        fetch_id: the fetch whose records belong here, 0 for none.
        fetched_epoch: the leader epoch of the last record that the fetch has brought, or with which
            it began; `NO_EPOCH` if it is not known.
        opened: whether a stream reads it.
        paused: whether its reader has paused it.
        held: whether its fetch is held back, because it has far more than its share.
        fault: why nothing follows what is queued, or None; for a refusal, until it was raised.
        waiter: the reader that waits for it, or None.
        passed_to: the offset after what the log has behind the queued records and what is no record
            for this reader (markers of transactions); less than theirs if that is not known.
        passed_epoch: the leader epoch of the last of these; `NO_EPOCH` if it is not known.
        records: how many records are queued.
        size: their bytes.
        taken_size: the bytes of what was taken last.
    """

    partition: TopicPartition
    position: int
    start_epoch: int = NO_EPOCH
    fetch_id: int = 0
    fetched_epoch: int = NO_EPOCH
    opened: bool = False
    paused: bool = False
    held: bool = False
    fault: OutOfRange | Unreadable | None = None
    waiter: Waiter | None = None
    passed_to: int = 0
    passed_epoch: int = NO_EPOCH
    records: int = 0
    size: int = 0
    taken_size: int = 0
    _runs: deque[_QueuedRun] = attrs.field(factory=deque, init=False)

    @property
    def ready(self) -> bool:
        """Whether a ``receive`` has something to return or to raise."""
        return self.opened and not self.paused and (bool(self._runs) or self.fault is not None)

    def continues_at(self, offset: int) -> bool:
        """Whether a reader at this offset would continue with exactly what is queued or under way.

        Between the position and the first queued record the log has nothing to read (markers of
        transactions, records compacted away), so every offset in between continues here.
        """
        if not self.fetch_id or self.fault is not None:
            return False
        if self._runs:
            first = self._runs[0]
            return self.position <= offset <= first.messages[first.start].offset()
        return self.position <= offset <= self.next_offset

    @property
    def next_offset(self) -> int:
        """The offset of the next record that the log can have for the reader."""
        return self.position if self._runs else max(self.position, self.passed_to)

    def truncated_below(self, offset: int) -> bool:
        """Whether the log was cut below an offset, and the position not been reset since."""
        fault = self.fault
        return (
            isinstance(fault, OutOfRange)
            and fault.divergent_offset is not None
            and fault.divergent_offset < offset
        )

    def cut_at(self, offset: int) -> bool:
        """Whether the log was cut at this offset, and the position not been reset since."""
        return isinstance(self.fault, OutOfRange) and self.fault.divergent_offset == offset

    def put(self, run: FetchedRun) -> None:
        """Queue records that follow those queued before, or a refusal that is over."""
        self.fault = None
        self.fetched_epoch = run.leader_epoch
        self._runs.append(_QueuedRun(run.messages, run.size))
        self.records += len(run.messages)
        self.size += run.size

    def take(self, limit: int) -> tuple[Sequence[Message], int]:
        """Remove the next records, at most ``limit``, and move the position past them.

        Returns:
            The records and their bytes.
        """
        parts: list[Sequence[Message]] = []
        room, taken_size = limit, 0
        while self._runs and room:
            run = self._runs[0]
            left = len(run.messages) - run.start
            if left <= room:
                self._runs.popleft()
                parts.append(run.messages[run.start :] if run.start else run.messages)
                room -= left
                taken_size += run.size
            else:
                parts.append(run.messages[run.start : run.start + room])
                part_size = run.size * room // left
                run.start += room
                run.size -= part_size
                room = 0
                taken_size += part_size
        messages = parts[0] if len(parts) == 1 else list(chain.from_iterable(parts))
        self.position = messages[-1].offset() + 1
        self.position = self.next_offset
        self.records -= len(messages)
        self.size -= taken_size
        self.taken_size = taken_size
        return messages, taken_size

    def put_back(self, messages: Sequence[Message], position: int) -> int:
        """Put what was taken last before what is queued, and move the position back to this one.

        Returns:
            The bytes of the records.
        """
        self._runs.appendleft(_QueuedRun(messages, self.taken_size))
        self.position = position
        self.records += len(messages)
        self.size += self.taken_size
        return self.taken_size

    def clear(self) -> tuple[int, int]:
        """Drop what is queued; return how many records and bytes that was."""
        dropped = self.records, self.size
        self._runs.clear()
        self.records = self.size = self.passed_to = 0
        self.fault = None
        return dropped


@final
class BufferLimits:
    """Counts the records and bytes between a fetcher and ``receive``, and says when to stop."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._full_records = max(1, int(max_records * FULL))
        self._full_bytes = max(1, int(max_bytes * FULL))
        self._low_records = int(self._full_records * RESUME)
        self._low_bytes = int(self._full_bytes * RESUME)
        self.stopped = False
        self.waiting = 0
        """How many readers wait for records; only the source writes it."""
        self._delivered_records = self._delivered_bytes = 0
        self._removed_records = self._removed_bytes = 0

    def count_delivered(self, records: int, size: int) -> None:
        """Count what is about to be delivered. Only the fetcher calls this."""
        self._delivered_records += records
        self._delivered_bytes += size

    def count_removed(self, records: int, size: int) -> None:
        """Count what was handed out or dropped; less than 0 for what is put back.

        Only the source calls this.
        """
        self._removed_records += records
        self._removed_bytes += size

    @property
    def records(self) -> int:
        """The records between fetcher and ``receive``."""
        return self._delivered_records - self._removed_records

    @property
    def bytes(self) -> int:
        """Their bytes."""
        return self._delivered_bytes - self._removed_bytes

    def is_full(self) -> bool:
        """Whether fetching has to stop."""
        return self.records >= self._full_records or self.bytes >= self._full_bytes

    def is_low(self) -> bool:
        """Whether fetching can resume after it stopped."""
        return self.records <= self._low_records and self.bytes <= self._low_bytes

    def over_share(self, records: int, size: int, partitions: int) -> bool:
        """Whether a partition with so many records holds more than its equal part."""
        return records * partitions >= self._full_records or size * partitions >= self._full_bytes

    def far_below_share(self, records: int, size: int, partitions: int) -> bool:
        """Whether a partition that was held back has little enough left to resume."""
        return (
            records * partitions <= self._full_records * RELEASE
            and size * partitions <= self._full_bytes * RELEASE
        )

    def __repr__(self) -> str:
        state = "stopped" if self.stopped else "open"
        return f"<BufferLimits {state}: {self.records} records, {self.bytes} bytes>"
