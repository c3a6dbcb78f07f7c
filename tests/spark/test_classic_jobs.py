"""Job groups of a classic session: what is cancelled, what is refused, what really stops."""

from __future__ import annotations

import contextlib
import gc
import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pyarrow
import pytest
import trio
from py4j.protocol import Py4JJavaError
from pyspark import InheritableThread, SparkContext
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812 # PySpark's own custom

from kgroup.errors import UsageError
from kgroup.spark import cancellable_jobs
from kgroup.spark.action_runner import ActionRunner, UnfinishedJob
from kgroup.spark.cancellable_jobs import JobGroupCancelledError
from kgroup.spark.classic_jobs import SETTLE, ClassicJobs

Work = Callable[[SparkSession], object]
POOL = "spark.scheduler.pool"


def none_unfinished(job: UnfinishedJob) -> None:
    """Fail the test, because a job still runs after its function."""
    raise AssertionError(job)


def endless(spark: SparkSession) -> Any:
    """More rows than a test has time for, read by the JVM in two tasks.

    None passes: generated code that hands out each row of a range never comes to its check of
    whether the task was killed.
    """
    return spark.range(0, 10**15, 1, 2).filter("id % 1000 = 1001")


async def cancel_once_it_runs(
    spark: SparkSession, jobs: ClassicJobs, group: str, work: Work, ready: Callable[[], bool]
) -> None:
    """Run work in a scope that is cancelled as soon as it is ready."""
    async with (
        ActionRunner(jobs, "kgroup-test", none_unfinished, report_after=60.0) as runner,
        trio.open_nursery() as nursery,
    ):
        nursery.start_soon(runner.run, group, "a test", work, spark)
        while not ready():  # noqa: ASYNC110 # Spark gives no event
            await trio.sleep(0.02)
        nursery.cancel_scope.cancel()


def java_context(spark: SparkSession) -> Any:
    """Spark's own context, which type stubs do not have."""
    java: Any = spark.sparkContext._jsc
    return java.sc()


def jobs_started(spark: SparkSession, group: str) -> int:
    """The number of jobs of a group that Spark has started so far."""
    java_context(spark).listenerBus().waitUntilEmpty()
    return len(spark.sparkContext.statusTracker().getJobIdsForGroup(group))


def test_a_call_sets_group_and_description_and_undoes_what_was_set(spark: SparkSession) -> None:
    """They apply inside of the call; afterwards the earlier ones are restored in any case."""
    context = spark.sparkContext
    before = dict(java_context(spark).getLocalProperties())

    def meddle() -> None:
        assert context.getLocalProperty("spark.jobGroup.id") == "meddle"
        assert context.getLocalProperty("spark.job.description") == "orders [0, 5)"
        context.setLocalProperty(POOL, "mine")
        context.setJobGroup("mine", "mine")
        raise ValueError("done")

    with pytest.raises(ValueError, match="done"):
        ClassicJobs(spark).call("meddle", "orders [0, 5)", meddle)
    assert dict(java_context(spark).getLocalProperties()) == before


def test_a_group_cancelled_before_its_call_runs_nothing(spark: SparkSession) -> None:
    """The function is not called, however often the group was cancelled."""
    jobs = ClassicJobs(spark)
    jobs.cancel("early")
    jobs.cancel("early")
    with pytest.raises(JobGroupCancelledError, match="'early' was cancelled"):
        jobs.call("early", "words", pytest.fail, "it was called")
    assert jobs.running_tasks("early") == 0
    assert jobs.call("other", "words", lambda: spark.range(3).count()) == 3


