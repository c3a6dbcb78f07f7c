"""Spark's own Kafka source as the reader of a plan: the same ranges, read in the JVM.

It needs the jars of ``spark-sql-kafka-0-10`` in the session and the Java client's own settings
for security; in exchange no record passes through Python.

Left to others: when to use which (docs/spark.md), and planning.

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
from kgroup.spark.columns import checked
from kgroup.spark.offset_ranges import OffsetRange, merged
from kgroup.spark.reader_settings import ReaderSettings, Value

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
"""librdkafka's settings that Java's client has too, and what it calls them."""

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
    """A DataFrame of the records of ranges, read by Spark's own source.

    Args:
        spark: a session that has the source's jars.
        ranges: what is read; at least one that is not empty.
        settings: brokers, isolation level, time-out.
        columns: names of columns.
        parallelism: the least number of tasks, as Spark's ``minPartitions``.
        options: further options of the source, such as ``kafka.sasl.jaas.config``; they win.

    Raises:
        UsageError: two ranges overlap.
        ConfigError: an unknown column; or a setting of librdkafka, or a secret, that Java's
            client does not know by that name and that ``options`` does not replace.
    """
    names = checked(columns)
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
            "the JVM's client cannot look them up; give Java's own settings in options, or read"
            " with the Python backend",
        )
    client: dict[str, Value] = {}
    for name, value in settings.client:
        if name in SAME:
            client[SAME[name]] = value
        elif not given:
            allowed = "Java's client has no such setting; give Java's own in options"
            raise ConfigError(f"client[{name!r}]", value, allowed)
    return {
        "kafka.bootstrap.servers": ",".join(settings.bootstrap_servers),
        "kafka.isolation.level": settings.isolation_level.value,
        "kafkaConsumer.pollTimeoutMs": str(max(1, int(settings.no_progress_timeout * 1000))),
        "failOnDataLoss": "true",
        **{f"kafka.{name}": str(value) for name, value in client.items()},
    }


def _reader_group(group_id: str, options: Mapping[str, str]) -> str:
    """A group id for the executors' consumers, which join no group.

    Spark keeps consumers by it, from batch to batch; left to itself it takes a new one each time,
    and connects each task anew. It refuses one that comes with other settings than before, so
    these are in it; with a salt, because there may be secrets among them.
    """
    told = json.dumps(sorted(options.items())).encode()
    return f"{group_id}-{hashlib.blake2b(told, digest_size=8, salt=_SALT).hexdigest()}"


def _layers(ranges: Sequence[OffsetRange]) -> list[list[OffsetRange]]:
    """Ranges in lists that have no partition twice, because the source takes one range of each."""
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
