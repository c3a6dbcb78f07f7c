"""Measures how long records wait in hand-overs, for kgroup and for confluent-kafka beside it.

    python benchmarks/handover.py [--rounds N] [--heartbeat SECONDS ...] [--clients NAME ...]
                                  [--partitions N] [--rate RECORDS_PER_SECOND] [--json FILE]
                                  [--assignors NAME ...]

Starts a real Kafka, a producer at a steady rate and worker processes that join and leave one group:
a scale-out from 1 to 3 workers, a rolling restart of 3, a scale-in from 3 to 1, and added
partitions. A worker takes batches of up to 100 records, waits 10 ms for each batch as if for a
database, and commits after each batch.

A *gap* is a time in which a partition had a record to read and none of it was processed. For each
event, the longest gap of each partition counts; printed are their 95th percentile and maximum. A
round without any event shows what the measurement itself adds. Every record's way is checked too:
lost, processed twice, or out of order within a worker's generation. The clients take turns within
a round. All times are of one machine's monotonic clock.
"""

from __future__ import annotations

import argparse
import json
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, final
from uuid import uuid4

import attrs
import confluent_kafka
import trio

from kgroup.config import GroupConfig
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.testing.admin import add_partitions, create_topic
from kgroup.testing.kafka import RealKafka
from kgroup.types import TopicPartition

SESSION: Final = 6.0
MOST: Final = 100
WORK: Final = 0.01
"""Seconds that a worker spends on a batch."""
PAUSE: Final = 5.0
"""Seconds before the first event, and after each event beyond one heartbeat interval."""
ADDED: Final = 6
CLIENTS: Final = ("kgroup", "confluent-eager", "confluent-cooperative")


def note(journal: Any, messages: Iterable[Any]) -> None:
    """Write down when each record was produced and when it was processed."""
    done = time.monotonic()
    for message in messages:
        sent = message.value().decode()
        journal.write(f"{message.partition()} {message.offset()} {sent} {done}\n")
    journal.flush()


def kgroup_worker(arguments: argparse.Namespace, journal: Any) -> None:
    """One worker with kgroup: a task for each partition, as README has it."""
    settings: dict[str, Any] = {"session_timeout": SESSION}
    if arguments.heartbeat:
        settings["heartbeat_interval"] = arguments.heartbeat[0]
    if arguments.assignors:
        settings["assignors"] = arguments.assignors
    config = GroupConfig(
        bootstrap_servers=arguments.servers,
        group_id=arguments.topic,
        topics=[arguments.topic],
        **settings,
    )

    async def handle(generation: Generation, partition: TopicPartition) -> None:
        async for batch in generation.records(partition, max_records=MOST):
            await trio.sleep(WORK)
            note(journal, batch)
            await generation.commit({partition: batch.next_offset})

    async def main() -> None:
        async with ConsumerGroup(config) as group, trio.open_nursery() as nursery:
            nursery.start_soon(until_sigterm, group)
            async for generation in group:
                for partition in generation.assignment:
                    generation.start_soon(handle, generation, partition)
            nursery.cancel_scope.cancel()

    trio.run(main)


async def until_sigterm(group: ConsumerGroup) -> None:
    """Close the group at SIGTERM."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async for _ in signals:
            group.shutdown("SIGTERM")


def set_at_sigterm() -> threading.Event:
    """An event that SIGTERM sets, for a program without an event loop."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    return ended


def confluent_worker(arguments: argparse.Namespace, journal: Any) -> None:
    """One worker with confluent-kafka, as its documentation recommends: consume, then commit."""
    cooperative = arguments.work.endswith("cooperative")
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": arguments.servers,
            "group.id": arguments.topic,
            "session.timeout.ms": int(SESSION * 1000),
            "heartbeat.interval.ms": int((arguments.heartbeat or [1.0])[0] * 1000),
            "partition.assignment.strategy": "cooperative-sticky" if cooperative else "range",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "fetch.queue.backoff.ms": 1,
        }
    )
    ended = set_at_sigterm()
    consumer.subscribe([arguments.topic])
    while not ended.is_set():
        messages = consumer.consume(MOST, 0.02)
        if messages:
            time.sleep(WORK)
            note(journal, [message for message in messages if message.error() is None])
            try:
                consumer.commit(asynchronous=False)
            except confluent_kafka.KafkaException as error:
                print(f"commit refused: {error}", file=sys.stderr)
    consumer.close()