def test_the_last_cancelled_groups_are_remembered(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that cancels batches for months keeps as many as Spark does."""
    monkeypatch.setattr(cancellable_jobs, "MOST_CANCELLED", 3)
    jobs = ClassicJobs(spark)
    for number in range(6):
        jobs.cancel(f"batch-{number}")
    assert list(jobs._cancelled) == ["batch-3", "batch-4", "batch-5"]
    with pytest.raises(JobGroupCancelledError):
        jobs.call("batch-3", "words", pytest.fail, "it was called")


async def test_threads_inherit_from_the_maker_and_their_jvm_threads_end(
    spark: SparkSession,
) -> None:
    """The runner's thread has the maker's pool, and its JVM thread ends with the block."""
    context = spark.sparkContext
    context.setLocalProperty(POOL, "nightly")
    try:
        jobs = ClassicJobs(spark)
    finally:
        context.setLocalProperty(POOL, None)  # type: ignore[arg-type] # unsets, as PySpark says

    def read_properties() -> tuple[str | None, Any]:
        assert context._jvm is not None
        jvm: Any = context._jvm
        return context.getLocalProperty(POOL), jvm.java.lang.Thread.currentThread()

    async with ActionRunner(jobs, "kgroup-test", none_unfinished) as runner:
        pool, twin = await runner.run("inherit-1", "words", read_properties)
        again = await runner.run("inherit-2", "words", read_properties)
        assert twin.isAlive()
    assert pool == "nightly"
    assert again == (pool, twin)
    while twin.isAlive():  # noqa: ASYNC110 # Spark gives no event
        await trio.sleep(0.02)


def broadcast(spark: SparkSession) -> None:
    """Run a join whose broadcast side never ends, a job in one of Spark's thread pools."""
    side = endless(spark).selectExpr("sum(id) AS id")
    spark.range(5).join(F.broadcast(side), "id").collect()


def adaptive(spark: SparkSession) -> None:
    """Run a shuffle that adaptive execution submits as a map stage."""
    endless(spark).groupBy((F.col("id") % 7).alias("k")).count().collect()


def write(spark: SparkSession) -> None:
    """Write endless rows."""
    endless(spark).write.format("noop").mode("overwrite").save()


def threads(spark: SparkSession) -> None:
    """Run two jobs in threads that the function starts."""
    children = [InheritableThread(target=partial(_quietly, write, spark)) for _ in range(2)]
    for child in children:
        child.start()
    for child in children:
        child.join()


def stubborn(spark: SparkSession) -> None:
    """Run one job after the other, map stages too, and ignore each failure."""
    for work in (write, adaptive, broadcast, adaptive, write):
        _quietly(work, spark)


def _quietly(work: Work, spark: SparkSession) -> None:
    with contextlib.suppress(Exception):
        work(spark)


@pytest.mark.parametrize("work", [broadcast, adaptive, write, threads, stubborn])
async def test_all_jobs_of_the_function_are_cancelled(spark: SparkSession, work: Work) -> None:
    """However Spark submits them, they are cancelled when it raises, and none starts later."""
    jobs = ClassicJobs(spark)
    group = f"all-{work.__name__}"
    await cancel_once_it_runs(spark, jobs, group, work, lambda: jobs.running_tasks(group) > 0)
    assert list(jobs._task_sets(group)) == []
    started = jobs_started(spark, group)
    assert started >= 1
    # Jobs that another thread still starts under that group.
    thread = InheritableThread(target=partial(_under, spark, group))
    thread.start()
    thread.join()
    assert jobs_started(spark, group) == started


def _under(spark: SparkSession, group: str) -> None:
    spark.sparkContext.setJobGroup(group, "too late")
    with pytest.raises(Py4JJavaError, match="SPARK_JOB_CANCELLED"):
        spark.range(10).rdd.count()


class BusyWorkers:
    """A job whose two Python workers never return to Spark, and write down their process ids."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __call__(self, spark: SparkSession) -> None:
        """Run the job; it ends only by being cancelled."""
        path = self._path

        def busy(batches: Iterable[pyarrow.RecordBatch]) -> Iterable[pyarrow.RecordBatch]:
            import time

            for batch in batches:
                while batch is not None:
                    with path.open("a") as file:
                        file.write(f"{os.getpid()}\n")
                    time.sleep(0.05)
                yield batch

        spark.range(0, 2, 1, 2).mapInArrow(busy, "id long").write.format("noop").mode(
            "overwrite"
        ).save()

    def pids(self) -> set[int]:
        """The workers' processes."""
        return set(map(int, self._path.read_text().split())) if self._path.exists() else set()

    def running(self) -> bool:
        """Whether both have begun."""
        return len(self.pids()) == 2


def forget_ended_workers(spark: SparkSession) -> None:
    """Collect garbage in both processes: Spark's own list has only weak references to workers."""
    java: Any = spark.sparkContext._jvm
    for _ in range(2):
        gc.collect()
        java.System.gc()


async def test_a_python_worker_has_stopped_when_the_cancelled_run_raises(
    spark: SparkSession, tmp_path: Path
) -> None:
    """Its process has ended by then, although its user code never returns to Spark."""
    workers = BusyWorkers(tmp_path / "written")
    await cancel_once_it_runs(spark, ClassicJobs(spark), "python", workers, workers.running)
    assert not any(map(psutil.pid_exists, workers.pids()))


async def test_a_worker_whose_daemon_is_slow_to_kill_it_counts(
    spark: SparkSession, tmp_path: Path
) -> None:
    """As long as its process exists the run does not end, however busy the machine is."""
    workers = BusyWorkers(tmp_path / "written")
    jobs = ClassicJobs(spark)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(cancel_once_it_runs, spark, jobs, "slow", workers, workers.running)
        while not workers.running():  # noqa: ASYNC110 # a file gives no event
            await trio.sleep(0.02)
        (daemon,) = {psutil.Process(pid).parent() for pid in workers.pids()}
        assert daemon is not None
        daemon.suspend()
        try:
            while list(jobs._task_sets("slow")):  # noqa: ASYNC110 # Spark gives no event
                await trio.sleep(0.02)
            await trio.sleep(2 * SETTLE)
            forget_ended_workers(spark)
            assert jobs.running_tasks("slow") == 1
            assert all(map(psutil.pid_exists, workers.pids()))
        finally:
            daemon.resume()
    assert not any(map(psutil.pid_exists, workers.pids()))


async def test_a_killed_worker_that_stays_is_not_waited_for_without_end(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be another job's, so after MAX_SETTLE it no longer counts."""
    jobs = ClassicJobs(spark)
    monkeypatch.setattr("kgroup.spark.classic_jobs.killed_workers", lambda jvm: 1)
    monkeypatch.setattr("kgroup.spark.classic_jobs.MAX_SETTLE", 2 * SETTLE)
    await cancel_once_it_runs(
        spark, jobs, "another's", write, lambda: jobs.running_tasks("another's") > 0
    )
    assert jobs.running_tasks("another's") == 0


async def test_a_jvm_task_that_heeds_nothing_is_interrupted(spark: SparkSession) -> None:
    """A task that sleeps in the JVM ends long before its sleep is over."""

    def work(spark: SparkSession) -> None:
        spark.range(0, 1, 1, 1).selectExpr(
            "reflect('java.lang.Thread', 'sleep', id + 600000)"
        ).collect()

    jobs = ClassicJobs(spark)
    jobs._kill_time = 0.2
    await cancel_once_it_runs(spark, jobs, "asleep", work, lambda: jobs.running_tasks("asleep") > 0)
    assert jobs.running_tasks("asleep") == 0


def test_unpinned_threads_are_refused(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    """If threads share their job groups, the error says why and which setting to change."""
    monkeypatch.setattr(SparkContext, "_gateway", object())
    with pytest.raises(UsageError, match="PYSPARK_PIN_THREAD=false"):
        ClassicJobs(spark)


def test_a_session_that_was_stopped_is_refused_and_runs_nothing(
    spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error is raised before the function is called."""
    jobs = ClassicJobs(spark)
    monkeypatch.setattr(spark.sparkContext, "_jsc", None)
    jobs.cancel("stopped")
    assert jobs.running_tasks("stopped") == 0
    with pytest.raises(UsageError, match="was stopped"):
        ClassicJobs(spark)
    called: list[int] = []
    with pytest.raises(UsageError, match="was stopped"):
        jobs.call("next", "a batch", called.append, 1)
    assert not called
