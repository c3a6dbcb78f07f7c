"""A worker's journal: the worker writes down each step before it takes the next one.

Each worker has a file of its own. An entry is one line, written by one system call, so that it
survives a SIGKILL of the worker. The director reads the files while they grow and at the end; the
audit counts from nothing else. Times are those of the machine's monotonic clock, which all
processes share.

INVARIANT: a record is written to the journal before the commit that covers it begins.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Final, Self, final

import attrs

from kgroup.errors import StaleGenerationError
from kgroup.events import Event, GenerationEnded
from kgroup.generation.generation import Generation
from kgroup.types import TopicPartition


@attrs.frozen(kw_only=True)
class JournalEntry:
    """The base class of all entries.

    Attributes:
        time: when it was written, in seconds.
        generation: the generation's id.
        epoch: the generation's epoch, which is unique within a worker.
    """

    kind: ClassVar[str]
    time: float
    generation: int
    epoch: int


@final
@attrs.frozen(kw_only=True)
class Started(JournalEntry):
    """The worker received a generation with these partitions."""

    kind: ClassVar = "started"
    partitions: list[int]


@final
@attrs.frozen(kw_only=True)
class Ended(JournalEntry):
    """A generation of the worker has ended."""

    kind: ClassVar = "ended"
    why: str


@final
@attrs.frozen(kw_only=True)
class Received(JournalEntry):
    """The worker received a batch: the offsets from ``first`` up to, not including, ``next``."""

    kind: ClassVar = "received"
    partition: int
    first: int
    next: int


@final
@attrs.frozen(kw_only=True)
class RecordProcessed(JournalEntry):
    """A record was processed: its words were counted."""

    kind: ClassVar = "processed"
    partition: int
    offset: int
    words: Mapping[str, int]


@final
@attrs.frozen(kw_only=True)
class Committing(JournalEntry):
    """The worker is about to commit the offset ``next``."""

    kind: ClassVar = "committing"
    partition: int
    next: int


@final
@attrs.frozen(kw_only=True)
class CommitDone(JournalEntry):
    """The coordinator accepted the commit."""

    kind: ClassVar = "committed"
    partition: int
    next: int


@final
@attrs.frozen(kw_only=True)
class Refused(JournalEntry):
    """The commit was refused, because its generation had ended."""

    kind: ClassVar = "refused"
    partition: int
    next: int
    why: str


KINDS: Final[Mapping[str, type[JournalEntry]]] = {
    entry.kind: entry
    for entry in (Started, Ended, Received, RecordProcessed, Committing, CommitDone, Refused)
}


@final
class Journal:
    """The writing side; a context manager that closes the file."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        os.close(self._file)

    def started(self, generation: Generation) -> None:
        """Write that the worker received a generation."""
        numbers = [partition.partition for partition in generation.assignment]
        self._write(Started.kind, generation, partitions=numbers)

    def received(
        self, generation: Generation, partition: TopicPartition, first: int, after: int
    ) -> None:
        """Write that a batch was received: from ``first`` up to, not including, ``after``."""
        self._write(
            Received.kind, generation, partition=partition.partition, first=first, next=after
        )

    def processed(
        self, generation: Generation, partition: int, offset: int, words: Mapping[str, int]
    ) -> None:
        """Write the words of a record."""
        self._write(
            RecordProcessed.kind, generation, partition=partition, offset=offset, words=words
        )

    @contextmanager
    def committing(
        self, generation: Generation, offsets: Mapping[TopicPartition, int]
    ) -> Iterator[None]:
        """Surround the commit of a batch: write that it begins, and whether it was accepted."""
        commits = [{"partition": name.partition, "next": at} for name, at in offsets.items()]
        for commit in commits:
            self._write(Committing.kind, generation, **commit)
        try:
            yield
        except StaleGenerationError as error:
            for commit in commits:
                self._write(Refused.kind, generation, **commit, why=str(error))
            raise
        for commit in commits:
            self._write(CommitDone.kind, generation, **commit)

    def event(self, event: Event) -> None:
        """Write the ends of generations; other events of the group are left out."""
        if isinstance(event, GenerationEnded):
            self._put([Ended.kind, event.generation_id, event.epoch, {"why": str(event.end)}])

    def _write(self, kind: str, generation: Generation, **fields: Any) -> None:
        self._put([kind, generation.generation_id, generation.epoch, fields])

    def _put(self, entry: list[Any]) -> None:
        line = json.dumps([time.monotonic(), *entry], separators=(",", ":")) + "\n"
        os.write(self._file, line.encode())


@final
class JournalReader:
    """The reading side: returns each entry once, while the file grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def new_entries(self) -> Iterator[JournalEntry]:
        """The entries since the last call. An incomplete last line is left for the next call."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return
        complete = data[: data.rfind(b"\n") + 1]
        self._position += len(complete)
        for line in complete.splitlines():
            at, kind, generation, epoch, fields = json.loads(line)
            yield KINDS[kind](time=at, generation=generation, epoch=epoch, **fields)
