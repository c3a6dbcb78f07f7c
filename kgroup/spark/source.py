"""The data source "kgroup" for Spark: reads ranges of offsets that its options list.

``spark.dataSource.register(KgroupSource)``, then ``spark.read.format("kgroup").options(...)``.
``kgroup.spark.frames.read_ranges`` does both. A schema with fewer columns reads only these columns:
``spark.read.format("kgroup").schema("value binary")``.

Options (all are strings):

- ``ranges``: JSON, a list of ``[topic, partition, start, end]``;
- ``kafka.<name>``: librdkafka's settings, ``kafka.bootstrap.servers`` among them; no secrets;
- ``secret.<name>``: a reference to the value of one of librdkafka's settings, see
  ``ReaderSettings``;
- ``columns``: names, joined by commas;
- ``parallelism``: how many tasks read;
- ``no_progress_timeout``, ``batch_records``, ``batch_bytes``, ``max_buffered_bytes``: numbers, as
  in ``ReaderSettings``.

Executors import this module; ``kgroup.spark.range_reader`` reads.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, final

import attrs
import pyarrow
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from kgroup.errors import ConfigError
from kgroup.spark.columns import DEFAULT, check_columns, spark_schema
from kgroup.spark.offset_ranges import OffsetRange, pack, split
from kgroup.spark.range_reader import read
from kgroup.spark.reader_settings import ReaderSettings

NAME: Final = "kgroup"
"""The name for ``spark.read.format``."""
_KAFKA: Final = "kafka."
_SECRET: Final = "secret."  # noqa: S105 - a prefix
_FIELDS_OF: Final = {
    "kafka.bootstrap.servers": "bootstrap_servers",
    "kafka.isolation.level": "isolation_level",
    "kafka.group.id": "group_id",
    "kafka.client.id": "client_id",
}
"""Settings of librdkafka that are fields of ``ReaderSettings``."""
_NUMBERS: Final = {
    "no_progress_timeout": float,
    "batch_records": int,
    "batch_bytes": int,
    "max_buffered_bytes": int,
}


@final
class TaskRanges(InputPartition):
    """The ranges of one task."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(ranges)


@final
class KgroupReader(DataSourceReader):
    """Reads the ranges of tasks; it is created on the driver and used in the workers."""

    def __init__(
        self,
        tasks: Sequence[tuple[OffsetRange, ...]],
        settings: ReaderSettings,
        columns: tuple[str, ...],
    ) -> None:
        self._tasks = tasks
        self._settings = settings
        self._columns = columns

    def partitions(self) -> Sequence[InputPartition]:
        """One input partition for each task."""
        return [TaskRanges(task) for task in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Read a task's ranges; without tasks Spark passes an input partition of its own."""
        ranges = partition.value if isinstance(partition, TaskRanges) else ()
        return read(ranges, self._settings, self._columns)


@final
class KgroupSource(DataSource):
    """The data source as Spark sees it: makes a schema and a reader from the options.

    Raises:
        ConfigError: from ``reader``; an option is unknown or refused, or the schema is not of the
            source's columns.
        UsageError: from ``reader``; two ranges overlap.
    """

    @classmethod
    def name(cls) -> str:
        """``kgroup``."""
        return NAME

    def schema(self) -> StructType:
        """The schema of the columns that the options select."""
        return spark_schema(_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """Make a reader of the columns of a schema."""
        options = dict(self.options)
        names = check_columns(schema.fieldNames())
        for field, own in zip(schema.fields, spark_schema(names).fields, strict=True):
            if field.dataType != own.dataType:
                allowed = f"it must be {own.dataType.simpleString()}, as in Spark's own source"
                raise ConfigError(f"schema[{field.name!r}]", field.dataType.simpleString(), allowed)
        parallelism = _number(options, "parallelism", int)
        pieces = split(_ranges(options), parallelism=parallelism)
        return KgroupReader(pack(pieces, parallelism or len(pieces)), settings_of(options), names)


def options_of(
    ranges: Sequence[OffsetRange],
    settings: ReaderSettings,
    *,
    columns: Sequence[str],
    parallelism: int | None,
) -> dict[str, str]:
    """Express ranges and settings as options; ``settings_of`` is the inverse."""
    options = {
        "ranges": json.dumps([attrs.astuple(part) for part in ranges]),
        "columns": ",".join(columns),
        "kafka.bootstrap.servers": ",".join(settings.bootstrap_servers),
        "kafka.isolation.level": settings.isolation_level.value,
        "kafka.group.id": settings.group_id,
        "kafka.client.id": settings.client_id,
        **{_KAFKA + name: str(value) for name, value in settings.client},
        **{_SECRET + name: reference for name, reference in settings.secrets},
        **{name: str(getattr(settings, name)) for name in _NUMBERS},
    }
    return options if parallelism is None else {**options, "parallelism": str(parallelism)}


def settings_of(options: Mapping[str, str]) -> ReaderSettings:
    """Read the settings from options.

    Raises:
        ConfigError: an option is unknown, missing or refused.
    """
    known = {"ranges", "columns", "parallelism", "path", *_NUMBERS}
    fields: dict[str, Any] = {
        field: options[option] for option, field in _FIELDS_OF.items() if option in options
    }
    if "bootstrap_servers" not in fields:
        raise ConfigError("kafka.bootstrap.servers", None, "it must name brokers as 'host:port'")
    for name, kind in _NUMBERS.items():
        if name in options:
            fields[name] = _number(options, name, kind)
    client: dict[str, str] = {}
    secrets: dict[str, str] = {}
    for option, value in options.items():
        if option.startswith(_SECRET):
            secrets[option.removeprefix(_SECRET)] = value
        elif option.startswith(_KAFKA):
            if option not in _FIELDS_OF:
                client[option.removeprefix(_KAFKA)] = value
        elif option not in known:
            allowed = f"the options are kafka.*, secret.*, {', '.join(sorted(known - {'path'}))}"
            raise ConfigError(option, "...", allowed)
    return ReaderSettings(client=client, secrets=secrets, **fields)


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    columns = options.get("columns")
    if columns is None:
        return DEFAULT
    return check_columns(name.strip() for name in columns.split(","))


def _ranges(options: Mapping[str, str]) -> list[OffsetRange]:
    text = options.get("ranges", "")
    try:
        return [OffsetRange(*part) for part in json.loads(text)]
    except (TypeError, ValueError) as error:
        allowed = f"it must be a JSON list of [topic, partition, start, end] ({error})"
        raise ConfigError("ranges", text[:200], allowed) from error


def _number(options: Mapping[str, str], name: str, kind: type[int | float]) -> Any:
    text = options.get(name)
    try:
        return None if text is None else kind(text)
    except ValueError as error:
        raise ConfigError(name, text, "it must be a number") from error
