"""The data source "kgroup" for Spark: from options to the records of ranges of offsets.

``spark.dataSource.register(KgroupSource)``, then ``spark.read.format("kgroup").options(...)``.
``kgroup.spark.frames.read_ranges`` does both. A schema of fewer columns reads only those:
``spark.read.format("kgroup").schema("value binary")``.

Options (all text):

- ``ranges``: JSON, a list of ``[topic, partition, start, end]``;
- ``kafka.<name>``: librdkafka's settings, ``kafka.bootstrap.servers`` among them; no secrets;
- ``secret.<name>``: a reference to the value of one of librdkafka's settings, see
  ``ReaderSettings``;
- ``columns``: names, joined by commas;
- ``parallelism``: how many tasks read;
- ``no_progress_timeout``, ``batch_records``, ``batch_bytes``, ``max_buffered_bytes``: numbers, as
  in ``ReaderSettings``.

Left to others: reading (``kgroup.spark.range_reader``). Imported by executors.
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
from kgroup.spark.columns import DEFAULT, checked, spark_schema
from kgroup.spark.offset_ranges import OffsetRange, pack, split
from kgroup.spark.range_reader import read
from kgroup.spark.reader_settings import ReaderSettings

NAME: Final = "kgroup"
"""What ``spark.read.format`` takes."""
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
    """What one task reads."""

    def __init__(self, ranges: tuple[OffsetRange, ...]) -> None:
        super().__init__(ranges)


@final
class KgroupReader(DataSourceReader):
    """Reads tasks' ranges; made on the driver, used in the workers."""

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
        """One for each task."""
        return [TaskRanges(task) for task in self._tasks]

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """The records of a task's ranges; of no task where there are no ranges."""
        ranges = partition.value if isinstance(partition, TaskRanges) else ()
        return read(ranges, self._settings, self._columns)


@final
class KgroupSource(DataSource):
    """Spark's entry: options in, schema and reader out.

    Raises (from ``reader``):
        ConfigError: an option is unknown or refused, or the schema is not of the source's columns.
        UsageError: two ranges overlap.
    """

    @classmethod
    def name(cls) -> str:
        """``kgroup``."""
        return NAME

    def schema(self) -> StructType:
        """The columns that the options ask for."""
        return spark_schema(_columns(self.options))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the columns of a schema."""
        options = dict(self.options)
        names = checked(schema.fieldNames())
        for asked, own in zip(schema.fields, spark_schema(names).fields, strict=True):
            if asked.dataType != own.dataType:
                allowed = f"it must be {own.dataType.simpleString()}, as in Spark's own source"
                raise ConfigError(f"schema[{asked.name!r}]", asked.dataType.simpleString(), allowed)
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
    """The options that say this; ``settings_of`` is the way back."""
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
    """The settings that options say.

    Raises:
        ConfigError: one is unknown, missing or refused.
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
            allowed = f"the source knows kafka.*, secret.*, {', '.join(sorted(known - {'path'}))}"
            raise ConfigError(option, "...", allowed)
    return ReaderSettings(client=client, secrets=secrets, **fields)


def _columns(options: Mapping[str, str]) -> tuple[str, ...]:
    asked = options.get("columns")
    if asked is None:
        return DEFAULT
    return checked(name.strip() for name in asked.split(","))


def _ranges(options: Mapping[str, str]) -> list[OffsetRange]:
    told = options.get("ranges", "")
    try:
        return [OffsetRange(*part) for part in json.loads(told)]
    except (TypeError, ValueError) as error:
        allowed = f"it must be a JSON list of [topic, partition, start, end] ({error})"
        raise ConfigError("ranges", told[:200], allowed) from error


def _number(options: Mapping[str, str], name: str, kind: type[int | float]) -> Any:
    told = options.get(name)
    try:
        return None if told is None else kind(told)
    except ValueError as error:
        raise ConfigError(name, told, "it must be a number") from error
