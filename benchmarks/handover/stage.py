"""One topic, its producer, and the workers of its group, to which scenes happen.

INVARIANT: no process that a stage starts outlives it.
"""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Final, final
from uuid import uuid4

import attrs
import confluent_kafka

from benchmarks.clients.job import Job
from benchmarks.clients.roster import Client
from benchmarks.handover.judge import Record, read_journal
from benchmarks.processes import FailedError, Process
from kgroup.testing.admin import add_partitions, create_topic

JOIN_PATIENCE: Final = 90.0
"""Seconds within which a new worker must have processed a record, its work not counted."""
END_PATIENCE: Final = 15.0
QUIET: Final = 0.5
TICK: Final = 0.05


@final
@attrs.frozen(eq=False)
class Worker:
    """A member of the group."""

    number: int
    client: Client
    process: Process
    journal: Path


@final
@attrs.frozen
class Mark:
    """An event of a scene; without a scene, something that is not measured."""

    at: float
    scene: str | None
    what: str


@final
class Stage:
    """A topic, its producer and its group.

    Args:
        clients: the clients that join, in turns.
        job: what each worker does; topic, group and journal are filled in here.
        rate: records per second.
    """

    def __init__(self, clients: Sequence[Client], job: Job, rate: int) -> None:
        self._topic = f"handover-{uuid4().hex[:8]}"
        self.job = attrs.evolve(job, topic=self._topic, group=self._topic)
        self._clients = clients
        self.rate = rate
        self._partitions = job.partitions
        self._numbers = count()
        self._producer: Process | None = None
        self._all: list[Worker] = []
        self.workers: list[Worker] = []
        self.marks: list[Mark] = []
        self.woken: list[tuple[Worker, float]] = []
        self._scene: str | None = None

    @contextmanager
    def running(self) -> Iterator[None]:
        """Create the topic and begin to produce; at the end, wait until all is read."""
        with tempfile.TemporaryDirectory(prefix="kgroup-handover-") as folder:
            self._folder = Path(folder)
            create_topic(self.job.servers, self._topic, self._partitions)
            self._produce()
            try:
                yield
            finally:
                for process in (*(worker.process for worker in self._all), self._producer):
                    if process is not None:
                        process.signal(signal.SIGTERM)
                        process.signal(signal.SIGCONT)
                for worker in self._all:
                    worker.process.kill_unless_ended(END_PATIENCE)
                if self._producer is not None:
                    self._producer.kill_unless_ended(END_PATIENCE)

    @contextmanager
    def scene(self, name: str) -> Iterator[None]:
        """Let the marks belong to a scene."""
        self._scene = name
        try:
            yield
        finally:
            self._scene = None
            self.mark("")

    @property
    def pause(self) -> float:
        """Seconds that a group gets for a rebalance."""
        return 1.5 + 1.5 * self.job.heartbeat + self.job.work

    def mark(self, what: str) -> None:
        """Note that something happens now."""
        self.marks.append(Mark(time.monotonic(), self._scene, what))

    def join(self, like: Worker | None = None) -> Worker:
        """Start a worker, of the same client as another one if that is given."""
        number = next(self._numbers)
        client = like.client if like else self._clients[number % len(self._clients)]
        journal = self._folder / f"journal-{number}"
        journal.touch()
        job = attrs.evolve(self.job, journal=str(journal))
        process = Process(
            f"worker {number} ({client.name})",
            [*client.command(), *job.arguments()],
            self._folder / f"errors-{number}",
        )
        worker = Worker(number, client, process, journal)
        self._all.append(worker)
        self.workers.append(worker)
        return worker

    def settle(self, longer: float = 0.0) -> None:
        """Wait until every worker has processed records, then for a pause.

        Raises:
            FailedError: a worker has ended, or processes nothing.
        """
        deadline = time.monotonic() + JOIN_PATIENCE + 2 * self.job.work
        while waited := [one for one in self.workers if not one.journal.stat().st_size]:
            self._check()
            if time.monotonic() > deadline:
                raise waited[0].process.failure(f"processed nothing in {JOIN_PATIENCE:g} s")
            time.sleep(TICK)
        time.sleep(self.pause + longer)
        self._check()

    def _check(self) -> None:
        for worker in self.workers:
            worker.process.check()
        if self._producer is not None:
            self._producer.check()

    def leave(self) -> Worker:
        """Ask the oldest worker to end, and wait for that."""
        worker = self.workers.pop(0)
        worker.process.end()
        return worker

    def kill(self) -> Worker:
        """Kill the oldest worker."""
        worker = self.workers.pop(0)
        worker.process.kill()
        return worker

    def freeze(self, seconds: float) -> None:
        """Stop the oldest worker's process for a time."""
        worker = self.workers[0]
        worker.process.signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.woken.append((worker, time.monotonic()))
        worker.process.signal(signal.SIGCONT)

    def be(self, number: int) -> None:
        """Let so many workers run, without measuring how that comes about."""
        before = len(self.workers)
        for _ in range(before, number):
            self.join()
        for _ in range(number, before):
            self.leave()
        if number != before:
            self.settle()

    def grow(self, more: int) -> None:
        """Add partitions, and produce to all of them."""
        self._partitions += more
        add_partitions(self.job.servers, self._topic, self._partitions)
        old = self._producer
        self._produce()
        if old is not None:
            old.end()

    def burst(self, records: int) -> None:
        """Produce so many records at once, beside the others."""
        self._producing("a burst", str(records)).result(END_PATIENCE)

    def _produce(self) -> None:
        self._producer = self._producing("the producer")

    def _producing(self, name: str, *burst: str) -> Process:
        command = [sys.executable, "-m", "benchmarks.handover.produce", self.job.servers]
        command += [self._topic, str(self._partitions), str(self.rate), *burst]
        return Process(name, command, self._folder / "errors-producer")

    def finish(self) -> None:
        """Stop to produce, and wait until the workers have nothing left to do."""
        if self._producer is not None:
            self._producer.end()
            self._producer = None
        deadline = time.monotonic() + END_PATIENCE + 3 * self.job.work
        before, quiet = -1, time.monotonic()
        while time.monotonic() < min(deadline, quiet + QUIET + 1.2 * self.job.work):
            written = sum(worker.journal.stat().st_size for worker in self._all)
            if written != before:
                before, quiet = written, time.monotonic()
            time.sleep(TICK)
        self.mark("")

    def journals(self) -> dict[Worker, list[Record]]:
        """What each worker has processed, in its order."""
        return {worker: read_journal(worker.journal.read_text()) for worker in self._all}

    def ends(self) -> dict[int, int]:
        """For each partition the offset after its last record.

        Raises:
            FailedError: the broker does not say.
        """
        client = confluent_kafka.Consumer(
            {"bootstrap.servers": self.job.servers, "group.id": "none"}
        )
        try:
            return dict(_ends(client, self._topic, range(self._partitions)))
        except confluent_kafka.KafkaException as error:
            raise FailedError(
                f"the broker did not return the end offsets of {self._topic}"
            ) from error
        finally:
            client.close()


def _ends(
    client: confluent_kafka.Consumer, topic: str, partitions: Iterable[int]
) -> Iterator[tuple[int, int]]:
    for number in partitions:
        place = confluent_kafka.TopicPartition(topic, number)
        _, end = client.get_watermark_offsets(place, timeout=10)
        yield number, end
