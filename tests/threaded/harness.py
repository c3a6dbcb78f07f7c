"""What tests of the threaded group share: a topic and a group, and records of its events and work.

All waits are for conditions and have a deadline; nothing sleeps.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, TypeVar, final

from confluent_kafka import Producer

from kgroup.config import GroupConfig
from kgroup.events import Event, GenerationStarted
from kgroup.interfaces import Batch
from kgroup.testing import admin
from kgroup.threaded import ConsumerGroup, Generation
from kgroup.types import TopicPartition
from tests.brokers import Kafka, unique

E = TypeVar("E", bound=Event)

SOON: Final = 100.0
"""Seconds after which a wait fails; on an idle machine no wait takes 5."""
QUICK: Final[Mapping[str, Any]] = {
    "heartbeat_interval": 0.2,
    # These only have to end a test that hangs. A machine that pauses must not end a session.
    "session_timeout": 30.0,
    "rebalance_timeout": 60.0,
    "drain_timeout": 40.0,
    "close_timeout": 30.0,
    "partition_watch_interval": 0.2,
    "rejoin_backoff": 0.05,
    "rejoin_backoff_max": 0.2,
}
"""Settings with which rebalances are quick."""


@final
class RecordedEvents:
    """The events of one member, for a test to wait for."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._changed = threading.Condition()

    def __call__(self, event: Event) -> None:
        """Record an event, in the group's thread."""
        with self._changed:
            self.events.append(event)
            self._changed.notify_all()

    def of(self, kind: type[E]) -> list[E]:
        """The events of one kind."""
        return [event for event in self.events if isinstance(event, kind)]

    def wait(self, kind: type[E], count: int = 1) -> E:
        """Wait for the n-th event of a kind."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.of(kind)) >= count, SOON), (
                f"{len(self.of(kind))} of {count} {kind.__name__} in {SOON:g} s: {self.events}"
            )
        return self.of(kind)[count - 1]


@final
class ProcessedRecords:
    """The records that handlers have processed, in order."""

    def __init__(self) -> None:
        self.entries: list[tuple[TopicPartition, int, int]] = []
        self._changed = threading.Condition()

    def add(self, batch: Batch) -> None:
        """Record a processed batch."""
        with self._changed:
            self.entries += [
                (batch.partition, int(message.offset() or 0), batch.epoch)
                for message in batch.messages
            ]
            self._changed.notify_all()

    def wait(self, records: int) -> None:
        """Wait until so many records were processed."""
        with self._changed:
            assert self._changed.wait_for(lambda: len(self.entries) >= records, SOON), (
                f"{len(self.entries)} of {records} records in {SOON:g} s"
            )

    def counts(self) -> Counter[tuple[TopicPartition, int]]:
        """How often each record was processed."""
        return Counter((partition, offset) for partition, offset, _ in self.entries)

    def offsets(self, partition: TopicPartition) -> list[int]:
        """The offsets of one partition in the order in which they were processed."""
        return [offset for name, offset, _ in self.entries if name == partition]


@final
class Harness:
    """One test's topic and group on a broker."""

    def __init__(self, kafka: Kafka) -> None:
        self.bootstrap_servers = kafka.bootstrap_servers
        self.topic = unique("threaded")
        self.group_id = unique("threaded")

    def partition(self, number: int) -> TopicPartition:
        """A partition of the topic."""
        return TopicPartition(self.topic, number)

    def create(self, partitions: int = 1, records: int = 0) -> None:
        """Create the topic, with so many records in each partition."""
        admin.create_topic(self.bootstrap_servers, self.topic, partitions)
        self.produce(records, *range(partitions))

    def produce(self, records: int, *partitions: int) -> None:
        """Produce so many records to each of some partitions."""
        producer = Producer({"bootstrap.servers": self.bootstrap_servers, "linger.ms": 5})
        for number in range(records):
            for partition in partitions:
                producer.produce(self.topic, str(number), partition=partition)
        assert producer.flush(SOON) == 0

    def config(self, **settings: object) -> GroupConfig:
        """A configuration for the group; quick by default."""
        given: dict[str, Any] = {
            "group_id": self.group_id,
            "bootstrap_servers": self.bootstrap_servers,
            "topics": [self.topic],
            **QUICK,
            **settings,
        }
        return GroupConfig(**given)

    def group(
        self, on_event: Callable[[Event], None] | None = None, **settings: object
    ) -> ConsumerGroup:
        """A member."""
        return ConsumerGroup(self.config(**settings), on_event=on_event)

    def committed(self, number: int = 0) -> int | None:
        """The group's committed offset of a partition."""
        name = self.partition(number)
        found = admin.committed_offsets(self.bootstrap_servers, self.group_id, [name])[name]
        return None if found is None else found.offset


Work = Callable[[Generation, ProcessedRecords], None]
"""A function that a member calls with each generation, in its loop's body."""


@contextmanager
def member(
    here: Harness, processed: ProcessedRecords, work: Work, **settings: object
) -> Iterator[RecordedEvents]:
    """Run a member in a thread, and close it in the test's thread; the value is its events."""
    recorded = RecordedEvents()
    group = here.group(recorded, **settings)

    def run() -> None:
        with group:
            for generation in group:
                work(generation, processed)

    with thread(run):
        try:
            recorded.wait(GenerationStarted)
            yield recorded
        finally:
            group.close()


def in_handlers(generation: Generation, processed: ProcessedRecords) -> None:
    """Process each partition in a handler thread."""
    for partition in generation.assignment:
        generation.start(process_all, generation, partition, processed)


def in_the_body(generation: Generation, processed: ProcessedRecords) -> None:
    """Process all partitions in the loop's body."""
    for batch in generation.records(max_records=5):
        processed.add(batch)
        generation.commit({batch.partition: batch.next_offset})


@contextmanager
def thread(target: Callable[..., object], *args: object) -> Iterator[threading.Thread]:
    """Run a function in a thread; if it raises, or does not end, the test fails."""
    raised: list[BaseException] = []

    def run() -> None:
        try:
            target(*args)
        except BaseException as error:  # noqa: BLE001 # raised by the test
            raised.append(error)

    started = threading.Thread(target=run, name="beside the test", daemon=True)
    started.start()
    try:
        yield started
    finally:
        started.join(SOON)
    assert not started.is_alive(), "a thread of the test is still there"
    if raised:
        raise raised[0]


def process_all(
    generation: Generation, partition: TopicPartition, processed: ProcessedRecords
) -> None:
    """A handler: process and commit batch by batch."""
    for batch in generation.records(partition, max_records=20):
        processed.add(batch)
        generation.commit({partition: batch.next_offset})


def wait(event: threading.Event) -> None:
    """Wait for an event, within the time that a test has."""
    assert event.wait(SOON), f"not within {SOON:g} s"
