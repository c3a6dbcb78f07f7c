"""The records of one partition that were fetched and not handed out yet.

INVARIANT: what is queued continues ``position`` without a gap that a reader could see: the first
queued record is the log's first one at or after ``position``.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from itertools import chain
from typing import final

import trio

from kgroup.interfaces import Message
from kgroup.records.fetched import FetchedRun, OutOfRange, Unreadable
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
