"""``batches`` and ``foreach_batch`` for programs without an event loop; a skin over the trio ones.

For ``kgroup.threaded``. A batch's function runs in a thread of its own, as it does on trio, so
that a rebalance can cancel its jobs; the program's thread waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, final

from kgroup.generation.generation import Generation as TrioGeneration
from kgroup.spark import api
from kgroup.spark.batch import BatchStage
from kgroup.spark.batch import MicroBatch as TrioBatch
from kgroup.spark.batch_loop import Batches as TrioBatches
from kgroup.spark.offset_ranges import OffsetRange
from kgroup.spark.session_jobs import jobs_of
from kgroup.threaded.generation import Generation
from kgroup.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

T = TypeVar("T")


@final
class MicroBatch:
    """Some new records of a generation's partitions; see ``kgroup.spark.Batch``."""

    def __init__(self, generation: Generation, batch: TrioBatch) -> None:
        self._generation = generation
        self._batch = batch

    @property
    def id(self) -> str:
        """From the group and the ranges: the same ranges have the same id."""
        return self._batch.id

    @property
    def number(self) -> int:
        """Of the batch in its loop, from 1."""
        return self._batch.number

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """One for each partition that has something new, sorted."""
        return self._batch.ranges

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """Where each partition goes on after this batch: what is committed."""
        return self._batch.offsets

    @property
    def df(self) -> DataFrame:
        """The records. An action on it outside of `run` is not cancelled by a rebalance."""
        frame: DataFrame = self._batch.df
        return frame

    @property
    def stage(self) -> BatchStage:
        """How far it has come."""
        return self._batch.stage

    @property
    def group_id(self) -> str:
        """The group."""
        return self._batch.group_id

    @property
    def generation_id(self) -> int:
        """Of the generation."""
        return self._batch.generation_id

    @property
    def description(self) -> str:
        """What Spark's UI and listeners show of its jobs."""
        return self._batch.description

    def run(self, fn: Callable[..., T], *args: Any) -> T:
        """Run ``fn(batch.df, *args)`` as one cancellable Spark job group, and wait for it.

        Raises:
            StaleGenerationError: the generation has ended before or meanwhile.
            UsageError: it runs already, or was committed.
            Exception: what the function raised.

        What a signal handler raises out of the waiting cancels the jobs; the generation's end
        waits until they have stopped.
        """
        return self._generation.ask(lambda _: self._batch.run(fn, *args))

    def commit(self) -> None:
        """Commit the ends of the ranges, now that the sink has them; see ``MicroBatch.commit``.

        Raises:
            UsageError: it runs, its run failed, or a batch before it is not settled.
            StaleGenerationError, CommitFailedError, CommitUnknownError: as
                ``Generation.commit``.
        """
        self._generation.ask(lambda _: self._batch.commit())

    def skip(self) -> None:
        """Commit past this batch although its run failed: its records are given up.

        Raises:
            UsageError: it runs, or was committed.
            StaleGenerationError, CommitFailedError, CommitUnknownError: as
                ``Generation.commit``.
        """
        self._generation.ask(lambda _: self._batch.skip())

    def __str__(self) -> str:
        return str(self._batch)

    def __repr__(self) -> str:
        return repr(self._batch)


@final
class Batches:
    """Batches of one generation; an iterator, for one thread at a time. See `batches`."""

    def __init__(self, generation: Generation, loop: TrioBatches) -> None:
        self._generation = generation
        self._loop = loop

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MicroBatch:
        """The next batch, as soon as there is something new.

        Raises:
            StopIteration: the generation's end has begun, or the loop was closed.
            UsageError: the batch before was neither run, nor committed, nor skipped; or another
                thread waits here.
            NoOffsetError | OffsetOutOfRangeError: a position does not exist and
                ``auto_offset_reset`` is ``error``.
            BrokerError: a leader refuses for good.
        """
        batch = self._generation.ask(lambda _: self._next())
        if batch is None:
            raise StopIteration
        return MicroBatch(self._generation, batch)

    def close(self) -> None:
        """Give the partitions up, and end the thread of Spark's actions. Idempotent."""
        self._generation.ask(lambda _: self._loop.aclose())

    async def _next(self) -> TrioBatch | None:
        try:
            return await anext(self._loop)
        except StopAsyncIteration:
            return None


def batches(generation: Generation, spark: SparkSession, **settings: Any) -> Batches:
    """A generation's partitions as Spark micro-batches.

    ::

        for generation in group:
            for batch in batches(generation, spark, max_records=1_000_000):
                place = f"/data/lines/batch={batch.id}"
                batch.run(lambda df, to: df.write.mode("overwrite").parquet(to), place)
                batch.commit()

    Args:
        generation: whose.
        spark: the session.
        settings: those of ``kgroup.spark.batches``.

    Raises:
        UsageError, NotOwnedError, ConfigError: as ``kgroup.spark.batches``.
        StaleGenerationError: the group was closed.
    """
    settings = {"jobs": jobs_of(spark), **settings}  # in the thread whose properties they inherit
    return Batches(generation, generation.ask(partial(_made, spark, settings)))


async def _made(
    spark: SparkSession, settings: dict[str, Any], generation: TrioGeneration
) -> TrioBatches:
    return api.batches(generation, spark, **settings)


def foreach_batch(
    generation: Generation,
    spark: SparkSession,
    fn: Callable[[DataFrame, MicroBatch], object],
    **settings: Any,
) -> None:
    """Run a function for each batch and commit it: the short way.

    ::

        for generation in group:
            foreach_batch(generation, spark, write)

    Args:
        generation: whose partitions.
        spark: the session.
        fn: ``fn(df, batch)``, in a thread; when it has returned, the batch is committed.
        settings: those of ``kgroup.spark.batches``.

    Returns when the generation is over, quietly also where that was found by a refused commit.

    Raises:
        Exception: what the function raised; nothing of its batch was committed.
        UsageError, NotOwnedError, ConfigError: as ``kgroup.spark.batches``.
    """
    with generation.scope():
        for batch in batches(generation, spark, **settings):
            batch.run(fn, batch)
            batch.commit()
