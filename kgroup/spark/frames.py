"""Ranges as a DataFrame: how the batch loop reads a batch, and a batch job without a group.

Two ways into Spark, both over ``kgroup.spark.range_reader``: ``frame`` maps over ids of tasks,
which Spark plans without starting a Python process, so it is the quick one for small batches;
``read_ranges`` goes by the data source "kgroup", which needs nothing but its name and options.

Left to others: which ranges (``kgroup.spark.planning``), and running the job.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, final, get_args

import attrs
import pyarrow

from kgroup.errors import ConfigError
from kgroup.spark.columns import DEFAULT, checked, ddl
from kgroup.spark.jvm import jvm_frame
from kgroup.spark.offset_ranges import PARALLELISM, OffsetRange, in_order, pack, split
from kgroup.spark.range_reader import read
from kgroup.spark.reader_settings import ReaderSettings
from kgroup.spark.size_estimates import Seen
from kgroup.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession

Backend = Literal["python", "jvm"]
"""What reads: librdkafka in Python workers, or Spark's own source in the JVM."""
BACKENDS: Final = get_args(Backend)


@final
@attrs.frozen
class ReadTasks:
    """The function that tasks run: from the ids of tasks to the records of their ranges.

    It is pickled by name: the workers import it from kgroup.
    """

    tasks: tuple[tuple[OffsetRange, ...], ...]
    settings: ReaderSettings
    columns: tuple[str, ...]
    seen: Any = attrs.field(default=None, repr=False, eq=False)

    @property
    def __name__(self) -> str:
        """What the plan shows."""
        return "kgroup_read"

    def __call__(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Read the ranges of each task whose id comes."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._read(number)

    def _read(self, number: int) -> Iterator[pyarrow.RecordBatch]:
        def on_read(brought: Mapping[TopicPartition, Seen]) -> None:
            if self.seen is not None:
                self.seen.add({number: brought})

        return read(self.tasks[number], self.settings, self.columns, on_read=on_read)


def frame(
    spark: SparkSession,
    ranges: Iterable[OffsetRange],
    settings: ReaderSettings,
    *,
    columns: Sequence[str] = DEFAULT,
    parallelism: int | None = None,
    backend: Backend = "python",
    options: Mapping[str, str] | None = None,
    seen: Count | None = None,
) -> DataFrame:
    """A DataFrame of the records of ranges, read when an action runs.

    Args:
        spark: the session.
        ranges: what is read; split further so that one hot partition uses all cores.
        settings: how.
        columns: names of columns of Spark's own Kafka source; others are not read.
        parallelism: how many tasks read; by default what Spark can run at once, and where its own
            source reads, one for each partition.
        backend: ``python``, or ``jvm`` for Spark's own source (see ``kgroup.spark.jvm``).
        options: of Spark's own source, where that reads.
        seen: what ``count_seen`` made; is told what each task brought. Spark's own source tells
            nothing.

    Raises:
        UsageError: two ranges overlap.
        ConfigError: an unknown column or backend; or a setting that the backend cannot use.
    """
    names = checked(columns)
    if backend not in BACKENDS:
        raise ConfigError("backend", backend, f"it must be one of {', '.join(BACKENDS)}")
    if options and backend != "jvm":
        raise ConfigError("options", tuple(options), "they are for the backend 'jvm' only")
    slots = slots_of(spark) if parallelism is None else parallelism
    pieces = split(ranges, parallelism=slots)
    tasks = pack(pieces, slots or len(pieces))
    if not tasks:
        return spark.createDataFrame([], ddl(names))
    if backend == "jvm":
        return jvm_frame(
            spark, pieces, settings, columns=names, parallelism=parallelism, options=options
        )
    fn = ReadTasks(tasks, settings, names, seen)
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(fn, ddl(names))


def read_ranges(
    spark: SparkSession,
    ranges: Iterable[OffsetRange],
    settings: ReaderSettings,
    *,
    columns: Sequence[str] = DEFAULT,
    parallelism: int | None = None,
) -> DataFrame:
    """A DataFrame of the records of ranges, for a batch job without a group.

    It goes by the data source "kgroup", which is registered in this session.

    Args:
        spark: the session.
        ranges: what is read; split further so that one hot partition uses all cores.
        settings: how.
        columns: names of columns of Spark's own Kafka source; others are not read.
        parallelism: how many tasks read; what Spark can run at once by default.

    Raises:
        UsageError: two ranges overlap.
        ConfigError: an unknown column; or ``parallelism`` is not allowed.
    """
    from kgroup.spark.source import NAME, KgroupSource, options_of

    PARALLELISM.check("parallelism", parallelism)
    told = options_of(
        in_order(ranges),
        settings,
        columns=checked(columns),
        parallelism=slots_of(spark) if parallelism is None else parallelism,
    )
    spark.dataSource.register(KgroupSource)
    return spark.read.format(NAME).options(**told).load()


def slots_of(spark: SparkSession) -> int | None:
    """How many tasks this Spark can run at once, or None where it does not tell (Connect)."""
    context = getattr(spark, "_sc", None)
    return None if context is None else max(1, int(context.defaultParallelism))


@final
@attrs.frozen
class Count:
    """What the tasks of one frame have read; it travels to workers.

    All counts of a loop share one accumulator: PySpark keeps every one that was made for ever.
    """

    _told: Accumulator[dict[tuple[int, int], Mapping[TopicPartition, Seen]]]
    _frame: int = 0

    def another(self) -> Count:
        """That of another frame."""
        return attrs.evolve(self, frame=self._frame + 1)

    def add(self, brought: Mapping[int, Mapping[TopicPartition, Seen]]) -> None:
        """What tasks tell, by their numbers; in a worker."""
        self._told.add({(self._frame, task): seen for task, seen in brought.items()})

    def total(self) -> dict[TopicPartition, Seen]:
        """What each partition brought, of the tasks that have read to their ends; in the driver."""
        total: dict[TopicPartition, Seen] = {}
        for (frame, _), brought in tuple(self._told.value.items()):
            for name, seen in brought.items() if frame == self._frame else ():
                before = total.get(name, Seen(0, 0))
                total[name] = Seen(before.records + seen.records, before.bytes + seen.bytes)
        return total

    def forget(self) -> None:
        """Nobody asks any more; of this frame, and of those before it that told late."""
        for key in tuple(self._told.value):
            if key[0] <= self._frame:
                self._told.value.pop(key, None)


def count_seen(spark: SparkSession) -> Count | None:
    """What ``frame`` takes as ``seen``, or None where Spark has no accumulators (Connect).

    A task that Spark runs twice counts once.
    """
    context = getattr(spark, "_sc", None)
    return None if context is None else Count(context.accumulator({}, LastOfTask()))


@final
class LastOfTask:
    """How what tasks tell comes together: the last word of each task counts.

    An ``AccumulatorParam`` by its methods; it travels to workers.
    """

    def zero(self, value: dict[Any, Any]) -> dict[Any, Any]:  # noqa: ARG002 - Spark's
        """What a task begins with."""
        return {}

    def addInPlace(self, value: dict[Any, Any], more: dict[Any, Any]) -> dict[Any, Any]:  # noqa: N802
        """Both, the second's word over the first's."""
        value.update(more)
        return value


def seen_in(counted: Count | None) -> dict[TopicPartition, Seen]:
    """What each partition brought, of the tasks that have read to their ends.

    Args:
        counted: what ``count_seen`` made.
    """
    return {} if counted is None else counted.total()