def produce(arguments: argparse.Namespace) -> None:
    """Produce at a steady rate, each record with its time, until SIGTERM."""
    producer = confluent_kafka.Producer({"bootstrap.servers": arguments.servers, "linger.ms": 1})
    ended = set_at_sigterm()
    sent, began, partitions = 0, time.monotonic(), arguments.partitions
    while not ended.is_set():
        for _ in range(int((time.monotonic() - began) * arguments.rate) - sent):
            producer.produce(arguments.topic, str(time.monotonic()), partition=sent % partitions)
            sent += 1
        producer.poll(0)
        time.sleep(0.002)
    producer.flush()


@final
@attrs.frozen
class Record:
    """One line of a journal."""

    partition: int
    offset: int
    sent: float
    done: float


@final
class Stage:
    """One topic, its producer and the workers of its group."""

    def __init__(self, arguments: argparse.Namespace, client: str, heartbeat: float | None) -> None:
        self._arguments = arguments
        self._client = client
        self._heartbeat = heartbeat
        self.topic = f"handover-{uuid4().hex[:8]}"
        self._journals = tempfile.TemporaryDirectory(prefix="kgroup-handover-")
        self._folder = Path(self._journals.name)
        self._producers: list[subprocess.Popen[bytes]] = []
        self._workers: list[subprocess.Popen[bytes]] = []
        self.pause = PAUSE + (heartbeat or 1.0)
        self.events: list[float] = []

    def _start(self, *options: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, str(Path(__file__).resolve()), *options]
        command += ["--servers", self._arguments.servers, "--topic", self.topic]
        command += ["--rate", str(self._arguments.rate)]
        if self._arguments.assignors:
            command += ["--assignors", *self._arguments.assignors]
        if self._heartbeat is not None:
            command += ["--heartbeat", str(self._heartbeat)]
        return subprocess.Popen(command)

    @contextmanager
    def running(self, workers: int) -> Iterator[Stage]:
        """Create the topic, begin to produce, and start so many workers."""
        create_topic(self._arguments.servers, self.topic, self._arguments.partitions)
        self._producers.append(
            self._start("--produce", "--partitions", str(self._arguments.partitions))
        )
        try:
            for _ in range(workers):
                self.join()
            time.sleep(self.pause + 3)
            self.events.clear()
            yield self
            for one in self._producers:
                one.terminate()
                one.wait()
            time.sleep(self.pause)
        finally:
            for one in (*self._workers, *self._producers):
                one.terminate()
            for one in (*self._workers, *self._producers):
                one.wait()

    def event(self) -> None:
        """Note that something happens now."""
        self.events.append(time.monotonic())

    def join(self) -> None:
        """Start a worker."""
        number = len(list(self._folder.iterdir()))
        journal = str(self._folder / str(number))
        self._workers.append(self._start("--work", self._client, "--journal", journal))
        Path(journal).touch()
        self.event()

    def leave(self) -> None:
        """Ask the oldest worker to end, and wait for that."""
        self.event()
        worker = self._workers.pop(0)
        worker.terminate()
        worker.wait()

    def grow(self) -> None:
        """Add partitions, and produce to all of them."""
        total = self._arguments.partitions + ADDED
        add_partitions(self._arguments.servers, self.topic, total)
        self.event()
        old = self._producers.pop()
        old.terminate()
        self._producers.append(self._start("--produce", "--partitions", str(total)))
        old.wait()

    def records(self) -> list[list[Record]]:
        """What each worker has processed, in its order."""
        return [
            [
                Record(int(line[0]), int(line[1]), float(line[2]), float(line[3]))
                for line in map(str.split, journal.read_text().splitlines())
                if len(line) == 4  # a worker that was killed leaves half a line
            ]
            for journal in sorted(self._folder.iterdir())
        ]


def scale_out(stage: Stage) -> None:
    """From one worker to three."""
    for _ in range(2):
        stage.join()
        time.sleep(stage.pause)


def rolling_restart(stage: Stage) -> None:
    """Each of three workers is stopped, and started again."""
    for _ in range(3):
        stage.leave()
        stage.join()
        time.sleep(stage.pause)


def scale_in(stage: Stage) -> None:
    """From three workers to one."""
    for _ in range(2):
        stage.leave()
        time.sleep(stage.pause)


def nothing(stage: Stage) -> None:
    """What the measurement itself adds."""
    stage.event()
    time.sleep(stage.pause)


def added_partitions(stage: Stage) -> None:
    """From 12 partitions to 18: the time until the new ones are read, too."""
    stage.grow()
    time.sleep(stage.pause + 5)


