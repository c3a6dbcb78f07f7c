"""Makes a DataFrame of offset ranges, for the batch loop and for jobs without a group.

There are two ways into Spark, both with ``kgroup.spark.range_reader`` in the Python workers.
``frame`` maps a function over the ids of tasks: Spark plans that without starting a Python
process, which makes it the faster one for small batches. ``read_ranges`` uses the data source
"kgroup", which needs only a name and options. ``frame`` can also use Spark's own source (``jvm``).

Which ranges a batch has is decided in ``kgroup.spark.planning``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal, final, get_args

import attrs
import pyarrow

from kgroup.errors import ConfigError, UsageError
from kgroup.spark.cancellable_jobs import STOPPED
from kgroup.spark.columns import DEFAULT, check_columns, ddl
from kgroup.spark.jvm import jvm_frame
from kgroup.spark.offset_ranges import PARALLELISM, OffsetRange, in_order, pack, split
from kgroup.spark.range_reader import read
from kgroup.spark.reader_settings import ReaderSettings
from kgroup.spark.size_estimates import ReadCounts
from kgroup.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.accumulators import Accumulator
    from pyspark.sql import DataFrame, SparkSession
else:  # so that typing.get_type_hints finds the names without the imports
    Accumulator = DataFrame = SparkSession = Any

Backend = Literal["python", "jvm"]
"""The reader: librdkafka in Python workers, or Spark's own source in the JVM."""
BACKENDS: Final = get_args(Backend)


