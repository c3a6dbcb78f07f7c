"""What the records of a batch cost, counted: on their way from librdkafka to the program's loop."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, ClassVar, final

import attrs
import confluent_kafka
import pytest
import trio

from kgroup.broker import in_memory
from kgroup.clocks import SuspendAwareClock
from kgroup.config import GroupConfig
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.records import consumer_thread, librdkafka_messages
from kgroup.records.consumer_thread import CHUNK, TAKE
from kgroup.records.fetched_items import MEASURED
from kgroup.records.fetcher import FetchedItem
from kgroup.records.librdkafka import LibrdkafkaSource
from kgroup.testing.memory import config_for, memory_runtime
from kgroup.types import TopicPartition
from tests.records.test_consumer_thread import PATIENCE
from tests.records.test_loan import WatchedConsumer

P0, P1 = (TopicPartition("topic", number) for number in range(2))
RECORDS = 1000
"""How many the consumer has of a partition: fewer than a full chunk."""
BATCH = 100


@final
class CountingMessage(confluent_kafka.Message):
    """A record that counts the calls of its methods, in all records together."""

    calls: ClassVar[Counter[str]] = Counter()

    def error(self) -> Any:
        """Whether it is an error."""
        return self._counted("error")

    def topic(self) -> Any:
        """Its topic."""
        return self._counted("topic")

    def partition(self) -> Any:
        """Its partition."""
        return self._counted("partition")

    def offset(self) -> Any:
        """Its offset."""
        return self._counted("offset")

    def value(self, *arguments: Any) -> Any:
        """Its value."""
        return self._counted("value", *arguments)

    def key(self, *arguments: Any) -> Any:
        """Its key."""
        return self._counted("key", *arguments)

    def __len__(self) -> int:
        self.calls["len"] += 1
        return super().__len__()

    def _counted(self, name: str, *arguments: Any) -> Any:
        self.calls[name] += 1
        return getattr(confluent_kafka.Message, name)(self, *arguments)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """The calls of methods of records that kgroup has made so far."""
    # kgroup calls some of them as functions of the class, which is faster.
    monkeypatch.setattr(librdkafka_messages, "Message", CountingMessage)
    CountingMessage.calls.clear()
    return CountingMessage.calls


@pytest.fixture
def deliveries(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The records that each delivery, by which a consumer's thread woke the loop, has brought."""
    found: list[int] = []

    def counting(source: LibrdkafkaSource, items: Sequence[FetchedItem]) -> None:
        found.append(sum(len(getattr(item, "messages", ())) for item in items))
        deliver(source, items)

    deliver = LibrdkafkaSource.deliver
    monkeypatch.setattr(LibrdkafkaSource, "deliver", counting)
    return found


def messages(partition: TopicPartition, start: int, end: int) -> Iterator[CountingMessage]:
    """Records of a partition, with these offsets."""
    for offset in range(start, end):
        yield CountingMessage(
            topic=partition.topic, partition=partition.partition, offset=offset, value=b"value"
        )


@asynccontextmanager
async def generation_of(consumer: WatchedConsumer) -> AsyncIterator[Generation]:
    """The first generation of a member that reads from this consumer."""

    def source(config: GroupConfig, on_fault: Any) -> LibrdkafkaSource:
        return LibrdkafkaSource(config, on_fault, open_consumer=consumer.open)

    async with in_memory(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        await broker.create_topic("topic", 2)
        runtime = attrs.evolve(
            memory_runtime(broker), record_source=source, clock=SuspendAwareClock()
        )
        with trio.fail_after(PATIENCE):
            async with ConsumerGroup(config_for(broker), runtime=runtime) as group:
                yield await group.next()


@contextmanager
def called() -> Iterator[Counter[str]]:
    """Count the calls of functions that this thread makes, those of Python and those of C."""
    found: Counter[str] = Counter()

    def count(frame: object, event: str, argument: object) -> None:
        found[event] += 1

    sys.setprofile(count)
    try:
        yield found
    finally:
        sys.setprofile(None)


@final
class _Steps(trio.abc.Instrument):
    """Counts the steps of a task."""

    def __init__(self) -> None:
        self._task = trio.lowlevel.current_task()
        self.count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        """A task is about to run."""
        self.count += task is self._task


async def test_each_record_is_passed_over_twice_before_its_batch(
    calls: Counter[str], deliveries: list[int]
) -> None:
    """kgroup reads a record's error and its partition, of some records the size, and no more."""
    consumer = WatchedConsumer()
    consumer.feed(*messages(P0, 0, RECORDS), *messages(P1, 0, RECORDS - 1))
    async with generation_of(consumer) as generation:
        read = 0
        async for batch in generation.records(max_records=BATCH):
            for _ in batch:
                read += 1
            if read == 2 * RECORDS - 1:
                break
    made = dict(calls)
    assert made.pop("error") == read
    assert made.pop("partition") <= read + 2  # once more for each run of a partition
    assert made.pop("len") <= 2 * MEASURED
    assert sum(made.values()) <= 2 * 4 + read / BATCH + 2  # for each run, and for each batch
    assert [records for records in deliveries if records] == [read]
    assert len(consumer.consumed) == 1


async def test_a_record_of_a_batch_costs_one_check_of_the_lease(deliveries: list[int]) -> None:
    """Going through a batch calls one function of kgroup for a record, which reads the clock."""
    consumer = WatchedConsumer()
    consumer.feed(*messages(P0, 0, RECORDS))
    async with generation_of(consumer) as generation:
        batch = await anext(generation.records(P0, max_records=RECORDS))
        with called() as made:
            for _ in batch:
                pass
    assert len(batch) == RECORDS
    assert made["call"] <= RECORDS + 10
    assert made["c_call"] <= 10


async def test_batches_that_are_there_take_a_step_each(deliveries: list[int]) -> None:
    """A stream whose records have arrived returns each batch after one step of its task."""
    consumer = WatchedConsumer()
    consumer.feed(*messages(P0, 0, RECORDS))
    async with generation_of(consumer) as generation:
        records = generation.records(P0, max_records=BATCH)
        await anext(records)
        steps = _Steps()
        trio.lowlevel.add_instrument(steps)
        for _ in range(RECORDS // BATCH - 1):
            await anext(records)
        trio.lowlevel.remove_instrument(steps)
    assert steps.count <= RECORDS // BATCH - 1


async def test_a_backlog_wakes_the_loop_once_and_is_then_taken(
    monkeypatch: pytest.MonkeyPatch, deliveries: list[int]
) -> None:
    """The thread brings one full chunk; the stream takes what follows, by one call for each 500."""
    monkeypatch.setattr(consumer_thread, "LOAN", 3600.0)  # no clock ends it
    taken = 10 * TAKE
    consumer = WatchedConsumer()
    consumer.feed(*messages(P0, 0, CHUNK + taken))
    async with generation_of(consumer) as generation:
        read = 0
        async for batch in generation.records(P0):
            read += len(batch)
            if read == CHUNK + taken:
                break
        assert [records for records in deliveries if records] == [CHUNK]
        assert len(consumer.consumed) == 1 + taken // TAKE
        assert consumer.taken == taken // TAKE
