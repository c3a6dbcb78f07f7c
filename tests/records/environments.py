"""Brokers and sources with one interface, so that one test function runs on all of them."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final, Protocol
from uuid import uuid4

import attrs
import confluent_kafka
import trio
from confluent_kafka.admin import AdminClient

from kgroup.broker import EmbeddedBroker
from kgroup.config import GroupConfig
from kgroup.interfaces import Batch, RecordSource
from kgroup.records.buffered_source import OnFault
from kgroup.records.librdkafka import CONSUMERS, Consumers, LibrdkafkaSource
from kgroup.records.memory import MemorySource
from kgroup.testing import admin
from kgroup.types import TopicPartition

PATIENCE: Final = 150.0
"""Seconds after which a test fails that still waits."""


class MakeSource(Protocol):
    """A function that makes the source under test."""

    def __call__(self, config: GroupConfig, on_fault: OnFault) -> RecordSource:
        """Make the source."""
        ...


def value_of(batch: Batch) -> list[str]:
    """The values of a batch, as text."""
    return [(message.value() or b"").decode() for message in batch.messages]


@attrs.define(eq=False)
class Environment:
    """A broker, and a kind of source that reads it."""

    bootstrap_servers: str
    make_source: MakeSource
    faults: list[tuple[TopicPartition | None, str]] = attrs.field(factory=list)
    fault_reported: trio.Event = attrs.field(factory=trio.Event)

    async def topic(self, partitions: int = 1, name: str | None = None) -> str:
        """Create a topic with a unique name."""
        name = name or f"t-{uuid4().hex[:12]}"
        await trio.to_thread.run_sync(
            lambda: admin.create_topic(self.bootstrap_servers, name, partitions)
        )
        return name

    async def grow(self, topic: str, partitions: int) -> None:
        """Increase the number of a topic's partitions."""
        await trio.to_thread.run_sync(
            lambda: admin.add_partitions(self.bootstrap_servers, topic, partitions)
        )

    async def delete(self, topic: str) -> None:
        """Delete a topic."""
        await trio.to_thread.run_sync(lambda: admin.delete_topic(self.bootstrap_servers, topic))

    async def produce(self, partition: TopicPartition, values: Sequence[str]) -> None:
        """Write records."""
        await trio.to_thread.run_sync(
            lambda: admin.produce(
                self.bootstrap_servers, partition.topic, values, partition=partition.partition
            )
        )

    async def delete_records(self, partition: TopicPartition, before: int) -> None:
        """Delete the records before an offset."""

        def delete() -> None:
            client = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
            named = confluent_kafka.TopicPartition(partition.topic, partition.partition, before)
            for future in client.delete_records([named]).values():
                future.result(PATIENCE)

        await trio.to_thread.run_sync(delete)

    async def transact(
        self, partition: TopicPartition, values: Sequence[str], *, commit: bool
    ) -> None:
        """Write records in a transaction, commit or abort it, and wait for its marker.

        Kafka answers before it writes the marker, so that without waiting the records of the
        next transaction could come before it.
        """

        def end() -> int:
            return admin.end_offsets(self.bootstrap_servers, [partition])[partition]

        def transact() -> None:
            with_marker = end() + len(values) + 1
            producer = confluent_kafka.Producer(
                {
                    "bootstrap.servers": self.bootstrap_servers,
                    "transactional.id": f"tx-{uuid4().hex}",
                    **admin.RELIABLE_PRODUCER,
                    "log_level": 0,
                }
            )
            producer.init_transactions(PATIENCE)
            producer.begin_transaction()
            for value in values:
                producer.produce(partition.topic, value, partition=partition.partition)
            producer.flush(PATIENCE)
            (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE)
            deadline = time.monotonic() + PATIENCE
            while end() < with_marker:
                assert time.monotonic() < deadline

        await trio.to_thread.run_sync(transact)

    @asynccontextmanager
    async def source(self, **settings: Any) -> AsyncIterator[RecordSource]:
        """Make a source that reports to ``faults``. The body has ``PATIENCE`` seconds."""
        config = GroupConfig(
            group_id=f"g-{uuid4().hex[:12]}",
            bootstrap_servers=self.bootstrap_servers,
            topics=["unused"],
            **settings,
        )
        source = self.make_source(config, self._on_fault)
        with trio.fail_after(PATIENCE):
            async with source:
                yield source

    def _on_fault(self, partition: TopicPartition | None, reason: str) -> None:
        self.faults.append((partition, reason))
        self.fault_reported.set()


def embedded(broker: EmbeddedBroker) -> Environment:
    """librdkafka on the embedded broker."""
    return Environment(broker.bootstrap_servers, LibrdkafkaSource)


def shared(broker: EmbeddedBroker) -> Environment:
    """librdkafka on the embedded broker; all sources of the event loop share one Consumer."""
    CONSUMERS.set(Consumers(most_own=0))
    return embedded(broker)


def memory(broker: EmbeddedBroker) -> Environment:
    """The embedded broker's log, read in memory; everything else goes over the wire."""
    return Environment(
        broker.bootstrap_servers,
        lambda config, on_fault: MemorySource(config, on_fault, broker.log),
    )


def real(bootstrap_servers: str) -> Environment:
    """librdkafka on a real Kafka."""
    return Environment(bootstrap_servers, LibrdkafkaSource)


async def receive_values(
    source: RecordSource,
    epoch: int,
    partitions: Sequence[TopicPartition],
    wanted: int,
    limit: int = 1000,
) -> dict[TopicPartition, list[str]]:
    """Receive until so many records are there; by partition, in the order of arrival."""
    values: dict[TopicPartition, list[str]] = {partition: [] for partition in partitions}
    while sum(map(len, values.values())) < wanted:
        batch = await source.receive(epoch, partitions, limit)
        assert batch.epoch == epoch
        assert 1 <= len(batch) <= limit
        values[batch.partition] += value_of(batch)
    return values
