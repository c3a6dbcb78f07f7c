"""Reads offset ranges with Spark's own Kafka source, in the JVM.

It needs the jars of ``spark-sql-kafka-0-10`` in the session, and the Java client's settings for
security; no record passes through Python. docs/spark.md says when to use it.

Source: Spark's ``KafkaSourceProvider`` (its options), ``KafkaOffsetRangeCalculator`` and
``InternalKafkaConsumerPool``.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import reduce
from typing import TYPE_CHECKING, Final

from kgroup.errors import ConfigError
from kgroup.spark.columns import check_columns
from kgroup.spark.offset_ranges import OffsetRange, merged
from kgroup.spark.reader_settings import HIDDEN, ReaderSettings, Value

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SAME: Final[Mapping[str, str]] = {
    "client.rack": "client.rack",
    "fetch.max.bytes": "fetch.max.bytes",
    "fetch.min.bytes": "fetch.min.bytes",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "max.partition.fetch.bytes": "max.partition.fetch.bytes",
    "fetch.message.max.bytes": "max.partition.fetch.bytes",
    "sasl.mechanism": "sasl.mechanism",
    "sasl.mechanisms": "sasl.mechanism",
    "security.protocol": "security.protocol",
    "receive.buffer.bytes": "receive.buffer.bytes",
    "socket.receive.buffer.bytes": "receive.buffer.bytes",
}
"""librdkafka's settings that the Java client has too, and their names there."""

PROMPT: Final[Mapping[str, str]] = {"kafka.fetch.max.wait.ms": "10"}
"""How long a broker keeps a Fetch request for which it has no records.

At the end of a partition Spark's task waits for the answer of a request that its consumer has sent
ahead, so that each small batch takes the Java client's default of half a second, and one of several
partitions takes it several times. The requests are few, because a task reads only its range.
"""

_SALT: Final = os.urandom(hashlib.blake2b.SALT_SIZE)


def jvm_frame(
    spark: SparkSession,
    ranges: Iterable[OffsetRange],
    settings: ReaderSettings,
    *,
    columns: Sequence[str],
    parallelism: int | None = None,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Make a DataFrame of the records of ranges, read by Spark's own source.

    Args:
        spark: a session that has the source's jars.
        ranges: the ranges to read; at least one that is not empty.
        settings: brokers, isolation level, time-out.
        columns: names of columns.
        parallelism: the least number of tasks, as Spark's ``minPartitions``.
        options: further options of the source, such as ``kafka.sasl.jaas.config``; they take
            precedence over ``settings``, and both over ``PROMPT``.

    Raises:
        UsageError: two ranges overlap.
        ConfigError: an unknown column; or ``settings`` has a secret, or a setting of librdkafka
            that the Java client does not have, and no ``options`` are given.
    """
    names = check_columns(columns)
    common = {**_options(settings, given=bool(options)), **(options or {})}
    common.setdefault("kafka.group.id", _reader_group(settings.group_id, common))
    if "headers" in names:
        common["includeHeaders"] = "true"
    if parallelism is not None:
        common["minPartitions"] = str(parallelism)
    frames = [
        spark.read.format("kafka").options(**common, **_bounds(layer)).load().select(*names)
        for layer in _layers(merged(ranges))
    ]
    return reduce(lambda one, other: one.unionAll(other), frames)


def _options(settings: ReaderSettings, *, given: bool) -> dict[str, str]:
    if settings.secrets and not given:
        raise ConfigError(
            "secrets",
            tuple(name for name, _ in settings.secrets),
            "the Java client cannot resolve references to secrets; give its own settings in"
            " options, or use the Python backend",
        )
    client: dict[str, Value] = {}
    for name, value in settings.client:
        if name in SAME:
            client[SAME[name]] = value
        elif not given:
            allowed = "the Java client has no such setting; give its own settings in options"
            raise ConfigError(f"client[{name!r}]", HIDDEN, allowed)
    return {
        "kafka.bootstrap.servers": ",".join(settings.bootstrap_servers),
        "kafka.isolation.level": settings.isolation_level.value,
        "kafkaConsumer.pollTimeoutMs": str(max(1, int(settings.no_progress_timeout * 1000))),
        "failOnDataLoss": "true",
        **PROMPT,
        **{f"kafka.{name}": str(value) for name, value in client.items()},
    }


def _reader_group(group_id: str, options: Mapping[str, str]) -> str:
    """The group id of the executors' consumers, which do not join a group.

    Spark caches consumers under their group id. By default it makes a new group id for each batch,
    so that each task has to connect again; therefore kgroup sets one. Spark refuses a cached
    consumer whose settings differ, so the group id contains a hash of the settings; the hash has a
    salt, because secrets may be among them.
    """
    text = json.dumps(sorted(options.items())).encode()
    return f"{group_id}-{hashlib.blake2b(text, digest_size=8, salt=_SALT).hexdigest()}"


def _layers(ranges: Sequence[OffsetRange]) -> list[list[OffsetRange]]:
    """Divide ranges into lists without a repeated partition: the source takes one range of each."""
    layers: list[list[OffsetRange]] = []
    depth: dict[tuple[str, int], int] = {}
    for part in ranges:
        level = depth.get((part.topic, part.partition), 0)
        depth[part.topic, part.partition] = level + 1
        if level == len(layers):
            layers.append([])
        layers[level].append(part)
    return layers


def _bounds(ranges: Iterable[OffsetRange]) -> dict[str, str]:
    assign: dict[str, list[int]] = {}
    starts: dict[str, dict[str, int]] = {}
    ends: dict[str, dict[str, int]] = {}
    for part in ranges:
        assign.setdefault(part.topic, []).append(part.partition)
        starts.setdefault(part.topic, {})[str(part.partition)] = part.start
        ends.setdefault(part.topic, {})[str(part.partition)] = part.end
    return {
        "assign": json.dumps(assign),
        "startingOffsets": json.dumps(starts),
        "endingOffsets": json.dumps(ends),
    }