@final
@attrs.frozen
class ReadTasks:
    """The function that Spark's tasks run: it maps ids of tasks to the records of their ranges.

    It is pickled by name: the workers import it from kgroup.
    """

    tasks: tuple[tuple[OffsetRange, ...], ...]
    settings: ReaderSettings
    columns: tuple[str, ...]
    counter: Any = attrs.field(default=None, repr=False, eq=False)

    @property
    def __name__(self) -> str:
        """The name of the function in Spark's query plan."""
        return "kgroup_read"

    def __call__(self, batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
        """Read the ranges of the tasks whose ids are in these batches."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self._read(number)

    def _read(self, number: int) -> Iterator[pyarrow.RecordBatch]:
        def on_read(counts: Mapping[TopicPartition, ReadCounts]) -> None:
            if self.counter is not None:
                self.counter.add({number: counts})

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
    counter: ReadCounter | None = None,
) -> DataFrame:
    """Make a DataFrame of the records of ranges, which are read when an action runs.

    Args:
        spark: the session.
        ranges: the ranges to read; they are split further so that one hot partition uses all
            cores.
        settings: how executors read.
        columns: columns of Spark's own Kafka source; other columns are not read.
        parallelism: how many tasks read. The default is as many as Spark runs at once; with the
            JVM backend it is one for each partition.
        backend: ``python``, or ``jvm`` for Spark's own source (see ``kgroup.spark.jvm``).
        options: options of Spark's own source, for the JVM backend.
        counter: the result of `read_counter`; counts what each task reads. The JVM backend does
            not count.

    Raises:
        UsageError: two ranges overlap, or the session was stopped.
        ConfigError: an unknown column or backend; or a setting that the backend cannot use.
    """
    refuse_stopped(spark)
    names = check_columns(columns)
    if backend not in BACKENDS:
        raise ConfigError("backend", backend, f"it must be one of {', '.join(BACKENDS)}")
    if options and backend != "jvm":
        raise ConfigError("options", tuple(options), "they need the backend 'jvm'")
    slots = slots_of(spark) if parallelism is None else parallelism
    pieces = split(ranges, parallelism=slots)
    tasks = pack(pieces, slots or len(pieces))
    if not tasks:
        return spark.createDataFrame([], ddl(names))
    if backend == "jvm":
        return jvm_frame(
            spark, pieces, settings, columns=names, parallelism=parallelism, options=options
        )
    fn = ReadTasks(tasks, settings, names, counter)
    return spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(fn, ddl(names))


def read_ranges(
    spark: SparkSession,
    ranges: Iterable[OffsetRange],
    settings: ReaderSettings,
    *,
    columns: Sequence[str] = DEFAULT,
    parallelism: int | None = None,
) -> DataFrame:
    """Make a DataFrame of the records of ranges, for a batch job without a group.

    It uses the data source "kgroup", which is registered in this session.

    Args:
        spark: the session.
        ranges: the ranges to read; they are split further so that one hot partition uses all
            cores.
        settings: how executors read.
        columns: columns of Spark's own Kafka source; other columns are not read.
        parallelism: how many tasks read; by default as many as Spark runs at once.

    Raises:
        UsageError: two ranges overlap, or the session was stopped.
        ConfigError: an unknown column; or ``parallelism`` is not allowed.
    """
    from kgroup.spark.source import NAME, KgroupSource, options_of

    refuse_stopped(spark)
    PARALLELISM.check("parallelism", parallelism)
    options = options_of(
        in_order(ranges),
        settings,
        columns=check_columns(columns),
        parallelism=slots_of(spark) if parallelism is None else parallelism,
    )
    spark.dataSource.register(KgroupSource)
    return spark.read.format(NAME).options(**options).load()


def refuse_stopped(spark: SparkSession) -> None:
    """Refuse a session that was stopped; for a classic one PySpark raises an AttributeError.

    Raises:
        UsageError: it was stopped.
    """
    context = getattr(spark, "_sc", None)
    stopped = context is not None and context._jsc is None  # noqa: SLF001 # no public way
    if stopped or getattr(spark, "is_stopped", False):  # the latter is Spark Connect's
        raise UsageError(STOPPED)


def slots_of(spark: SparkSession) -> int | None:
    """How many tasks this Spark runs at once; None for Spark Connect, which does not report it."""
    context = getattr(spark, "_sc", None)
    return None if context is None else max(1, int(context.defaultParallelism))


@final
@attrs.frozen
class ReadCounter:
    """Counts what the tasks of one frame read; it is shipped to the workers.

    All counters of a loop share one accumulator, because PySpark never frees an accumulator.
    """

    _accumulator: Accumulator[dict[tuple[int, int], Mapping[TopicPartition, ReadCounts]]]
    _frame: int = 0

    def for_next_frame(self) -> ReadCounter:
        """Make the counter of another frame."""
        return attrs.evolve(self, frame=self._frame + 1)

    def add(self, counts: Mapping[int, Mapping[TopicPartition, ReadCounts]]) -> None:
        """Report what tasks have read, by their ids; called in a worker."""
        self._accumulator.add({(self._frame, task): count for task, count in counts.items()})

    def total(self) -> dict[TopicPartition, ReadCounts]:
        """The counts of each partition, over the tasks that have finished; in the driver."""
        total: dict[TopicPartition, ReadCounts] = {}
        for (frame, _), counts in tuple(self._accumulator.value.items()):
            for name, count in counts.items() if frame == self._frame else ():
                before = total.get(name, ReadCounts(0, 0))
                total[name] = ReadCounts(before.records + count.records, before.bytes + count.bytes)
        return total

    def discard(self) -> None:
        """Free the counts of this frame, and those of earlier frames that came late."""
        for key in tuple(self._accumulator.value):
            if key[0] <= self._frame:
                self._accumulator.value.pop(key, None)


def read_counter(spark: SparkSession) -> ReadCounter | None:
    """Make the counter that `frame` takes; None for Spark Connect, which has no accumulators.

    A task that Spark runs twice counts once.
    """
    context = getattr(spark, "_sc", None)
    return None if context is None else ReadCounter(context.accumulator({}, LatestOfTask()))


@final
class LatestOfTask:
    """Merges the reports of tasks: a later report of a task replaces an earlier one.

    It has the methods of PySpark's ``AccumulatorParam``, and is shipped to the workers.
    """

    def zero(self, value: dict[Any, Any]) -> dict[Any, Any]:  # noqa: ARG002 - Spark's
        """The initial value in a task."""
        return {}

    def addInPlace(self, value: dict[Any, Any], more: dict[Any, Any]) -> dict[Any, Any]:  # noqa: N802
        """Merge the second value into the first."""
        value.update(more)
        return value
