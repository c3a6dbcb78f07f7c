"""Counts the records of one simulation: written, processed, and why the others were not processed.

Not every record that was written can be processed: members that read only committed records never
get those of an aborted transaction, and a topic is deleted with its unread records. Without
these counts the difference between what was written and what was processed looks like a loss.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Final, final

from kgroup.testing.simulation.history import (
    Appended,
    HistoryEntry,
    Processed,
    TopicChanged,
    TransactionEnded,
)
from kgroup.types import TopicPartition

_Log = tuple[TopicPartition, int]
"""A partition of one creation of its topic."""


@final
class RecordCounts:
    """Counts them, entry by entry.

    Attributes:
        written: how many were written.
        repeated: how often one was processed again by the same group.
    """

    def __init__(self) -> None:
        self.written = 0
        self.repeated = 0
        self._processed: Final[defaultdict[_Log, set[int]]] = defaultdict(set)
        self._processed_by: Final[defaultdict[tuple[str, _Log], set[int]]] = defaultdict(set)
        self._unprocessed: Final[defaultdict[_Log, set[int]]] = defaultdict(set)
        self._aborted: Final[defaultdict[_Log, set[int]]] = defaultdict(set)
        self._open: Final[defaultdict[tuple[int, TopicPartition], list[tuple[_Log, int]]]] = (
            defaultdict(list)
        )
        self._creations: Final[dict[str, int]] = {}

    @property
    def processed(self) -> int:
        """How many records were processed, each counted once."""
        return sum(map(len, self._processed.values()))

    @property
    def aborted(self) -> int:
        """How many were in a transaction that was aborted, and were not processed."""
        return sum(len(left & self._aborted[log]) for log, left in self._unprocessed.items())

    @property
    def deleted(self) -> int:
        """How many others were deleted with their topic before they were processed."""
        return sum(
            len(left - self._aborted[log])
            for log, left in self._unprocessed.items()
            if self._creation(log[0].topic) != log[1]
        )

    def add(self, entry: HistoryEntry) -> None:
        """Count an entry of the history."""
        match entry:
            case Appended():
                self._append(entry)
            case Processed():
                log = entry.partition, entry.creation
                by_group = self._processed_by[entry.group_id, log]
                self.repeated += entry.offset in by_group
                by_group.add(entry.offset)
                self._processed[log].add(entry.offset)
                self._unprocessed[log].discard(entry.offset)
            case TransactionEnded():
                self._end(entry)
            case TopicChanged():
                self._creations[entry.topic] = entry.creation if entry.partitions else 0
            case _:
                pass

    def _creation(self, topic: str) -> int:
        """The current creation of a topic; 0 while it does not exist."""
        return self._creations.get(topic, 1)

    def _append(self, entry: Appended) -> None:
        log = entry.partition, self._creation(entry.partition.topic)
        offsets = range(entry.first, entry.next_offset)
        self.written += len(offsets)
        self._unprocessed[log].update(offsets)
        if entry.producer_id is not None:
            self._open[entry.producer_id, entry.partition] += [(log, one) for one in offsets]

    def _end(self, entry: TransactionEnded) -> None:
        for partition, _ in entry.markers:
            for log, offset in self._open.pop((entry.producer_id, partition), ()):
                if not entry.committed:
                    self._aborted[log].add(offset)
