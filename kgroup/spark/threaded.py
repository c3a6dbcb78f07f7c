"""``batches`` and ``foreach_batch`` for programs without an event loop, for ``kgroup.threaded``.

They wrap the trio versions. A batch's function runs in a thread of its own, as on trio, so that a
rebalance can cancel its jobs; the program's thread waits for it.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar, final

import trio

from kgroup.batch_handler import nothing_is_left_after
from kgroup.errors import CommitFailedError, CommitUnknownError, StaleGenerationError
from kgroup.functions import check_plain
from kgroup.spark import api, batch, batch_loop
from kgroup.spark.batch import IN_A_THREAD, ON_FRAME, BatchStage
from kgroup.spark.offset_ranges import OffsetRange
from kgroup.threaded.generation import Generation, run_in_loop, slot_of, take_in_loop
from kgroup.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    import kgroup.generation.generation
else:  # so that typing.get_type_hints finds the names without the imports
    DataFrame = SparkSession = Any

T = TypeVar("T")


@final
class MicroBatch:
    """Some new records of a generation's partitions; see ``kgroup.spark.MicroBatch``."""

    def __init__(self, generation: Generation, wrapped: batch.MicroBatch) -> None:
        self._generation = generation
        self._batch = wrapped

    @property
    def id(self) -> str:
        """A hash of the group and the ranges: the same ranges have the same id."""
        return self._batch.id

    @property
    def number(self) -> int:
        """The batch's number in its loop, from 1."""
        return self._batch.number

    @property
    def ranges(self) -> tuple[OffsetRange, ...]:
        """One range for each partition that has new records, sorted."""
        return self._batch.ranges

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        """The next offset to read of each partition after this batch; `commit` commits these."""
        return self._batch.offsets

    @property
    def df(self) -> DataFrame:
        """The records. A rebalance does not cancel actions on it outside of `run`."""
        frame: DataFrame = self._batch.df
        return frame

    @property
    def stage(self) -> BatchStage:
        """How far the batch has come."""
        return self._batch.stage

    @property
    def group_id(self) -> str:
        """The group."""
        return self._batch.group_id

    @property
    def generation_id(self) -> int:
        """The id of the generation."""
        return self._batch.generation_id

    @property
    def description(self) -> str:
        """The description of its jobs in Spark's UI and listeners."""
        return self._batch.description

    def run(self, fn: Callable[..., T], *args: Any) -> T:
        """Run ``fn(batch.df, *args)`` as one cancellable Spark job group, and wait for it.

        If a signal handler raises an exception during the wait, the jobs are cancelled; the
        generation ends when they have stopped.

        Raises:
            StaleGenerationError: the generation ended before or during the run.
            FetchError: a topic was deleted and created again meanwhile; nothing was committed.
            BrokerError: a broker refused the request for the topics' ids.
            UsageError: the batch runs already, is being committed, or was committed or skipped; or
                the function returned work that is not done, such as a coroutine or a generator.
            ArgumentError: ``fn`` is async, a generator function, or takes other arguments.
            Exception: raised by the function.
        """
        return run_in_loop(self._generation, lambda _: self._batch.run(fn, *args))

    def commit(self) -> None:
        """Commit the ends of the ranges, after the sink has the records.

        Raises:
            UsageError: the batch runs, its run failed, or an earlier batch was neither run,
                committed nor skipped; nothing was sent.
            StaleGenerationError, CommitFailedError, CommitUnknownError: as
                ``Generation.commit``.
        """
        run_in_loop(self._generation, lambda _: self._batch.commit())

    def skip(self) -> None:
        """Commit the ends of the ranges although the run failed: the records are given up.

        Raises:
            UsageError: the batch runs, or was committed or skipped.
            StaleGenerationError, CommitFailedError, CommitUnknownError: as
                ``Generation.commit``.
        """
        run_in_loop(self._generation, lambda _: self._batch.skip())

    def __str__(self) -> str:
        return str(self._batch)

    def __repr__(self) -> str:
        return repr(self._batch)


