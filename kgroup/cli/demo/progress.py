"""The workers' progress, read from their journals.

The director waits by it, and the display shows it. Whether it is right is for the audit to decide.
"""

from __future__ import annotations

import enum
from collections.abc import Collection, Iterator
from typing import final

import attrs

from kgroup.cli.demo.journal import (
    CommitDone,
    Ended,
    JournalEntry,
    JournalReader,
    Received,
    RecordProcessed,
    Started,
)
from kgroup.cli.demo.processes import Child


@final
class Condition(enum.Enum):
    """The state of a worker's process."""

    RUNNING = "running"
    FROZEN = "frozen"
    STOPPED = "stopped"
    KILLED = "killed"
    FAILED = "failed"


@final
@attrs.define(eq=False, kw_only=True)
class Worker:
    """One worker.

    Attributes:
        child: its process.
        journal: the reader of its journal.
        condition: the state of its process, as the director has set it.
        entries: all entries of its journal so far.
        generation: the id of its latest generation, -1 before the first.
        owned: its partitions in that generation; none once it has ended.
        processed: how many records it has processed.
    """

    child: Child
    journal: JournalReader
    condition: Condition = Condition.RUNNING
    entries: list[JournalEntry] = attrs.field(factory=list)
    generation: int = -1
    owned: frozenset[int] = frozenset()
    processed: int = 0
    _epoch: int = 0
    _in_hand: dict[int, Received] = attrs.field(factory=dict)
    _reached: dict[int, int] = attrs.field(factory=dict)

    @property
    def name(self) -> str:
        """Its name."""
        return self.child.name

    @property
    def halfway(self) -> bool:
        """Whether it has processed a part of a batch, but not all of it."""
        return any(
            batch.first < self._reached.get(partition, 0) < batch.next
            for partition, batch in self._in_hand.items()
        )

    def read(self) -> Iterator[JournalEntry]:
        """Read the new entries of its journal."""
        for entry in self.journal.new_entries():
            self.entries.append(entry)
            self._record(entry)
            yield entry

    def _record(self, entry: JournalEntry) -> None:
        match entry:
            case Started():
                self.generation, self._epoch = entry.generation, entry.epoch
                self.owned = frozenset(entry.partitions)
                self._in_hand.clear()
            case Ended() if entry.epoch == self._epoch:
                self.owned = frozenset()
                self._in_hand.clear()
            case Received():
                self._in_hand[entry.partition] = entry
            case RecordProcessed():
                self.processed += 1
                self._reached[entry.partition] = entry.offset + 1
            case CommitDone():
                self._in_hand.pop(entry.partition, None)


@final
class WorkerProgress:
    """All workers, and what they have done together.

    Attributes:
        workers: the workers, in the order in which they were started.
        done: partition and offset of every record that was processed.
        committed: the highest accepted commit of each partition.
    """

    def __init__(self) -> None:
        self.workers: list[Worker] = []
        self.done: set[tuple[int, int]] = set()
        self.committed: dict[int, int] = {}

    def read(self) -> None:
        """Read the new entries of every journal."""
        for worker in self.workers:
            for entry in worker.read():
                if isinstance(entry, RecordProcessed):
                    self.done.add((entry.partition, entry.offset))
                elif isinstance(entry, CommitDone):
                    furthest = max(entry.next, self.committed.get(entry.partition, 0))
                    self.committed[entry.partition] = furthest

    @property
    def running(self) -> list[Worker]:
        """The workers that have neither ended nor been frozen."""
        return [worker for worker in self.workers if worker.condition is Condition.RUNNING]

    def settled(self, partitions: int) -> bool:
        """Whether the running workers share all partitions in one generation."""
        running = self.running
        owned = [number for worker in running for number in worker.owned]
        return len({worker.generation for worker in running}) == 1 and sorted(owned) == list(
            range(partitions)
        )

    def all_committed(self, records: Collection[tuple[int, int]]) -> bool:
        """Whether each of these records was processed, and is covered by a commit."""
        # It is asked many times a second, and while records are missing their number says so.
        return len(self.done) >= len(records) and all(
            record in self.done and record[1] < self.committed.get(record[0], 0)
            for record in records
        )
