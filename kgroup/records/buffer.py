"""The records of one partition that were fetched and not handed out yet.

INVARIANT: what is queued continues ``position`` without a gap that a reader could see: the first
queued record is the log's first one at or after ``position``.


How much is fetched and not handed out, and when fetching has to stop.

Counters only rise and each has one writer, so that a fetcher's thread and the event loop's can
share a ledger without a lock: the fetcher counts what it handed over, the queues what left
them. ``stopped`` is a handshake: only the fetcher sets it, and then does nothing until the
queues clear it by ``Fetcher.go``.

The bounds: librdkafka keeps half of what may be buffered in its own queue, where a record costs
least: a Python object that waits is gone through by the garbage collector and falls out of the
processor's cache. Fetching stops at a quarter here (``FULL``), and goes on when the half of that
is gone. When a partition
starves while others fill the ledger, those that hold more than their equal part of ``FULL`` are
held back and fetching goes on; since the rest hold less than ``FULL`` together, at most twice
``FULL`` is ever here, and with librdkafka's half that is all of it. Each of them can be overshot
by one hand-over.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from fractions import Fraction
from itertools import chain
from typing import Final, final

import trio

from kgroup.interfaces import Message
from kgroup.records.fetcher import FetchedRun, OutOfRange, Unreadable
from kgroup.types import TopicPartition


@final
class _Queued:
    """A run, and how many of its records have left."""

    __slots__ = ("messages", "size", "start")

    def __init__(self, run: FetchedRun) -> None:
        self.messages = run.messages
        self.size = run.size
        self.start = 0


@final
class PartitionQueue:
    """One partition of a generation: its queue, its position and its switches.

    Attributes:
        position: the next offset to hand out; nothing before it is.
        ticket: the fetch whose records belong here, 0 for none.
        opened: whether a stream reads it.
        paused: whether the stream is paused by its reader.
        held: whether its fetch is held back, because it has far more than its share.
        fault: why nothing follows what is queued, or None.
        waiter: the ``receive`` that waits for it, or None.
        records: how many are queued.
        size: their bytes.
    """

    __slots__ = (
        "_runs",
        "fault",
        "held",
        "opened",
        "partition",
        "paused",
        "position",
        "records",
        "size",
        "ticket",
        "waiter",
    )

    def __init__(self, partition: TopicPartition, position: int) -> None:
        self.partition = partition
        self.position = position
        self.ticket = 0
        self.opened = False
        self.paused = False
        self.held = False
        self.fault: OutOfRange | Unreadable | None = None
        self.waiter: trio.Event | None = None
        self.records = 0
        self.size = 0
        self._runs: deque[_Queued] = deque()

    @property
    def ready(self) -> bool:
        """Whether a ``receive`` has something to return or to raise."""
        return self.opened and not self.paused and (bool(self._runs) or self.fault is not None)

    def continues_at(self, offset: int) -> bool:
        """Whether a reader at this offset would go on with exactly what is queued or under way.

        Between the position and the first queued record the log has nothing to read (markers of
        transactions, records compacted away), so any offset between them continues here.
        """
        if not self.ticket or self.fault is not None:
            return False
        if self._runs:
            first = self._runs[0]
            return self.position <= offset <= first.messages[first.start].offset()
        return offset == self.position

    def put(self, run: FetchedRun) -> None:
        """Queue records that follow those queued before."""
        self._runs.append(_Queued(run))
        self.records += len(run.messages)
        self.size += run.size

    def take(self, limit: int) -> tuple[Sequence[Message], int]:
        """The next records, at most ``limit``, and their bytes; the position moves past them."""
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
        self.records -= len(messages)
        self.size -= taken_size
        return messages, taken_size

    def clear(self) -> tuple[int, int]:
        """Drop what is queued; returns how many records and bytes that was."""
        dropped = self.records, self.size
        self._runs.clear()
        self.records = self.size = 0
        self.fault = None
        return dropped

    def wake(self) -> None:
        """Wake the ``receive`` that waits for it, if there is one."""
        if self.waiter is not None:
            self.waiter.set()


LIBRDKAFKA_PART: Final = Fraction(1, 2)
"""What librdkafka's own queue may hold of the buffer."""
FULL: Final = Fraction(1, 4)
"""What the queues hold when fetching stops."""
RESUME: Final = Fraction(1, 2)
"""Fetching goes on when no more than this part of ``FULL`` is left."""
RELEASE: Final = Fraction(1, 4)
"""A held partition is released when it has no more than this part of its share."""


@final
class BufferLimits:
    """Counts records and bytes on their way from a fetcher to ``receive``."""

    def __init__(self, max_records: int, max_bytes: int) -> None:
        self._full_records = max(1, int(max_records * FULL))
        self._full_bytes = max(1, int(max_bytes * FULL))
        self._low_records = int(self._full_records * RESUME)
        self._low_bytes = int(self._full_bytes * RESUME)
        self.stopped = False
        self._in_records = self._in_bytes = 0
        self._out_records = self._out_bytes = 0

    def handed_over(self, records: int, size: int) -> None:
        """The fetcher: count what it is about to hand over."""
        self._in_records += records
        self._in_bytes += size

    def gone(self, records: int, size: int) -> None:
        """The queues: count what was handed out or dropped."""
        self._out_records += records
        self._out_bytes += size

    @property
    def records(self) -> int:
        """Records on their way."""
        return self._in_records - self._out_records

    @property
    def bytes(self) -> int:
        """Bytes on their way."""
        return self._in_bytes - self._out_bytes

    def is_full(self) -> bool:
        """Whether fetching has to stop."""
        return self.records >= self._full_records or self.bytes >= self._full_bytes

    def is_low(self) -> bool:
        """Whether fetching can go on after it stopped."""
        return self.records <= self._low_records and self.bytes <= self._low_bytes

    def over_share(self, records: int, size: int, partitions: int) -> bool:
        """Whether one of so many partitions holds more than its equal part."""
        return records * partitions >= self._full_records or size * partitions >= self._full_bytes

    def far_below_share(self, records: int, size: int, partitions: int) -> bool:
        """Whether a partition that was held back has little enough left to go on."""
        return (
            records * partitions <= self._full_records * RELEASE
            and size * partitions <= self._full_bytes * RELEASE
        )

    def __repr__(self) -> str:
        state = "stopped" if self.stopped else "open"
        return f"<BufferLimits {state}: {self.records} records, {self.bytes} bytes>"
