"""A journal: the director reads the entries that a worker wrote."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, cast

import attrs
import pytest

from kgroup.cli.demo.journal import (
    CommitDone,
    Committing,
    Ended,
    Journal,
    JournalReader,
    Received,
    RecordProcessed,
    Refused,
    Started,
)
from kgroup.errors import StaleGenerationError
from kgroup.events import GenerationEnded, GenerationStarted
from kgroup.generation.generation import Generation
from kgroup.types import Assignment, Cause, End, TopicPartition

PARTITION = TopicPartition("t", 3)


@attrs.frozen
class FakeGeneration:
    """The attributes of a generation that a journal reads."""

    generation_id: int = 7
    epoch: int = 2
    assignment: Assignment = Assignment([PARTITION, TopicPartition("t", 5)])


GENERATION = cast("Generation", FakeGeneration())


def test_entries_are_read_as_written(tmp_path: Path) -> None:
    """Every kind of entry is read in order, with its time and its generation."""
    path = tmp_path / "journal"
    began = time.monotonic()
    end = End(Cause.CLOSED, "enough")
    with Journal(path) as journal:
        journal.started(GENERATION)
        journal.received(GENERATION, PARTITION, 10, 13)
        journal.processed(GENERATION, 3, 12, {"é": 2})
        with journal.committing(GENERATION, {PARTITION: 13}):
            pass
        with (
            pytest.raises(StaleGenerationError, match="passed"),
            journal.committing(GENERATION, {PARTITION: 13}),
        ):
            raise StaleGenerationError("it has passed")
        journal.event(GenerationStarted(group_id="g"))
        journal.event(
            GenerationEnded(group_id="g", generation_id=7, epoch=2, end=end, cut_short=False)
        )
    entries = list(JournalReader(path).new_entries())
    times = [entry.time for entry in entries]
    assert began <= times[0]
    assert times == sorted(times)
    assert times[-1] <= time.monotonic()
    which: dict[str, Any] = {"time": 0.0, "generation": 7, "epoch": 2}
    assert [attrs.evolve(entry, time=0.0) for entry in entries] == [
        Started(**which, partitions=[3, 5]),
        Received(**which, partition=3, first=10, next=13),
        RecordProcessed(**which, partition=3, offset=12, words={"é": 2}),
        Committing(**which, partition=3, next=13),
        CommitDone(**which, partition=3, next=13),
        Committing(**which, partition=3, next=13),
        Refused(**which, partition=3, next=13, why="it has passed"),
        Ended(**which, why="closed: enough"),
    ]


def test_a_commit_whose_outcome_is_unknown_has_none(tmp_path: Path) -> None:
    """After another error the commit is neither accepted nor refused; the caller gets the error."""
    path = tmp_path / "journal"
    with (
        Journal(path) as journal,
        pytest.raises(TimeoutError),
        journal.committing(GENERATION, {PARTITION: 13}),
    ):
        raise TimeoutError
    assert [entry.kind for entry in JournalReader(path).new_entries()] == ["committing"]


def test_an_incomplete_line_is_not_read(tmp_path: Path) -> None:
    """A reader returns each entry once, after its whole line was written."""
    path = tmp_path / "journal"
    with Journal(path) as journal:
        journal.started(GENERATION)
        journal.received(GENERATION, PARTITION, 10, 13)
    whole = path.read_bytes()
    reader = JournalReader(path)
    read = []
    for size in range(len(whole) + 1):
        path.write_bytes(whole[:size])
        read += [(size, entry.kind) for entry in reader.new_entries()]
    first = whole.index(b"\n") + 1
    assert read == [(first, "started"), (len(whole), "received")]


def test_entries_are_there_before_the_journal_is_closed(tmp_path: Path) -> None:
    """The entries of a killed worker, which does not close its journal, can be read."""
    path = tmp_path / "journal"
    with Journal(path) as journal:
        journal.started(GENERATION)
        assert len(list(JournalReader(path).new_entries())) == 1
