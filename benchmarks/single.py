"""What the parts with one worker at a time share: their options, turns, topics and processes."""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import attrs
import confluent_kafka

from benchmarks.arguments import count
from benchmarks.clients.job import Job
from benchmarks.clients.roster import CLIENTS, Client, Present
from benchmarks.processes import FailedError, Process, reason
from benchmarks.report.progress import Progress
from benchmarks.report.results import Results
from kgroup.testing.admin import create_topic

LINGER: Final = 50
FLUSH: Final = 10_000
WARM_UP: Final = 60.0


def add_clients(
    parser: argparse.ArgumentParser,
    clients: Iterable[str],
    *,
    rounds: int,
    able: Callable[[Client], bool] = lambda client: True,
) -> None:
    """The options that all these parts have; a part says which clients are able to do its job."""
    single = [name for name, one in CLIENTS.items() if not one.clients and able(one)]
    parser.add_argument("--rounds", type=count, default=rounds)
    parser.add_argument("--clients", nargs="+", choices=single, default=list(clients))


def grouped(client: Client) -> bool:
    """Whether a client has members, which work and commit."""
    return client.grouped


def in_turns(
    results: Results,
    there: Present,
    rounds: int,
    cases: Sequence[str],
    measure: Callable[[Client, str], Mapping[str, Any]],
) -> None:
    """Measure each case with each client, in turns within each round; a failure is a row too."""
    progress = Progress(rounds * len(cases) * len(there.clients))
    for number in range(rounds):
        for case in cases:
            for client in there.clients:
                progress.step(f"{client.name}, {case}" if case else client.name)
                row = {"client": client.name, "case": case, "round": number}
                try:
                    row |= measure(client, case)
                except Exception as error:  # noqa: BLE001 # it must not end the others' turns
                    row["failed"] = reason(error)
                    progress.say(f"FAILED: {row['failed']}")
                results.add(row)


@contextmanager
def started(client: Client, job: Job) -> Iterator[tuple[Process, Path]]:
    """Start a worker; yield its process and its journal. It is ended on the way out."""
    with tempfile.TemporaryDirectory(prefix="kgroup-benchmark-") as folder:
        journal = Path(folder) / "journal"
        journal.touch()
        mine = attrs.evolve(job, journal=str(journal), group=f"{client.name}-{uuid4().hex[:8]}")
        command = [*client.command(), *mine.arguments()]
        process = Process(client.name, command, Path(folder) / "errors")
        try:
            yield process, journal
        finally:
            process.kill()


def warm_up(servers: str) -> None:
    """Let a group read a record: else the first client waits while the broker makes its own topics.

    Raises:
        FailedError: no record comes.
    """
    settings = {"bootstrap.servers": servers, "group.id": f"warm-up-{uuid4().hex[:8]}"}
    consumer = confluent_kafka.Consumer(
        {**settings, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    )
    try:
        consumer.subscribe([topic_with(servers, 1, 1)])
        message = consumer.poll(WARM_UP)
        if message is None or message.error() is not None:
            raise FailedError(f"the broker gave no record in {WARM_UP:g} s")
        consumer.commit(message=message, asynchronous=False)
    finally:
        consumer.close()


def topic_with(servers: str, partitions: int, records: int, size: int = 100) -> str:
    """Create a topic with records of a size, spread evenly; return its name."""
    topic = f"benchmark-{uuid4().hex[:8]}"
    create_topic(servers, topic, partitions)
    producer = confluent_kafka.Producer({"bootstrap.servers": servers, "linger.ms": LINGER})
    value = b"x" * size
    for number in range(records):
        while True:
            try:
                producer.produce(topic, value, partition=number * partitions // records)
                break
            except BufferError:
                producer.poll(0.1)
        if number % FLUSH == 0:
            producer.poll(0)
    producer.flush()
    return topic
