"""What behaviour tests share: a topic and a group for each test, members, and what they processed.

Members are real ones, in the test's own event loop: TCP, librdkafka, real time. What they process
is kept in one `ProcessedRecords`, in the order in which it happened.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from operator import attrgetter
from typing import Any, Final, ParamSpec, TypeVar, final

import attrs
import trio
from confluent_kafka import KafkaError, Producer

from kgroup.config import GroupConfig
from kgroup.events import Event
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.interfaces import Message
from kgroup.notifier import Notifier
from kgroup.runtime import Runtime
from kgroup.testing import admin
from kgroup.types import TopicPartition
from tests.brokers import Kafka, unique

P = ParamSpec("P")
T = TypeVar("T")
E = TypeVar("E", bound=Event)

SOON: Final = 150.0
"""Seconds after which a wait fails; on an idle machine no wait takes 5."""
EXPIRING: Final = 6.0
"""The session timeout of a member that loses its session in a test: the test waits so long, and a
machine that pauses for as long before that would end the session too early."""
QUICK: Final[Mapping[str, Any]] = {
    "heartbeat_interval": 0.2,
    # These only have to end a test that hangs. A machine that pauses must not end a session.
    "session_timeout": 30.0,
    "rebalance_timeout": 60.0,
    "drain_timeout": 40.0,
    "close_timeout": 30.0,
    "partition_watch_interval": 0.2,
    "rejoin_backoff": 0.05,
    "rejoin_backoff_max": 0.5,
}
"""Settings with which rebalances are quick."""


async def in_thread(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Run a blocking function in a thread."""
    return await trio.to_thread.run_sync(partial(function, *args, **kwargs))


@final
@attrs.frozen
class Processed:
    """A record that a member has processed.

    Attributes:
        at: when, by the member's own wall clock.
    """

    member: str
    epoch: int
    partition: TopicPartition
    offset: int
    value: str
    at: float = attrs.field(factory=time.time)


@final
class ProcessedRecords:
    """The records that all members have processed, in order."""

    def __init__(self) -> None:
        self.entries: list[Processed] = []
        self._changed = Notifier()

    def add(self, entry: Processed) -> None:
        """Add a record that a member has processed."""
        self.entries.append(entry)
        self.wake()

    def wake(self) -> None:
        """Let tests check again what they wait for."""
        self._changed.notify()

    async def until(
        self,
        holds: Callable[[], object],
        missed: str | Callable[[], str],
        within: float = SOON,
    ) -> None:
        """Wait until a condition holds; it is checked at each new entry and at each `wake`."""
        with trio.move_on_after(within):
            while not holds():
                await self._changed.wait()
            return
        text = missed if isinstance(missed, str) else missed()
        raise AssertionError(f"{text}, after {within:g} s and {len(self.entries)} records")

    def offsets(self, partition: TopicPartition) -> list[int]:
        """The offsets of one partition, in the order in which they were processed."""
        return [entry.offset for entry in self.entries if entry.partition == partition]

    def offsets_by_time(self, partition: TopicPartition) -> list[int]:
        """The offsets of one partition, in the order in which members say they processed them.

        If members are other processes, the test may read the output of the later one first.
        """
        entries = [entry for entry in self.entries if entry.partition == partition]
        return [entry.offset for entry in sorted(entries, key=attrgetter("at"))]

    def repeated(self) -> dict[tuple[TopicPartition, int], int]:
        """The records that were processed more than once, and how often."""
        counts = Counter((entry.partition, entry.offset) for entry in self.entries)
        return {record: count for record, count in counts.items() if count > 1}

    def values(self) -> list[str]:
        """The values, in the order in which they were processed."""
        return [entry.value for entry in self.entries]


@final
class Member:
    """A member that processes every record that it gets, and commits batch by batch."""

    def __init__(self, harness: Harness, name: str, group: ConsumerGroup, seconds: float) -> None:
        self.name = name
        self.group = group
        self.generations: list[Generation] = []
        self.events: list[Event] = []
        self._harness = harness
        self._seconds = seconds

    @property
    def generation(self) -> Generation:
        """The latest generation."""
        return self.generations[-1]

    def settled(self, *partitions: TopicPartition) -> bool:
        """Whether it has a running generation with exactly these partitions."""
        return (
            bool(self.generations)
            and not self.generation.ending.is_set()
            and set(self.generation.assignment) == set(partitions)
        )

    def owned(self) -> int:
        """How many partitions its running generation has; -1 without one."""
        if not self.generations or self.generation.ending.is_set():
            return -1
        return len(self.generation.assignment)

    async def run(self) -> None:
        """Be a member until `ConsumerGroup.shutdown`."""
        async with self.group:
            async for generation in self.group:
                self.generations.append(generation)
                self._harness.processed.wake()
                for partition in generation.assignment:
                    generation.start_soon(self._handle, generation, partition)

    async def leave(self) -> None:
        """Close the group, and wait until the member has left."""
        await self.group.aclose()

    def events_of(self, kind: type[E]) -> list[E]:
        """The events of one class."""
        return [event for event in self.events if isinstance(event, kind)]

    async def _handle(self, generation: Generation, partition: TopicPartition) -> None:
        async for batch in generation.records(partition, max_records=20):
            await trio.sleep(self._seconds * len(batch))
            for message in batch.messages:
                self._harness.processed.add(
                    Processed(
                        self.name,
                        generation.epoch,
                        partition,
                        message.offset() or 0,
                        text(message),
                    )
                )
            await generation.commit({partition: batch.next_offset})


