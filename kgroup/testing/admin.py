"""Changes topics, records and offsets on a broker, real or embedded. All calls block.

A thin layer over confluent-kafka, whose ``KafkaException`` says what the broker refused. In
addition, a call returns only when its effect is visible on the broker. From trio use
``trio.to_thread.run_sync``. A wrong argument is refused before anything is sent, by a
``ConfigError`` or an ``ArgumentError`` that says what it must be. If a permission is missing, a
note of the ``KafkaException`` says what to grant. With ``security`` a call connects and logs in as
a group with that setting does; what a function of it raises is an ``AuthenticationError`` of the
call.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any, Final

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

from kgroup import arguments, bounds
from kgroup.broker.broker_settings import PARTITIONS
from kgroup.errors import ArgumentError
from kgroup.permissions import to_grant
from kgroup.security.librdkafka import librdkafka_settings
from kgroup.security.secret import without_locals
from kgroup.security.settings import Security
from kgroup.testing.limits import PATIENCE
from kgroup.types import INT32_MAX, OffsetAndMetadata, TopicPartition
from kgroup.wire.librdkafka_login import login_settings

Setting = str | int | float | bool
TIMEOUT: Final = 120.0
"""Seconds within which a broker must complete a request."""
RELIABLE_PRODUCER: Final[Mapping[str, Setting]] = {
    "enable.idempotence": True,
    "max.in.flight.requests.per.connection": 1,
}
"""Settings of a ``confluent_kafka.Producer`` that loses no record.

With more than one request in flight, idempotence is not enough. If the first request to a partition
is refused because its leader has just moved or is not ready, the leader may accept the second one,
because it knows nothing of this producer yet. librdkafka then concludes that the first was written,
too, and reports its records as delivered.
"""
PAUSE: Final = 0.02
_UNKNOWN: Final = (KafkaError._UNKNOWN_PARTITION, KafkaError._UNKNOWN_TOPIC)  # noqa: SLF001
FULL: Final = 50_000
"""Records in flight at which ``produce`` waits; librdkafka's queue holds twice as many."""


def create_topic(
    bootstrap_servers: str,
    topic: str,
    partitions: int = 1,
    config: Mapping[str, str] | None = None,
    *,
    timeout: float = TIMEOUT,
    security: Security | None = None,
) -> None:
    """Create a topic with one replica; returns when each of its partitions has a leader.

    Args:
        bootstrap_servers: ``host:port`` of the broker.
        topic: its name.
        partitions: the number of partitions.
        config: its settings, by Kafka's names.
        timeout: seconds until ``TimeoutError``.
        security: how connections are encrypted, and how the client logs in.

    Raises:
        KafkaException: the broker refused.
        TimeoutError: it was not created in time.
    """
    PATIENCE.check("timeout", timeout)
    bounds.text().check("topic", topic)
    PARTITIONS.check("partitions", partitions)
    admin = _admin(bootstrap_servers, security)
    new = NewTopic(topic, partitions, replication_factor=1, config=dict(config or {}))
    with _noting("CREATE", topic=topic):
        future = admin.create_topics([new], operation_timeout=timeout)[topic]
        _wait_for(future, f"topic {topic!r} was not created", bootstrap_servers, timeout)
    _wait_until(
        lambda: _leaders(admin, topic, timeout) == partitions,
        f"topic {topic!r} has no leader for each of {partitions} partitions",
        timeout,
    )


def add_partitions(
    bootstrap_servers: str,
    topic: str,
    total: int,
    *,
    timeout: float = TIMEOUT,
    security: Security | None = None,
) -> None:
    """Increase a topic's partitions to ``total``; returns when each of them has a leader.

    Raises:
        KafkaException: the broker refused.
        TimeoutError: they were not created in time.
    """
    PATIENCE.check("timeout", timeout)
    bounds.text().check("topic", topic)
    PARTITIONS.check("total", total)
    admin = _admin(bootstrap_servers, security)
    more = NewPartitions(topic, total)
    with _noting("ALTER", topic=topic):
        future = admin.create_partitions([more], operation_timeout=timeout)[topic]
        _wait_for(future, f"topic {topic!r} got no partitions", bootstrap_servers, timeout)
    _wait_until(
        lambda: _leaders(admin, topic, timeout) == total,
        f"topic {topic!r} has no leader for each of {total} partitions",
        timeout,
    )


