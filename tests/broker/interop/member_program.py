"""A member of a group that is another Python client's consumer, as a program of its own.

It is a process so that a test can kill it, and because these clients leave sockets and threads
behind. It prints the events of Kafka's VerifiableConsumer, one JSON object a line. It commits what
it has printed before it gives a partition up. On SIGTERM it closes its consumer and ends.
"""

from __future__ import annotations

import asyncio
import json
import signal
import sys
import threading
import time
from collections.abc import Iterable
from typing import Any

import aiokafka
import confluent_kafka
import kafka
import kafka.errors
from aiokafka.coordinator.assignors.range import RangePartitionAssignor as AiokafkaRange
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor

POLL = 0.05
"""Seconds of one poll, and so the longest time until a signal is seen."""
CHUNK = 20
"""The largest number of records that are printed before they are committed."""
REFUSED = (
    confluent_kafka.KafkaError.REBALANCE_IN_PROGRESS,
    confluent_kafka.KafkaError.ILLEGAL_GENERATION,
    confluent_kafka.KafkaError.UNKNOWN_MEMBER_ID,
)
"""The errors of a commit during a rebalance, and after one that did not wait for the member.
The tests judge by the offsets that are committed in the end."""
KAFKA_PYTHON_ASSIGNORS = {
    "range": RangePartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}

over = threading.Event()
"""Set by SIGTERM."""


def emit(name: str, **fields: object) -> None:
    """Print an event."""
    timestamp = time.time() * 1000
    sys.stdout.write(json.dumps({"name": name, "timestamp": timestamp, **fields}) + "\n")
    sys.stdout.flush()


def emit_partitions(name: str, partitions: Iterable[Any]) -> None:
    """Print an event about partitions."""
    emit(name, partitions=[{"partition": one.partition} for one in partitions])


def emit_record(partition: int, offset: int, value: bytes) -> None:
    """Print that a record is processed."""
    emit("record_data", partition=partition, offset=offset, value=value.decode())


def emit_committed(offsets: dict[int, int], *, success: bool) -> None:
    """Print that offsets were committed or refused."""
    positions = [{"partition": number, "offset": offset} for number, offset in offsets.items()]
    emit("offsets_committed", success=success, offsets=positions)


