"""How the director follows its workers by their journals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from kgroup.cli.demo.journal import (
    CommitDone,
    Committing,
    Ended,
    JournalEntry,
    JournalReader,
    Received,
    RecordProcessed,
    Started,
)
from kgroup.cli.demo.processes import Child
from kgroup.cli.demo.progress import Condition, Worker, WorkerProgress


class Scripted:
    """Replaces the reader of a journal."""

    def __init__(self) -> None:
        self.waiting: list[JournalEntry] = []

    def new_entries(self) -> Iterator[JournalEntry]:
        """The entries that were added since the last call."""
        while self.waiting:
            yield self.waiting.pop(0)


class Harness:
    """The progress of workers whose journals the test writes."""

    def __init__(self, workers: int) -> None:
        self.watch = WorkerProgress()
        self.readers = [Scripted() for _ in range(workers)]
        for reader in self.readers:
            child = cast("Child", None)
            self.watch.workers.append(Worker(child=child, journal=cast("JournalReader", reader)))

    def write(
        self, worker: int, kind: type[JournalEntry], generation: int, epoch: int = 1, **more: Any
    ) -> None:
        """Write an entry of a worker and read it."""
        entry = kind(time=0.0, generation=generation, epoch=epoch, **more)
        self.readers[worker].waiting.append(entry)
        self.watch.read()


@pytest.fixture
def harness() -> Harness:
    """Two workers that share three partitions."""
    harness = Harness(2)
    harness.write(0, Started, 5, partitions=[0, 1])
    harness.write(1, Started, 5, partitions=[2])
    return harness


def test_settled(harness: Harness) -> None:
    """The group has settled when one generation owns all partitions."""
    assert harness.watch.settled(3)


def test_not_settled_without_a_partition(harness: Harness) -> None:
    """The group has not settled while no worker owns a new partition."""
    assert not harness.watch.settled(4)


def test_not_settled_in_two_generations(harness: Harness) -> None:
    """Two workers in different generations have not settled."""
    harness.write(1, Started, 6, epoch=2, partitions=[2])
    assert not harness.watch.settled(3)


def test_not_settled_after_the_end_of_a_generation(harness: Harness) -> None:
    """An ended generation owns nothing; the end of an older generation changes nothing."""
    harness.write(0, Ended, 4, epoch=0, why="")
    assert harness.watch.settled(3)
    harness.write(0, Ended, 5, why="")
    assert not harness.watch.settled(3)


def test_ended_and_frozen_workers_do_not_count(harness: Harness) -> None:
    """The running workers must own all partitions, those of ended and frozen ones included."""
    harness.watch.workers[1].condition = Condition.FROZEN
    assert not harness.watch.settled(3)
    harness.write(0, Started, 6, epoch=2, partitions=[0, 1, 2])
    assert harness.watch.settled(3)


def test_halfway(harness: Harness) -> None:
    """A worker is halfway once it has processed a part of a batch, but not all of it."""
    halfway = []

    def write(kind: type[JournalEntry], **more: Any) -> None:
        harness.write(0, kind, 5, **more)
        halfway.append(harness.watch.workers[0].halfway)

    write(Received, partition=1, first=10, next=12)
    write(RecordProcessed, partition=1, offset=10, words={})
    write(RecordProcessed, partition=1, offset=11, words={})
    write(Committing, partition=1, next=12)
    write(CommitDone, partition=1, next=12)
    write(Received, partition=1, first=12, next=14)
    write(RecordProcessed, partition=1, offset=12, words={})
    write(Ended, why="")
    assert halfway == [False, True, False, False, False, False, True, False]
    assert harness.watch.workers[0].processed == 3


def test_all_committed(harness: Harness) -> None:
    """Every record has to be processed and covered by a commit."""
    harness.write(0, RecordProcessed, 5, partition=1, offset=0, words={})
    harness.write(0, CommitDone, 5, partition=1, next=2)
    assert harness.watch.all_committed([(1, 0)])
    assert not harness.watch.all_committed([(1, 0), (1, 1)])
    harness.write(0, RecordProcessed, 5, partition=1, offset=1, words={})
    assert harness.watch.all_committed([(1, 0), (1, 1)])
    harness.write(0, RecordProcessed, 5, partition=1, offset=2, words={})
    assert not harness.watch.all_committed([(1, 2)])


def test_a_worker_without_a_journal_yet(tmp_path: Path) -> None:
    """A file that is not there yet has no entries."""
    assert list(JournalReader(tmp_path / "none").new_entries()) == []