def delete_topic(
    bootstrap_servers: str,
    topic: str,
    *,
    timeout: float = TIMEOUT,
    security: Security | None = None,
) -> None:
    """Delete a topic; returns when the broker no longer lists it.

    Raises:
        KafkaException: the broker refused.
        TimeoutError: it still exists.
    """
    PATIENCE.check("timeout", timeout)
    bounds.text().check("topic", topic)
    admin = _admin(bootstrap_servers, security)
    with _noting("DELETE", topic=topic):
        future = admin.delete_topics([topic], operation_timeout=timeout)[topic]
        _wait_for(future, f"topic {topic!r} was not deleted", bootstrap_servers, timeout)
    _wait_until(
        lambda: _leaders(admin, topic, timeout) is None, f"topic {topic!r} still exists", timeout
    )


def produce(
    bootstrap_servers: str,
    topic: str,
    values: Iterable[str | bytes | None],
    *,
    partition: int | None = None,
    keys: Sequence[str | bytes | None] | None = None,
    timeout: float = TIMEOUT,
    security: Security | None = None,
) -> list[tuple[TopicPartition, int]]:
    """Produce one record for each value, and wait until all are acknowledged.

    Args:
        bootstrap_servers: ``host:port`` of the broker.
        topic: an existing topic.
        values: a list of the values, in order; None is a tombstone.
        partition: the partition; without it, one chosen by key or at random.
        keys: for each value its key; no keys by default.
        timeout: seconds until ``TimeoutError``.
        security: how connections are encrypted, and how the client logs in.

    Returns:
        For each value its partition and offset.

    Raises:
        ArgumentError: a value is neither str, bytes nor None, or there is not a key for each value.
        KafkaException: the broker refused a record.
        TimeoutError: not all were acknowledged in time.
    """
    PATIENCE.check("timeout", timeout)
    bounds.text().check("topic", topic)
    values = _texts("values", values)
    keys = [None] * len(values) if keys is None else _texts("keys", keys)
    if len(keys) != len(values):
        raise ArgumentError("keys", keys, f"it must have a key for each of {len(values)} values")
    number = -1 if partition is None else arguments.whole("partition", partition, 0, INT32_MAX)
    producer = Producer(
        {
            **_client(bootstrap_servers, security),
            **RELIABLE_PRODUCER,
            "linger.ms": 5,
            "message.timeout.ms": int(timeout * 1000),
        }
    )
    placed: dict[int, tuple[TopicPartition, int]] = {}
    refused: list[KafkaException] = []

    def report_on(place: int) -> Callable[[KafkaError | None, Message], None]:
        def report(error: KafkaError | None, message: Message) -> None:
            where, offset = message.partition(), message.offset()
            if error is not None:
                refused.append(KafkaException(error))
            elif where is not None and offset is not None:
                placed[place] = (TopicPartition(topic, where), offset)

        return report

    for place, (value, key) in enumerate(zip(values, keys, strict=True)):
        producer.produce(topic, value, key, number, on_delivery=report_on(place))
        # librdkafka refuses more than its queue holds; wait for room before the next one.
        while len(producer) > FULL:
            producer.poll(0.1)
        producer.poll(0)
    producer.flush(timeout)
    if refused:
        with _noting("WRITE", topic=topic):
            raise refused[0]
    if len(placed) < len(values):
        raise TimeoutError(
            f"{len(values) - len(placed)} of {len(values)} records to {topic!r} not acknowledged"
        )
    return [placed[place] for place in range(len(values))]


def committed_offsets(
    bootstrap_servers: str,
    group_id: str,
    partitions: Iterable[TopicPartition],
    *,
    timeout: float = TIMEOUT,
    security: Security | None = None,
) -> dict[TopicPartition, OffsetAndMetadata | None]:
    """A group's committed offsets; None for a partition without one. Does not join the group.

    They have no metadata, because confluent-kafka 2.16 returns it with other bytes behind its end.

    Raises:
        KafkaException: the broker refused, or did not answer in time.
    """
    PATIENCE.check("timeout", timeout)
    # An empty group id would end the whole process: confluent-kafka 2.16 aborts it.
    bounds.text().check("group_id", group_id)
    named = arguments.listed("partitions", partitions, TopicPartition)
    # AdminClient.list_consumer_group_offsets would be the natural call, but in confluent-kafka
    # 2.16.1 it crashes the process if the coordinator is not ready yet.
    wanted = [confluent_kafka.TopicPartition(p.topic, p.partition) for p in named]
    consumer = Consumer({**_client(bootstrap_servers, security), "group.id": group_id})
    try:
        with _noting("DESCRIBE", group=group_id):
            found = consumer.committed(wanted, timeout=timeout)
    finally:
        consumer.close()
    committed: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for answer in found:
        if answer.error is not None:
            with _noting("DESCRIBE", topic=answer.topic, group=group_id):
                raise KafkaException(answer.error)
        committed[TopicPartition(answer.topic, answer.partition)] = (
            _committed(answer) if answer.offset >= 0 else None
        )
    return committed