@final
class Harness:
    """The topic and the group of one test on a broker."""

    def __init__(self, kafka: Kafka, nursery: trio.Nursery) -> None:
        self.kafka = kafka
        self.bootstrap_servers = kafka.bootstrap_servers
        self.topic = unique("topic")
        self.group_id = unique("group")
        self.processed = ProcessedRecords()
        self.nursery = nursery

    def partition(self, number: int) -> TopicPartition:
        """A partition of the topic."""
        return TopicPartition(self.topic, number)

    def partitions(self, count: int) -> list[TopicPartition]:
        """The first so many partitions of the topic."""
        return [self.partition(number) for number in range(count)]

    def config(self, **settings: object) -> GroupConfig:
        """A configuration for the group, with short intervals by default."""
        given: dict[str, Any] = {
            "group_id": self.group_id,
            "bootstrap_servers": self.bootstrap_servers,
            "topics": [self.topic],
            **QUICK,
            **settings,
        }
        return GroupConfig(**given)

    def group(
        self,
        runtime: Runtime | None = None,
        on_event: Callable[[Event], None] | None = None,
        **settings: object,
    ) -> ConsumerGroup:
        """A member that the test itself runs."""
        return ConsumerGroup(self.config(**settings), runtime=runtime, on_event=on_event)

    def start(
        self,
        name: str,
        *,
        seconds: float = 0.0,
        runtime: Runtime | None = None,
        **settings: object,
    ) -> Member:
        """Start a member that processes everything, with so many seconds for each record."""
        events: list[Event] = []

        def note(event: Event) -> None:
            events.append(event)
            self.processed.wake()

        group = self.group(runtime, note, client_id=name, **settings)
        member = Member(self, name, group, seconds)
        member.events = events
        self.nursery.start_soon(member.run, name=name)
        return member

    async def create(self, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create the topic."""
        await in_thread(admin.create_topic, self.bootstrap_servers, self.topic, partitions, config)

    async def produce(self, values: Sequence[str | bytes], partition: int = 0) -> None:
        """Produce to a partition, and wait until all is acknowledged."""
        await in_thread(
            admin.produce, self.bootstrap_servers, self.topic, values, partition=partition
        )

    async def committed(self, count: int = 1) -> list[int | None]:
        """The group's committed offsets of the first so many partitions."""
        names = self.partitions(count)
        found = await in_thread(
            admin.committed_offsets, self.bootstrap_servers, self.group_id, names
        )
        return [None if (at := found[name]) is None else at.offset for name in names]

    async def until_committed(self, count: int = 1) -> None:
        """Wait until the group has committed the end of each of the first so many partitions."""
        ends = await self.ends(count)
        with trio.move_on_after(SOON):
            while await self.committed(count) != ends:  # noqa: ASYNC110 # no event
                await trio.sleep(0.05)
            return
        raise AssertionError(f"committed {await self.committed(count)} of {ends} after {SOON:g} s")

    async def ends(self, count: int = 1) -> list[int]:
        """The end offsets of the first so many partitions."""
        names = self.partitions(count)
        found = await in_thread(admin.end_offsets, self.bootstrap_servers, names)
        return [found[name] for name in names]


@asynccontextmanager
async def harness(kafka: Kafka) -> AsyncIterator[Harness]:
    """Make a harness; its members have ended when the test ends."""
    async with trio.open_nursery() as nursery:
        yield Harness(kafka, nursery)
        nursery.cancel_scope.cancel()


@final
class SteadyProducer:
    """Produces numbers to the partitions in turn until it is stopped."""

    def __init__(self, here: Harness, partitions: int, *, per_second: float = 500.0) -> None:
        self._here = here
        self._partitions = partitions
        self._per_second = per_second
        self._stopped = False
        self._done = trio.Event()
        self.produced = 0

    def start(self) -> None:
        """Begin."""
        self._here.nursery.start_soon(self._run)

    async def stop(self) -> int:
        """End, with everything acknowledged; how many records there are."""
        self._stopped = True
        await self._done.wait()
        return self.produced

    async def _run(self) -> None:
        producer = Producer(
            {
                "bootstrap.servers": self._here.bootstrap_servers,
                **admin.RELIABLE_PRODUCER,
                "linger.ms": 0,
                "log_level": 0,
            }
        )
        failed: list[str] = []

        def delivered(error: KafkaError | None, _: object) -> None:
            if error is not None:
                failed.append(str(error))

        begun = time.monotonic()
        while not self._stopped:
            due = int((time.monotonic() - begun) * self._per_second)
            while self.produced < due:
                number = self.produced
                producer.produce(
                    self._here.topic,
                    str(number),
                    partition=number % self._partitions,
                    on_delivery=delivered,
                )
                self.produced += 1
            producer.poll(0)
            await trio.sleep(0.02)
        left = await in_thread(producer.flush, SOON)
        assert (left, failed) == (0, []), "the test's own producer lost records"
        self._done.set()


def text(message: Message) -> str:
    """A record's value."""
    value = message.value()
    return value.decode() if isinstance(value, bytes) else str(value)


def numbers(messages: Sequence[Message]) -> list[int]:
    """Values that are numbers."""
    return [int(text(message)) for message in messages]
