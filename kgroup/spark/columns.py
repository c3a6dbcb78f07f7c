"""The columns of Spark's own Kafka source: a table of names, types and functions that build them.

A column is built with a few calls for each run of messages of one partition; a value that is
constant in a run (topic, partition) costs nothing for each row. A column that is not selected is
not built at all.

Source: Spark's ``KafkaRecordToRowConverter``; types are those of its ``kafkaSchema``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Final, final

import attrs
import numpy
import pyarrow
from confluent_kafka import Message
from numpy.typing import NDArray

from kgroup import bounds
from kgroup.errors import ConfigError
from kgroup.record_headers import headers_of

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


OffsetArray = NDArray[numpy.int64]
"""Offsets of records, in ascending order."""


@final
@attrs.frozen(eq=False)
class MessageRun:
    """Messages of one partition, in ascending order of offsets.

    Attributes:
        topic: the topic.
        partition: the partition's number.
        messages: at least one.
        offsets: their offsets.
    """

    topic: str
    partition: int
    messages: Sequence[Message]
    offsets: OffsetArray

    @cached_property
    def timestamps(self) -> tuple[Sequence[int], Sequence[int]]:
        """librdkafka's timestamp types, and the milliseconds; two columns are built from them."""
        kinds, stamps = zip(*map(Message.timestamp, self.messages), strict=True)
        return kinds, stamps


@final
@attrs.frozen
class Column:
    """A column.

    Attributes:
        name: Spark's name.
        spark: its type in Spark's SQL.
        arrow: the same type in Arrow.
        of_run: builds the column from one run.
    """

    name: str
    spark: str
    arrow: pyarrow.DataType
    of_run: Callable[[MessageRun], pyarrow.Array]


def _binary(values: Iterable[bytes | str | None]) -> pyarrow.Array:
    return pyarrow.array(list(values), _BINARY)


def _timestamps(run: MessageRun) -> pyarrow.Array:
    _, stamps = run.timestamps
    # Whoever writes a record may give it any timestamp; Spark's reach as far as microseconds do.
    if max(stamps) > _LAST or min(stamps) < -_LAST:
        stamps = [max(-_LAST, min(_LAST, one)) for one in stamps]
    return pyarrow.array(stamps, pyarrow.timestamp("ms", tz="UTC")).cast(_TIMESTAMP)


def _timestamp_types(run: MessageRun) -> pyarrow.Array:
    kinds, _ = run.timestamps
    # librdkafka's enumeration begins with 0 for "not available", Kafka's with -1.
    if kinds.count(kinds[0]) == len(kinds):
        return pyarrow.repeat(pyarrow.scalar(kinds[0] - 1, _INT), len(kinds))
    return pyarrow.array([kind - 1 for kind in kinds], _INT)


def _headers(run: MessageRun) -> pyarrow.Array:
    """Lists of key and value; a record without headers has null, as in Spark."""
    keys: list[str] = []
    values: list[bytes | str | None] = []
    starts: list[int | None] = []
    for message in run.messages:
        headers = headers_of(message)
        starts.append(len(keys) if headers else None)
        for key, value in headers or ():
            keys.append(key)
            values.append(value)
    starts.append(len(keys))
    pairs = pyarrow.StructArray.from_arrays(
        [pyarrow.array(keys, _STRING), pyarrow.array(values, _BINARY)], fields=list(_HEADER)
    )
    return pyarrow.ListArray.from_arrays(pyarrow.array(starts, _INT), pairs, type=_HEADERS)


_BINARY: Final = pyarrow.binary()
_STRING: Final = pyarrow.string()
_INT: Final = pyarrow.int32()
_LONG: Final = pyarrow.int64()
_TIMESTAMP: Final = pyarrow.timestamp("us", tz="UTC")
_LAST: Final = (2**63 - 1) // 1000
"""The last millisecond that is a timestamp in microseconds."""
_HEADER: Final = pyarrow.struct([("key", _STRING), ("value", _BINARY)])
_HEADERS: Final = pyarrow.list_(_HEADER)

TABLE: Final[Mapping[str, Column]] = {
    column.name: column
    for column in (
        Column("key", "binary", _BINARY, lambda run: _binary(map(Message.key, run.messages))),
        Column("value", "binary", _BINARY, lambda run: _binary(map(Message.value, run.messages))),
        Column(
            "topic",
            "string",
            _STRING,
            lambda run: pyarrow.repeat(pyarrow.scalar(run.topic, _STRING), len(run.messages)),
        ),
        Column(
            "partition",
            "int",
            _INT,
            lambda run: pyarrow.repeat(pyarrow.scalar(run.partition, _INT), len(run.messages)),
        ),
        Column("offset", "bigint", _LONG, lambda run: pyarrow.array(run.offsets)),
        # Not "timestamp", to which spark.sql.timestampType may give the type without a time zone.
        Column("timestamp", "timestamp_ltz", _TIMESTAMP, _timestamps),
        Column("timestampType", "int", _INT, _timestamp_types),
        Column("headers", "array<struct<key:string,value:binary>>", _HEADERS, _headers),
    )
}
"""Every column, in the order of Spark's own source."""
ALL: Final = tuple(TABLE)
"""The names of all columns."""
DEFAULT: Final = tuple(name for name in ALL if name != "headers")
"""The columns that are read by default: as in Spark's own source, all but the headers."""


def check_columns(columns: Iterable[str]) -> tuple[str, ...]:
    """Validate names of columns, and return them in their order.

    Raises:
        ConfigError: there is no name, one is unknown, or one occurs twice.
    """
    names = bounds.listed("columns", (columns,) if isinstance(columns, str) else columns, 100)
    if not isinstance(names, tuple) or not all(isinstance(name, str) for name in names):
        raise ConfigError("columns", names, f"it must list names of columns, of {', '.join(ALL)}")
    if not names or len(set(names)) != len(names) or not set(names) <= set(ALL):
        allowed = f"it must name columns, each once, of {', '.join(ALL)}"
        raise ConfigError("columns", names, allowed)
    return names


def ddl(columns: Iterable[str]) -> str:
    """The schema of some columns in Spark's SQL."""
    return ", ".join(f"{name} {TABLE[name].spark}" for name in columns)


def spark_schema(columns: Iterable[str]) -> StructType:
    """The schema of some columns as Spark's type."""
    from pyspark.sql.types import (
        ArrayType,
        BinaryType,
        DataType,
        IntegerType,
        LongType,
        StringType,
        StructField,
        StructType,
        TimestampType,
    )

    pair = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
    types: dict[str, DataType] = {
        "binary": BinaryType(),
        "string": StringType(),
        "int": IntegerType(),
        "bigint": LongType(),
        "timestamp_ltz": TimestampType(),
        TABLE["headers"].spark: ArrayType(pair),
    }
    return StructType([StructField(name, types[TABLE[name].spark]) for name in columns])


def arrow_schema(columns: Iterable[str]) -> pyarrow.Schema:
    """The schema of some columns as Arrow's type."""
    return pyarrow.schema([(name, TABLE[name].arrow) for name in columns])


def record_batch(
    runs: Sequence[MessageRun], columns: Sequence[str], schema: pyarrow.Schema
) -> pyarrow.RecordBatch:
    """Runs as one Arrow batch of some columns.

    Args:
        runs: at least one.
        columns: their names.
        schema: ``arrow_schema`` of them, made once.
    """
    arrays = []
    for name in columns:
        parts = [TABLE[name].of_run(run) for run in runs]
        arrays.append(parts[0] if len(parts) == 1 else pyarrow.concat_arrays(parts))
    return pyarrow.RecordBatch.from_arrays(arrays, schema=schema)