def end_offsets(
    bootstrap_servers: str,
    partitions: Iterable[TopicPartition],
    *,
    timeout: float = TIMEOUT,
    security: Security | None = None,
) -> dict[TopicPartition, int]:
    """The end offset of each partition; records of open transactions count.

    Raises:
        KafkaException: the broker refused.
    """
    PATIENCE.check("timeout", timeout)
    named = arguments.listed("partitions", partitions, TopicPartition)
    consumer = Consumer(
        {
            **_client(bootstrap_servers, security),
            "group.id": "kgroup-end-offsets",
            "isolation.level": "read_uncommitted",
        }
    )
    ends = {}
    try:
        for partition in named:
            wanted = confluent_kafka.TopicPartition(partition.topic, partition.partition)
            with _noting("DESCRIBE", topic=partition.topic):
                ends[partition] = consumer.get_watermark_offsets(wanted, timeout=timeout)[1]
    finally:
        consumer.close()
    return ends


@contextmanager
def _noting(operation: str, *, topic: str = "", group: str = "") -> Iterator[None]:
    """Note what to grant if a permission for this is missing."""
    try:
        yield
    except KafkaException as error:
        code = error.args[0].code()
        new = operation == "CREATE"
        if grant := to_grant(code, operation, topic=topic, group=group, may_be_missing=not new):
            error.add_note(grant)
        elif code in _UNKNOWN and topic:  # librdkafka says so of topics that it may not see, too
            error.add_note(
                f"there is no such partition, or the user lacks {operation} on {topic!r}"
            )
        raise


def _committed(answer: confluent_kafka.TopicPartition) -> OffsetAndMetadata:
    # The type stubs say int, but without an epoch from the broker it is None.
    epoch: int | None = answer.leader_epoch
    return OffsetAndMetadata(answer.offset, -1 if epoch is None else epoch)


def _client(bootstrap_servers: str, security: Security | None) -> dict[str, Any]:
    servers = bounds.servers(bootstrap_servers)
    bounds.refuse_servers("bootstrap_servers", servers)
    security = (
        Security() if security is None else arguments.instance("security", security, Security)
    )
    return {
        "bootstrap.servers": ",".join(servers),
        "log_level": 0,
        **librdkafka_settings(security),
        **login_settings(security),
    }


@without_locals()
def _admin(bootstrap_servers: str, security: Security | None) -> AdminClient:
    return AdminClient(_client(bootstrap_servers, security))


def _leaders(admin: AdminClient, topic: str, timeout: float) -> int | None:
    """How many partitions of a topic have a leader; None if there is no such topic."""
    topics = admin.list_topics(timeout=timeout).topics
    if topic not in topics:
        return None
    return sum(partition.leader >= 0 for partition in topics[topic].partitions.values())


def _texts(name: str, given: object) -> list[Any]:
    """Check the values or keys of records, all of them before the first is sent."""
    if isinstance(given, str | bytes) or not isinstance(given, Iterable):
        raise ArgumentError(name, given, "it must be a list, such as ['a', b'b']")
    texts = list(given)
    for one in texts:
        if one is not None and not isinstance(one, str | bytes):
            raise ArgumentError(name, one, "each of them must be a str, bytes or None")
    return texts


def _wait_for(future: Future[None], otherwise: str, servers: str, timeout: float) -> None:
    try:
        future.result(timeout)
    except TimeoutError:  # it has no text
        raise TimeoutError(
            f"{otherwise} within {timeout:g} s by the brokers at {servers!r}; do they run there?"
        ) from None


def _wait_until(holds: Callable[[], bool], otherwise: str, timeout: float) -> None:
    deadline = time.monotonic() + timeout
    while not holds():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{otherwise} after {timeout:g} s")
        time.sleep(PAUSE)