SCENES: Final[Mapping[str, tuple[int, Callable[[Stage], None]]]] = {
    "nothing": (3, nothing),
    "scale-out": (1, scale_out),
    "rolling restart": (3, rolling_restart),
    "scale-in": (3, scale_in),
    "added partitions": (2, added_partitions),
}


def gaps(records: Sequence[Record], events: Sequence[float]) -> list[float]:
    """For each event and partition the longest gap from this event to the next."""
    longest: dict[tuple[int, int], float] = defaultdict(float)
    last: dict[int, float] = {}
    for one in sorted(records, key=lambda one: one.done):
        began = max(one.sent, last.get(one.partition, 0.0))
        last[one.partition] = one.done
        current = sum(one.done >= event for event in events) - 1
        if current >= 0:
            key = (current, one.partition)
            longest[key] = max(longest[key], one.done - began)
    return list(longest.values())


def account(journals: Sequence[Sequence[Record]]) -> dict[str, int]:
    """How many records were lost or processed twice, and how often a worker went back."""
    seen = Counter((one.partition, one.offset) for journal in journals for one in journal)
    ends: dict[int, int] = defaultdict(int)
    for partition, offset in seen:
        ends[partition] = max(ends[partition], offset + 1)
    back = 0
    for journal in journals:
        last: dict[int, int] = {}
        for one in journal:
            back += one.offset <= last.get(one.partition, -1)
            last[one.partition] = one.offset
    return {
        "lost": sum(ends.values()) - len(seen),
        "twice": sum(number - 1 for number in seen.values()),
        "back": back,
    }


def play(
    arguments: argparse.Namespace, client: str, heartbeat: float | None, scene: str
) -> dict[str, Any]:
    """Play one scene with one client."""
    stage = Stage(arguments, client, heartbeat)
    workers, act = SCENES[scene]
    with stage.running(workers):
        act(stage)
    journals = stage.records()
    everything = [one for journal in journals for one in journal]
    return {"gaps": gaps(everything, stage.events), **account(journals)}


def percentile(values: Sequence[float]) -> float:
    """The 95th."""
    return statistics.quantiles(values, n=20, method="inclusive")[-1]


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--heartbeat", type=float, nargs="+", default=None)
    parser.add_argument("--clients", nargs="+", choices=CLIENTS, default=list(CLIENTS))
    parser.add_argument("--scenes", nargs="+", choices=list(SCENES), default=list(SCENES))
    parser.add_argument("--partitions", type=int, default=12)
    parser.add_argument("--rate", type=int, default=3000)
    parser.add_argument("--json")
    parser.add_argument("--assignors", nargs="+", help="kgroup's; by default those of GroupConfig")
    for hidden in ("--servers", "--topic", "--journal", "--work"):
        parser.add_argument(hidden, help=argparse.SUPPRESS)
    parser.add_argument("--produce", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.produce:
        produce(arguments)
        return
    if arguments.work is not None:
        worker = kgroup_worker if arguments.work == "kgroup" else confluent_worker
        with Path(arguments.journal).open("a", encoding="utf-8") as journal:
            worker(arguments, journal)
        return
    found: dict[str, list[dict[str, Any]]] = defaultdict(list)
    settings = {"group.initial.rebalance.delay.ms": "0"}
    with RealKafka(settings=settings) as kafka:
        arguments.servers = kafka.bootstrap_servers
        for _ in range(arguments.rounds):
            for scene in arguments.scenes:
                for heartbeat in arguments.heartbeat or [None]:
                    for client in arguments.clients:
                        named = "default" if heartbeat is None else f"{heartbeat:g} s"
                        name = f"{scene} | {client} | {named}"
                        found[name].append(play(arguments, client, heartbeat, scene))
                        print(".", end="", flush=True, file=sys.stderr)
    print(f"\n{platform.platform()}, Python {platform.python_version()},", end=" ")
    print(f"librdkafka {confluent_kafka.libversion()[0]}, rounds {arguments.rounds}")
    print("| event | client | heartbeat | p95, s | longest, s | lost | twice | back |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for name, plays in found.items():
        values = [gap for one in plays for gap in one["gaps"]]
        counts = " | ".join(
            str(sum(one[key] for one in plays)) for key in ("lost", "twice", "back")
        )
        print(f"| {name} | {percentile(values):.3f} | {max(values):.3f} | {counts} |")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(found), encoding="utf-8")


if __name__ == "__main__":
    main()
