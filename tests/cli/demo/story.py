"""The journals of a small group; tests change a detail and check what the audit finds.

There are two partitions of eight lines. `first` is killed, `second` is frozen and woken, `third`
processes the rest.
"""

from __future__ import annotations

from typing import Any, Final

import attrs

from kgroup.cli.demo.audit import Disturbance, Evidence
from kgroup.cli.demo.journal import (
    KINDS,
    CommitDone,
    Committing,
    JournalEntry,
    Received,
    RecordProcessed,
    Refused,
    Started,
)
from kgroup.cli.demo.text import words_of

LINES: Final = tuple(f"line {number} of {number % 3}" for number in range(16))
PLACED: Final = {(number // 8, number % 8): number for number in range(16)}
KILLED_AT: Final = 15.0
FROZEN_AT: Final = 35.0
WOKEN_AT: Final = 55.0


class Story:
    """Writes journals entry by entry; the time advances by itself."""

    def __init__(self) -> None:
        self.time = 0.0
        self.journals: dict[str, list[JournalEntry]] = {"first": [], "second": [], "third": []}
        self.epochs: dict[str, int] = dict.fromkeys(self.journals, 0)
        self.generations: dict[str, int] = {}

    def at(self, time: float) -> None:
        """Advance to this time."""
        self.time = time

    def put(self, worker: str, kind: type[JournalEntry], **more: Any) -> None:
        """Write an entry."""
        self.time += 0.001
        entry = kind(
            time=self.time, generation=self.generations[worker], epoch=self.epochs[worker], **more
        )
        assert type(entry) in KINDS.values()
        self.journals[worker].append(entry)

    def starts(self, worker: str, generation: int, *partitions: int) -> None:
        """A worker gets a generation."""
        self.generations[worker] = generation
        self.epochs[worker] += 1
        self.put(worker, Started, partitions=list(partitions))

    def receives(self, worker: str, partition: int, first: int, after: int) -> None:
        """A worker receives a batch."""
        self.put(worker, Received, partition=partition, first=first, next=after)

    def processes(self, worker: str, partition: int, first: int, after: int) -> None:
        """A worker processes records correctly."""
        for offset in range(first, after):
            number = PLACED.get((partition, offset), 0)
            words = dict(words_of(LINES[number]))
            self.put(worker, RecordProcessed, partition=partition, offset=offset, words=words)

    def commits(self, worker: str, partition: int, after: int, *, refused: bool = False) -> None:
        """A worker commits."""
        self.put(worker, Committing, partition=partition, next=after)
        if refused:
            self.put(worker, Refused, partition=partition, next=after, why="stale")
        else:
            self.put(worker, CommitDone, partition=partition, next=after)

    def handles(self, worker: str, partition: int, first: int, after: int) -> None:
        """A worker receives, processes and commits a batch."""
        self.receives(worker, partition, first, after)
        self.processes(worker, partition, first, after)
        self.commits(worker, partition, after)

    def evidence(self, **changed: Any) -> Evidence:
        """The input of the audit."""
        evidence = Evidence(
            lines=LINES,
            sent=len(LINES),
            placed=PLACED,
            journals=self.journals,
            kill=Disturbance(worker="first", time=KILLED_AT),
            freeze=Disturbance(worker="second", time=FROZEN_AT, woken=WOKEN_AT),
            committed={0: 8, 1: 8},
            problems=(),
            seconds=60.0,
        )
        return attrs.evolve(evidence, **changed)


def whole_story() -> Story:
    """A complete story without a fault.

    The kill repeats two records, the freeze three; one stale commit is refused.
    """
    story = Story()
    story.starts("first", 1, 0)
    story.starts("second", 1, 1)
    story.handles("first", 0, 0, 2)
    story.handles("second", 1, 0, 2)
    story.receives("first", 0, 2, 5)
    story.processes("first", 0, 2, 4)
    story.at(KILLED_AT + 10)
    story.starts("second", 2, 0, 1)
    story.handles("second", 0, 2, 4)
    story.handles("second", 1, 2, 4)
    story.receives("second", 1, 4, 7)
    story.processes("second", 1, 4, 6)
    story.at(FROZEN_AT + 10)
    story.starts("third", 3, 0, 1)
    story.handles("third", 1, 4, 8)
    story.at(WOKEN_AT)
    story.processes("second", 1, 6, 7)
    story.commits("second", 1, 7, refused=True)
    story.handles("third", 0, 4, 8)
    return story
