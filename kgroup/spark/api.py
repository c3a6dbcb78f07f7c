"""``batches`` and ``foreach_batch``: what a program on trio calls. ``threaded`` has the twins."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kgroup.events import JobOutstayed
from kgroup.generation.generation import Generation
from kgroup.spark.batch import MicroBatch
from kgroup.spark.batch_limits import Limits
from kgroup.spark.batch_loop import Batches, BatchPace
from kgroup.spark.reader_settings import ReaderSettings, Value
from kgroup.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kgroup.spark.frames import Backend
    from kgroup.spark.session_jobs import CancellableJobs


def batches(
    generation: Generation,
    spark: SparkSession,
    *,
    max_records: int | None = None,
    max_bytes: int | None = None,
    max_wait: float = 0.0,
    max_records_per_second: float | None = None,
    max_bytes_per_second: float | None = None,
    poll_interval: float = 0.05,
    in_flight: int = 1,
    record_bytes: int = 1024,
    partitions: TopicPartition | Iterable[TopicPartition] | None = None,
    columns: Iterable[str] | None = None,
    backend: Backend = "python",
    parallelism: int | None = None,
    client: Mapping[str, Value] | None = None,
    secrets: Mapping[str, str] | None = None,
    reader: Mapping[str, Any] | None = None,
    jobs: CancellableJobs | None = None,
) -> Batches:
    """A generation's partitions as Spark micro-batches.

    ::

        async for batch in batches(generation, spark, max_records=1_000_000):
            place = f"/data/lines/batch={batch.id}"
            await batch.run(lambda df, to: df.write.mode("overwrite").parquet(to), place)
            await batch.commit()

    It ends when the generation's end begins; the batch in hand has the drain to finish. While
    nothing is new there is no Spark job.

    Files of each batch have a folder of their own, because drivers must not append to one folder
    at the same time: Spark's file committer keeps what is not committed yet in one place below
    it, and the job that commits first publishes or removes there what is another's.

    Args:
        generation: whose.
        spark: a session; classic (its driver in this process) or Spark Connect.
        max_records: the most offsets of a batch; no batch has more rows.
        max_bytes: about the most bytes of a batch, by what earlier batches have taught.
        max_wait: seconds for which the first new record may wait for more; 0 makes a batch as
            soon as there is something new.
        max_records_per_second: about the most offsets a second, over several batches.
        max_bytes_per_second: about the most bytes a second, over several batches.
        poll_interval: seconds between looks while there is nothing new; each is one small request
            to each leader.
        in_flight: how many batches may be handed out and not yet run.
        record_bytes: how large a record is taken to be by ``max_bytes`` where nobody counts what
            was read (Spark Connect, and the ``"jvm"`` backend); elsewhere it is learnt.
        partitions: which of the generation's; all of them by default.
        columns: which columns of Spark's own Kafka source the frames have; what is not named is
            neither read nor shipped. All of them by default.
        backend: ``"python"``, or ``"jvm"`` for Spark's own Kafka source as the reader of the very
            same plan (its jars must be on Spark's class path).
        parallelism: how many tasks read a batch; what Spark can run at once by default.
        client: settings of librdkafka for the executors' consumers, by its names.
        secrets: references to those of its settings that are secrets: ``env:NAME``,
            ``file:/path`` or ``call:module:function``, looked up in the executor.
        reader: other fields of ``ReaderSettings``, such as ``no_progress_timeout``.
        jobs: what ``kgroup.spark.session_jobs.jobs_of`` gave, in the thread whose local properties
            (``spark.scheduler.pool``, ...) the batches' jobs have; made in this one by default.

    Raises:
        UsageError: another stream of the generation has a partition; the session cannot keep
            the jobs of threads apart.
        NotOwnedError: a partition is not of this generation.
        ConfigError: a setting is not allowed.
    """
    from kgroup.spark.columns import ALL
    from kgroup.spark.session import Reading, SparkEngine
    from kgroup.spark.session_jobs import jobs_of

    limits = Limits(
        max_records=max_records,
        max_bytes=max_bytes,
        max_records_per_second=max_records_per_second,
        max_bytes_per_second=max_bytes_per_second,
    )
    pace = BatchPace(
        max_wait=max_wait,
        poll_interval=poll_interval,
        in_flight=in_flight,
        record_bytes=record_bytes,
    )
    reading = Reading(
        settings=ReaderSettings.from_config(
            generation.config, client=client, secrets=secrets, **(reader or {})
        ),
        columns=ALL if columns is None else tuple(columns),
        backend=backend,
        parallelism=parallelism,
    )
    name = f"kgroup-spark-{generation.group_id}-{generation.epoch}"
    engine = SparkEngine(
        spark,
        jobs_of(spark) if jobs is None else jobs,
        reading,
        name,
        lambda stay: generation.emit(
            JobOutstayed,
            job_group=stay.group,
            thread=stay.thread,
            stack=stay.stack,
            tasks=stay.tasks,
            seconds=stay.seconds,
        ),
    )
    return Batches(generation, engine, limits, pace, partitions)


async def foreach_batch(
    generation: Generation,
    spark: SparkSession,
    fn: Callable[[DataFrame, MicroBatch], object],
    **settings: Any,
) -> None:
    """Run a function for each batch and commit it: the short way.

    ::

        async for generation in group:
            await foreach_batch(generation, spark, write)

    Args:
        generation: whose partitions.
        spark: the session.
        fn: ``fn(df, batch)``, in a thread; when it has returned, the batch is committed.
        settings: those of `batches`.

    Returns when the generation is over, quietly also where that was found by a refused commit.

    Raises:
        Exception: what the function raised; nothing of its batch was committed.
        UsageError, NotOwnedError, ConfigError: as `batches`.
        NoOffsetError, OffsetOutOfRangeError, BrokerError: as ``Batches.__anext__``.
        CommitFailedError, CommitUnknownError: as ``Generation.commit``.

    Cancellation: the jobs of the batch are cancelled, and it is waited until they have stopped.
    """
    with generation.scope():
        loop = batches(generation, spark, **settings)
        try:
            async for batch in loop:
                await batch.run(fn, batch)
                await batch.commit()
        finally:
            await loop.aclose()