class Confluent:
    """A member with confluent-kafka's consumer."""

    def __init__(self, topic: str, settings: dict[str, Any]) -> None:
        static = {"group.instance.id": settings["instance_id"]} if settings["instance_id"] else {}
        self._topic = topic
        self._positions: dict[int, int] = {}
        self._consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": settings["bootstrap_servers"],
                "group.id": settings["group_id"],
                "client.id": settings["client_id"],
                "partition.assignment.strategy": settings["assignor"],
                "session.timeout.ms": settings["session_timeout_ms"],
                "heartbeat.interval.ms": settings["heartbeat_interval_ms"],
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 50,
                # Without metadata of the topic it does not join; it asks again after this interval.
                "topic.metadata.refresh.interval.ms": 1000,
                **static,
            }
        )

    def run(self) -> None:
        """Consume until SIGTERM."""
        self._consumer.subscribe(
            [self._topic],
            on_assign=lambda _, given: emit_partitions("partitions_assigned", given),
            on_revoke=lambda _, taken: self._revoked(taken),
            on_lost=lambda _, taken: self._lost(taken),
        )
        uncommitted = 0
        while not over.is_set():
            message = self._consumer.poll(POLL)
            if message is not None:
                self._process(message)
                uncommitted += 1
            if uncommitted and (message is None or uncommitted >= CHUNK):
                self._commit(list(self._positions))
                uncommitted = 0
        self._commit(list(self._positions))
        self._consumer.close()

    def _process(self, message: confluent_kafka.Message) -> None:
        error, value = message.error(), message.value()
        if error is not None:
            raise confluent_kafka.KafkaException(error)
        partition, offset = message.partition(), message.offset()
        assert partition is not None
        assert offset is not None
        assert isinstance(value, bytes)
        emit_record(partition, offset, value)
        self._positions[partition] = offset + 1

    def _commit(self, numbers: Iterable[int]) -> bool:
        """Commit and print it; return False if the rebalance completed without this member."""
        offsets = {one: self._positions[one] for one in numbers if one in self._positions}
        if not offsets:
            return True
        named = [
            confluent_kafka.TopicPartition(self._topic, number, offset)
            for number, offset in offsets.items()
        ]
        try:
            self._consumer.commit(offsets=named, asynchronous=False)
        except confluent_kafka.KafkaException as error:
            if error.args[0].code() not in REFUSED:
                raise
            return False
        emit_committed(offsets, success=True)
        return True

    def _revoked(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        # A commit that was refused during the rebalance is repeated here, under the generation that
        # takes the partitions away. Only a member that was too slow for it is refused here too.
        numbers = [one.partition for one in partitions]
        if not self._commit(numbers):
            offsets = {one: self._positions[one] for one in numbers if one in self._positions}
            emit_committed(offsets, success=False)
        self._lost(partitions)

    def _lost(self, partitions: list[confluent_kafka.TopicPartition]) -> None:
        for one in partitions:
            self._positions.pop(one.partition, None)
        emit_partitions("partitions_revoked", partitions)


def commit_processed(consumer: Any, found: dict[Any, list[Any]]) -> None:
    """Commit with kafka-python; offsets refused in a rebalance are part of the next commit."""
    offsets = [
        {"partition": one.partition, "offset": records[-1].offset + 1}
        for one, records in found.items()
    ]
    try:
        consumer.commit()
    except kafka.errors.RebalanceInProgressError:
        emit("offsets_committed", success=False, offsets=offsets)
    else:
        emit("offsets_committed", success=True, offsets=offsets)


def consume_with_kafka_python(topic: str, settings: dict[str, Any]) -> None:
    """Consume with kafka-python until SIGTERM."""
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=settings["bootstrap_servers"],
        group_id=settings["group_id"],
        client_id=settings["client_id"],
        group_instance_id=settings["instance_id"],
        partition_assignment_strategy=[KAFKA_PYTHON_ASSIGNORS[settings["assignor"]]],
        session_timeout_ms=settings["session_timeout_ms"],
        heartbeat_interval_ms=settings["heartbeat_interval_ms"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
    )

    class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
        def on_partitions_revoked(self, revoked: Any) -> None:
            """Print the event; the records printed before are committed."""
            emit_partitions("partitions_revoked", revoked)

        def on_partitions_assigned(self, assigned: Any) -> None:
            """Print the event."""
            emit_partitions("partitions_assigned", assigned)

    # One that learns of the topic only while it joins, and so joins again, sometimes hangs (seen
    # with kafka-python 3.0.12 on Apache Kafka as well).
    consumer.partitions_for_topic(topic)
    consumer.subscribe([topic], listener=Listener())
    while not over.is_set():
        found = consumer.poll(timeout_ms=int(POLL * 1000), max_records=CHUNK)
        for partition, records in found.items():
            for record in records:
                emit_record(partition.partition, record.offset, record.value)
        if found:
            commit_processed(consumer, found)
    consumer.close()


async def consume_with_aiokafka(topic: str, settings: dict[str, Any]) -> None:
    """Consume with aiokafka until SIGTERM."""
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=settings["bootstrap_servers"],
        group_id=settings["group_id"],
        client_id=settings["client_id"],
        group_instance_id=settings["instance_id"],
        partition_assignment_strategy=[AiokafkaRange],
        session_timeout_ms=settings["session_timeout_ms"],
        heartbeat_interval_ms=settings["heartbeat_interval_ms"],
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        fetch_max_wait_ms=50,
    )
    busy = asyncio.Lock()
    rebalances = 0

    class Listener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
        # aiokafka awaits what these return, which its own annotations do not say.
        async def on_partitions_revoked(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, revoked: Any
        ) -> None:
            """Wait until the records being printed are committed."""
            nonlocal rebalances
            rebalances += 1
            async with busy:
                emit_partitions("partitions_revoked", revoked)

        async def on_partitions_assigned(  # pyright: ignore[reportIncompatibleMethodOverride]
            self, assigned: Any
        ) -> None:
            """Print the event."""
            emit_partitions("partitions_assigned", assigned)

    await consumer.start()
    consumer.subscribe([topic], listener=Listener())
    while not over.is_set():
        before = rebalances
        found = await consumer.getmany(timeout_ms=int(POLL * 1000), max_records=CHUNK)
        async with busy:
            if rebalances != before:
                # These records may be of the assignment before, so they are read again.
                for partition in consumer.assignment() & set(found):
                    consumer.seek(partition, found[partition][0].offset)
                continue
            for partition, records in found.items():
                for record in records:
                    emit_record(partition.partition, record.offset, record.value or b"")
            if found:
                await consumer.commit({one: found[one][-1].offset + 1 for one in found})
    await consumer.stop()


def main(client: str, topic: str, settings: dict[str, Any]) -> None:
    """Be a member until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: over.set())
    if client == "aiokafka":
        asyncio.run(consume_with_aiokafka(topic, settings))
    elif client == "kafka-python":
        consume_with_kafka_python(topic, settings)
    else:
        Confluent(topic, settings).run()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
