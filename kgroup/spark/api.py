"""``batches`` and ``foreach_batch`` for programs on trio; ``threaded`` has their counterparts."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from kgroup import arguments
from kgroup.batch_handler import commit_until_answered
from kgroup.events import JobStillRunning, UnsafeInterruptHandler
from kgroup.functions import check_plain
from kgroup.generation.generation import Generation, subscription_of
from kgroup.spark.batch import IN_A_THREAD, ON_FRAME, MicroBatch
from kgroup.spark.batch_limits import BatchPace, Limits
from kgroup.spark.batch_loop import Batches
from kgroup.spark.reader_settings import ReaderSettings, Value
from kgroup.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kgroup.spark.cancellable_jobs import CancellableJobs
    from kgroup.spark.frames import Backend
else:  # so that typing.get_type_hints finds the names without the imports
    DataFrame = SparkSession = CancellableJobs = Backend = Any


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

    The iteration ends when the generation begins to drain; the current batch may still finish
    within the drain. No Spark job runs while there are no new records.

    In the example each batch has a folder of its own, because two drivers must not append to one
    folder at the same time: Spark's file committer keeps uncommitted files in one place below the
    folder, and the job that commits first publishes or removes the other job's files.

    Args:
        generation: the generation whose partitions are read.
        spark: a session; classic (its driver in this process) or Spark Connect.
        max_records: the most offsets of a batch; a batch never has more rows.
        max_bytes: about the most bytes of a batch, estimated from earlier batches.
        max_wait: seconds for which the first new record may wait for more; 0 makes a batch as
            soon as there is a new record.
        max_records_per_second: about the most offsets a second, over several batches.
        max_bytes_per_second: about the most bytes a second, over several batches.
        poll_interval: seconds between polls of the end offsets while there are no new records;
            each poll is one small request to each leader.
        in_flight: how many batches may be handed out and not yet run.
        record_bytes: the size of a record that ``max_bytes`` assumes if the reader does not count
            (Spark Connect, and the ``"jvm"`` backend); otherwise it is measured.
        partitions: which of the generation's partitions to read; all by default.
        columns: which columns of Spark's own Kafka source the frames have; other columns are
            neither read nor shipped. All by default.
        backend: ``"python"``, or ``"jvm"`` to read the same ranges with Spark's own Kafka source
            (its jars must be on Spark's class path).
        parallelism: how many tasks read a batch; by default as many as Spark runs at once.
        client: librdkafka settings for the executors' consumers; this process's librdkafka must
            know them.
        secrets: references to librdkafka settings that are secrets: ``env:NAME``, ``file:/path``
            or ``call:module:function``; the executor resolves them.
        reader: other fields of ``ReaderSettings``, such as ``no_progress_timeout``.
        jobs: the result of ``kgroup.spark.session.jobs_of``, called in the thread whose
            local properties (``spark.scheduler.pool``, ...) the batches' jobs inherit; by default
            it is called in this thread.

    Raises:
        UsageError: another stream of the generation has a partition; the session cannot keep
            the jobs of threads apart; ``jobs`` is something else.
        NotOwnedError: the generation does not own a partition.
        ConfigError: a setting is not allowed.
    """
    if jobs is not None:
        wanted = "it must be the result of kgroup.spark.session.jobs_of"
        arguments.with_method("jobs", jobs, "running_tasks", wanted)
    from kgroup.spark.columns import ALL, check_columns
    from kgroup.spark.session import ReadOptions, SparkEngine, jobs_of

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
    reading = ReadOptions(
        settings=ReaderSettings.from_config(
            generation.config, client=client, secrets=secrets, **(reader or {})
        ),
        columns=ALL if columns is None else check_columns(columns),
        backend=backend,
        parallelism=parallelism,
    )
    _report_interrupt_handler(generation)
    name = f"kgroup-spark-{generation.group_id}-{generation.epoch}"
    engine = SparkEngine(
        spark,
        jobs_of(spark) if jobs is None else jobs,
        reading,
        name,
        lambda job: generation.emit(
            JobStillRunning,
            job_group=job.group,
            thread=job.thread,
            stack=job.stack,
            tasks=job.tasks,
            seconds=job.seconds,
        ),
        lambda: subscription_of(generation)[1],
    )
    return Batches(generation, engine, limits, pace, partitions)


def _report_interrupt_handler(generation: Generation) -> None:
    """Report PySpark's handler of SIGINT, beside which trio does not install its own.

    Source: PySpark's ``SparkContext._do_init``; trio's ``KIManager.install``.
    """
    if threading.current_thread() is not threading.main_thread():
        return  # signal handlers run in the main thread only
    handler = signal.getsignal(signal.SIGINT)
    if (getattr(handler, "__module__", None) or "").startswith("pyspark."):
        generation.emit(UnsafeInterruptHandler)


async def foreach_batch(
    generation: Generation,
    spark: SparkSession,
    fn: Callable[[DataFrame, MicroBatch], object],
    **settings: Any,
) -> None:
    """Run a function for each batch, and commit the batch when the function has returned.

    While the coordinator is away, the commit is sent again until it is answered or the generation
    has ended.

    ::

        async for generation in group:
            await foreach_batch(generation, spark, write)

    Args:
        generation: the generation whose partitions are read.
        spark: the session.
        fn: ``fn(df, batch)``, called in a thread.
        settings: the settings of `batches`.

    It returns when the generation has ended, also when a refused commit is what showed it.

    Raises:
        ArgumentError: ``fn`` is async, a generator function, or takes other arguments.
        Exception: raised by the function; its batch was not committed.
        FetchError: as ``MicroBatch.run``.
        UsageError, NotOwnedError, ConfigError: as `batches`.
        NoOffsetError, OffsetOutOfRangeError, BrokerError: as ``Batches.__anext__``.
        CommitFailedError, CommitUnknownError: as ``Generation.commit``, if the same commit cannot
            be made again.

    Cancellation: the batch's jobs are cancelled, and the call returns when they have stopped.
    """
    check_plain("fn", fn, ON_FRAME, instead=IN_A_THREAD)
    with generation.scope():
        loop = batches(generation, spark, **settings)
        try:
            async for batch in loop:
                await batch.run(fn, batch)
                await commit_until_answered(batch.commit)
        finally:
            await loop.aclose()
