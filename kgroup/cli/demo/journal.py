"""A worker's journal: what it has done, written down before it goes on.

Each entry is one line in a file of the worker's own, handed to the kernel by one call, so that
what was written survives a SIGKILL. The conductor reads the files, while they grow and at the end,
and counts from nothing else. Times are those of the machine's monotonic clock, which all
processes share.

INVARIANT: a record is written down before the commit that covers it begins.
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
class Entry:
    """The root of all entries.

    Attributes:
        time: when it was written, in seconds.
        generation: the generation's id.
        epoch: the worker's own number of the generation.
    """

    kind: ClassVar[str]
    time: float
    generation: int
    epoch: int


@final
@attrs.frozen(kw_only=True)
class Started(Entry):
    """The worker was handed a generation, with these partitions."""

    kind: ClassVar = "started"
    partitions: list[int]


@final
@attrs.frozen(kw_only=True)
class Ended(Entry):
    """A generation of the worker's is over."""

    kind: ClassVar = "ended"
    why: str


@final
@attrs.frozen(kw_only=True)
class Received(Entry):
    """The worker has a batch in hand: the offsets from ``first`` up to, not including, ``next``."""

    kind: ClassVar = "received"
    partition: int
    first: int
    next: int


@final
@attrs.frozen(kw_only=True)
class RecordProcessed(Entry):
    """A record was processed: its words were counted."""

    kind: ClassVar = "processed"
    partition: int
    offset: int
    words: Mapping[str, int]


@final
@attrs.frozen(kw_only=True)
class Committing(Entry):
    """A commit of ``next`` begins."""

    kind: ClassVar = "committing"
    partition: int
    next: int


@final
@attrs.frozen(kw_only=True)
class CommitDone(Entry):
    """That commit was accepted."""

    kind: ClassVar = "committed"
    partition: int
    next: int


@final
@attrs.frozen(kw_only=True)
class Refused(Entry):
    """That commit was refused, because its generation has passed."""

    kind: ClassVar = "refused"
    partition: int
    next: int
    why: str


KINDS: Final[Mapping[str, type[Entry]]] = {
    entry.kind: entry
    for entry in (Started, Ended, Received, RecordProcessed, Committing, CommitDone, Refused)
}


@final
class Journal:
    """The side that writes; a context manager that closes the file."""

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
        """The program was handed a generation."""
        numbers = [partition.partition for partition in generation.assignment]
        self._write(Started.kind, generation, partitions=numbers)

    def received(
        self, generation: Generation, partition: TopicPartition, first: int, after: int
    ) -> None:
        """A batch is in hand: the offsets from ``first`` up to, not including, ``after``."""
        self._write(
            Received.kind, generation, partition=partition.partition, first=first, next=after
        )

    def processed(
        self, generation: Generation, partition: int, offset: int, words: Mapping[str, int]
    ) -> None:
        """The words of a record were counted."""
        self._write(
            RecordProcessed.kind, generation, partition=partition, offset=offset, words=words
        )

    @contextmanager
    def committing(
        self, generation: Generation, offsets: Mapping[TopicPartition, int]
    ) -> Iterator[None]:
        """Around the commit of a batch: writes that it begins, and what came of it."""
        what = [{"partition": name.partition, "next": at} for name, at in offsets.items()]
        for one in what:
            self._write(Committing.kind, generation, **one)
        try:
            yield
        except StaleGenerationError as error:
            for one in what:
                self._write(Refused.kind, generation, **one, why=str(error))
            raise
        for one in what:
            self._write(CommitDone.kind, generation, **one)

    def event(self, event: Event) -> None:
        """Of what the group tells, the journal has the ends of generations."""
        if isinstance(event, GenerationEnded):
            self._put([Ended.kind, event.generation_id, event.epoch, {"why": str(event.end)}])

    def _write(self, kind: str, generation: Generation, **more: Any) -> None:
        self._put([kind, generation.generation_id, generation.epoch, more])

    def _put(self, parts: list[Any]) -> None:
        line = json.dumps([time.monotonic(), *parts], separators=(",", ":")) + "\n"
        os.write(self._file, line.encode())


@final
class JournalReader:
    """The side that reads: gives each entry once, as the file grows."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._position = 0

    def new_entries(self) -> Iterator[Entry]:
        """The entries since the last call. A line that is not whole yet waits for the next."""
        try:
            with self._path.open("rb") as file:
                file.seek(self._position)
                data = file.read()
        except FileNotFoundError:
            return
        whole = data[: data.rfind(b"\n") + 1]
        self._position += len(whole)
        for line in whole.splitlines():
            at, kind, generation, epoch, more = json.loads(line)
            yield KINDS[kind](time=at, generation=generation, epoch=epoch, **more)