@final
class Batches:
    """The batches of one generation; an iterator for one thread at a time. See `batches`."""

    def __init__(self, generation: Generation, loop: batch_loop.Batches) -> None:
        self._generation = generation
        self._loop = loop
        self._kept: batch.MicroBatch | None = None
        """A batch for which its thread had stopped waiting."""
        self._slot = slot_of(
            generation,
            self._next,
            self._keep,
            "two threads iterate over one batch loop; let one iterate, and pass its batches on",
        )

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> MicroBatch:
        """Wait for new records, and return the next batch.

        If a signal handler raises an exception during the wait, the next call returns the batch.

        Raises:
            StopIteration: the generation has begun to drain, or the loop was closed.
            UsageError: the previous batch was neither run, committed nor skipped; or another thread
                is waiting for the next batch.
            NoOffsetError | OffsetOutOfRangeError: a position does not exist and
                ``auto_offset_reset`` is ``error``.
            BrokerError: a leader refused the request, and would refuse it again.
        """
        following = take_in_loop(self._generation, self._slot)
        if following is None:
            raise StopIteration
        return MicroBatch(self._generation, following)

    def close(self) -> None:
        """Release the partitions, and end the threads that run Spark actions. Idempotent."""
        run_in_loop(self._generation, lambda _: self._loop.aclose())
        self._kept = None

    async def _next(self) -> batch.MicroBatch | None:
        kept, self._kept = self._kept, None
        if kept is not None and self._generation.end is None:
            await trio.lowlevel.cancel_shielded_checkpoint()
            return kept
        try:
            return await anext(self._loop)
        except StopAsyncIteration:
            return None

    def _keep(self, following: batch.MicroBatch | None) -> None:
        self._kept = following


def batches(generation: Generation, spark: SparkSession, **settings: Any) -> Batches:
    """A generation's partitions as Spark micro-batches.

    ::

        for generation in group:
            for batch in batches(generation, spark, max_records=1_000_000):
                place = f"/data/lines/batch={batch.id}"
                batch.run(lambda df, to: df.write.mode("overwrite").parquet(to), place)
                batch.commit()

    Args:
        generation: the generation whose partitions are read.
        spark: the session.
        settings: the settings of ``kgroup.spark.batches``.

    Raises:
        UsageError, NotOwnedError, ConfigError: as ``kgroup.spark.batches``.
        StaleGenerationError: the group was closed.
    """
    from kgroup.spark.session import jobs_of

    # In this thread, whose local properties the jobs inherit.
    settings = {"jobs": jobs_of(spark), **settings}
    return Batches(generation, run_in_loop(generation, partial(_make_loop, spark, settings)))


async def _make_loop(
    spark: SparkSession,
    settings: dict[str, Any],
    generation: kgroup.generation.generation.Generation,
) -> batch_loop.Batches:
    return api.batches(generation, spark, **settings)


def foreach_batch(
    generation: Generation,
    spark: SparkSession,
    fn: Callable[[DataFrame, MicroBatch], object],
    **settings: Any,
) -> None:
    """Run a function for each batch, and commit the batch when the function has returned.

    While the coordinator is away, the commit is sent again until it is answered or the generation
    has ended.

    ::

        for generation in group:
            foreach_batch(generation, spark, write)

    Args:
        generation: the generation whose partitions are read.
        spark: the session.
        fn: ``fn(df, batch)``, called in a thread.
        settings: the settings of ``kgroup.spark.batches``.

    It returns when the generation has ended, also when a refused commit is what showed it.

    Raises:
        ArgumentError: ``fn`` is async, a generator function, or takes other arguments.
        Exception: raised by the function; its batch was not committed.
        FetchError, BrokerError: as ``MicroBatch.run``.
        CommitFailedError, CommitUnknownError: as ``Generation.commit``, if the same commit cannot
            be made again.
        UsageError, NotOwnedError, ConfigError: as ``kgroup.spark.batches``.
    """
    check_plain("fn", fn, ON_FRAME, instead=IN_A_THREAD)
    with generation.scope():
        loop = batches(generation, spark, **settings)
        try:
            for one in loop:
                one.run(fn, one)
                _commit_until_answered(one)
        finally:
            with suppress(StaleGenerationError):  # the group is closed, and the loop with it
                loop.close()


def _commit_until_answered(done: MicroBatch) -> None:
    committed = False
    while not committed:
        try:
            done.commit()
            committed = True
        except (CommitUnknownError, CommitFailedError) as error:
            committed = nothing_is_left_after(error)
