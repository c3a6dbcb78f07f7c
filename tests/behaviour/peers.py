"""Members of other clients: confluent-kafka's and aiokafka's consumers, each in a thread.

They process one record at a time and commit it before the next, so that a rebalance never
interrupts one. What they process goes into the same processed as kgroup's.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any, Final, Protocol

import trio
from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener
from aiokafka.coordinator.assignors.range import RangePartitionAssignor
from aiokafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
from confluent_kafka import Consumer

from kgroup.types import TopicPartition
from tests.behaviour.harness import SOON, Harness, Processed, in_thread

HEARTBEAT_MS: Final = 200
SESSION_MS: Final = 30_000
REBALANCE_MS: Final = 60_000
POLL: Final = 0.05
ASSIGNORS: Final = {"range": RangePartitionAssignor, "roundrobin": RoundRobinPartitionAssignor}


class Node(Protocol):
    """A member of any kind."""

    def owned(self) -> int:
        """How many partitions it has; -1 while it does not know."""
        ...

    async def leave(self) -> None:
        """Leave the group, and wait until that is done."""
        ...


class Peer:
    """What the other clients share: a thread, and what they have processed."""

    def __init__(self, here: Harness, name: str, strategy: str) -> None:
        self.name = name
        self._here = here
        self._strategy = strategy
        self._token = trio.lowlevel.current_trio_token()
        self._over = threading.Event()
        self._owned = -1
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._guarded, name=name, daemon=True)

    def start(self) -> None:
        """Join the group; the thread ends with the harness at the latest."""
        self._thread.start()
        self._here.nursery.start_soon(self._outlived_by_nothing)

    def owned(self) -> int:
        """How many partitions it has; -1 while it does not know."""
        if self._error is not None:
            raise self._error
        return self._owned

    async def leave(self) -> None:
        """Leave the group, and wait until that is done."""
        self._over.set()
        await in_thread(self._thread.join)
        self.owned()

    async def _outlived_by_nothing(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            self._over.set()
            with trio.CancelScope(shield=True):
                await in_thread(self._thread.join, SOON)

    def run(self) -> None:
        """Consume until the member is asked to leave."""
        raise NotImplementedError

    def _guarded(self) -> None:
        try:
            self.run()
        except BaseException as error:  # noqa: BLE001 # raised in the test
            self._error = error
        finally:
            self._owned = -1 if self._error is None else self._owned
            self._soon(self._here.processed.wake)

    def _soon(self, function: Callable[..., None], *args: object) -> None:
        try:
            self._token.run_sync_soon(function, *args)
        except trio.RunFinishedError:
            self._over.set()

    def _note_owned(self, count: int) -> None:
        self._owned = count
        self._soon(self._here.processed.wake)

    def _process(self, topic: str, partition: int, offset: int, value: bytes) -> None:
        record = Processed(self.name, 0, TopicPartition(topic, partition), offset, value.decode())
        self._soon(self._here.processed.add, record)


class ConfluentPeer(Peer):
    """confluent-kafka's consumer, subscribed."""

    def run(self) -> None:
        """See `Peer`."""
        consumer = Consumer(
            {
                "bootstrap.servers": self._here.bootstrap_servers,
                "group.id": self._here.group_id,
                "client.id": self.name,
                "partition.assignment.strategy": self._strategy,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "heartbeat.interval.ms": HEARTBEAT_MS,
                "session.timeout.ms": SESSION_MS,
                "max.poll.interval.ms": REBALANCE_MS,
                "log_level": 0,
            }
        )
        try:
            consumer.subscribe(
                [self._here.topic],
                on_assign=lambda _, given: self._note_owned(len(given)),
                on_revoke=lambda _, taken: self._note_owned(-1),
            )
            while not self._over.is_set():
                message = consumer.poll(POLL)
                if message is None or message.error() is not None:
                    continue
                topic, partition = message.topic(), message.partition()
                offset, value = message.offset(), message.value()
                assert topic is not None
                assert partition is not None
                assert offset is not None
                assert isinstance(value, bytes)
                self._process(topic, partition, offset, value)
                consumer.commit(message=message, asynchronous=False)
        finally:
            consumer.close()


class AiokafkaPeer(Peer):
    """aiokafka's consumer, subscribed, in an event loop of its own."""

    def run(self) -> None:
        """See `Peer`."""
        asyncio.run(self._consume())

    async def _consume(self) -> None:
        consumer = AIOKafkaConsumer(
            bootstrap_servers=self._here.bootstrap_servers,
            group_id=self._here.group_id,
            client_id=self.name,
            partition_assignment_strategy=[ASSIGNORS[self._strategy]],
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            heartbeat_interval_ms=HEARTBEAT_MS,
            session_timeout_ms=SESSION_MS,
            rebalance_timeout_ms=REBALANCE_MS,
            max_poll_interval_ms=REBALANCE_MS,
        )
        busy = asyncio.Lock()
        rebalances = 0
        peer = self

        class Listener(ConsumerRebalanceListener):  # type: ignore[misc]
            # aiokafka awaits what these return, which its own annotations do not say.
            async def on_partitions_revoked(  # pyright: ignore[reportIncompatibleMethodOverride]
                self, revoked: Any
            ) -> None:
                """Finish the current record, and give up all partitions."""
                del revoked
                nonlocal rebalances
                rebalances += 1
                async with busy:
                    peer._note_owned(-1)

            async def on_partitions_assigned(  # pyright: ignore[reportIncompatibleMethodOverride]
                self, assigned: Any
            ) -> None:
                """Continue."""
                peer._note_owned(len(assigned))

        await consumer.start()
        try:
            consumer.subscribe([self._here.topic], listener=Listener())
            while not self._over.is_set():
                before = rebalances
                found = await consumer.getmany(timeout_ms=int(POLL * 1000), max_records=1)
                async with busy:
                    if rebalances != before:
                        # They may be of the old assignment, so none of them counts.
                        for partition, records in found.items():
                            if partition in consumer.assignment():
                                consumer.seek(partition, records[0].offset)
                        continue
                    for partition, records in found.items():
                        for record in records:
                            self._process(
                                partition.topic,
                                partition.partition,
                                record.offset,
                                record.value or b"",
                            )
                        await consumer.commit({partition: records[-1].offset + 1})
        finally:
            await consumer.stop()
