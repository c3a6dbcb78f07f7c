"""What a worker does with processed records: each benchmark has a sink of its own.

- ``journal`` writes a line for each record: partition, offset, the record's value (when it was
  produced), and when it was processed;
- ``meter`` measures records per second and CPU from the first batch to the last one wanted;
- ``first`` measures the time from the start of the client to its first record, and that to its end;
  of a client that says so, also that to its partitions.

Times are of the machine's monotonic clock, in seconds.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Final, Protocol, final

from benchmarks.clients.job import Ended, Job, Row


class Sink(Protocol):
    """Takes the records of one run of a client."""

    def note(self, number: int, rows: Iterable[Row]) -> None:
        """Take a batch that has been processed."""

    def close(self) -> None:
        """The client has returned."""


@final
class Journal:
    """Writes a line for each record."""

    def __init__(self, job: Job, ended: Ended) -> None:
        del ended
        self._file = Path(job.journal).open("a", encoding="utf-8")  # noqa: SIM115 # closed by close()

    def note(self, number: int, rows: Iterable[Row]) -> None:
        """Write a line for each record, all in one piece; a reader may refuse the rest of them."""
        del number
        done, lines = time.monotonic(), list[str]()
        try:
            for partition, offset, value in rows:
                lines.append(f"{partition} {offset} {_text(value)} {done}\n")
        finally:
            self._file.write("".join(lines))
            self._file.flush()

    def close(self) -> None:
        """Close the file."""
        self._file.close()


def _text(value: bytes | str | None) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


@final
class Meter:
    """Measures time and CPU from the first batch to the last one wanted."""

    def __init__(self, job: Job, ended: Ended) -> None:
        self._job, self._ended = job, ended
        self._got = self._early = 0
        self._first = self._last = (0.0, 0.0)
        self._lock = threading.Lock()

    def note(self, number: int, rows: Iterable[Row]) -> None:
        """Count the records, and read them if the job says so."""
        if not number:
            return
        if self._job.each:
            for _ in rows:
                pass
        with self._lock:
            now = time.perf_counter(), time.process_time()
            if not self._got:
                self._first, self._early = now, number
            if self._got < self._job.records:
                self._got += number
                self._last = now
            if self._got >= self._job.records:
                self._ended.set()

    def close(self) -> None:
        """Write records per second, and nanoseconds of CPU per record."""
        records = self._got - self._early
        wall, cpu = (last - first for first, last in zip(self._first, self._last, strict=True))
        found = {"rate": records / wall, "cpu": cpu / records * 1e9}
        Path(self._job.journal).write_text(json.dumps(found), encoding="utf-8")


@final
class First:
    """Measures how long a client takes to its first record, and from there to its end."""

    def __init__(self, job: Job, ended: Ended) -> None:
        self._job, self._ended = job, ended
        self._began = time.monotonic()
        self._assigned: float | None = None
        self._first: float | None = None

    def note(self, number: int, rows: Iterable[Row]) -> None:
        """End the client at its first record."""
        del rows
        if not number:
            self._assigned = self._assigned or time.monotonic()
        elif self._first is None:
            self._first = time.monotonic()
            self._ended.set()

    def close(self) -> None:
        """Append the durations."""
        if self._first is None:
            return
        line = f"{self._first - self._began} {time.monotonic() - self._first}"
        if self._assigned is not None:
            line += f" {self._assigned - self._began}"
        with Path(self._job.journal).open("a", encoding="utf-8") as journal:
            journal.write(f"{line}\n")


SINKS: Final[Mapping[str, Callable[[Job, Ended], Sink]]] = {
    "journal": Journal,
    "meter": Meter,
    "first": First,
}
