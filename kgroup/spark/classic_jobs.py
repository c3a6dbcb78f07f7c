"""Cancellable job groups of a classic Spark session, whose driver is in this process.

Spark keeps a job's group in local properties of the JVM thread that submits the job, and PySpark's
pinned-thread mode gives each Python thread a JVM thread of its own.

The number of running tasks is read from the task scheduler itself, not from the status tracker:
the status tracker is fed by the listener bus, which is late and drops events under load. A task
set stays in the scheduler's pools until an executor has reported the end of each of its tasks,
killed ones included, or the executor is lost.

INVARIANT: a group is marked as cancelled here before Spark is called, so that no function starts
in between.

Source: Spark 4.0 (the same in 4.3): ``SparkContext.cancelJobGroupAndFutureJobs``,
``DAGScheduler.handleJobGroupCancelled``, ``handleJobSubmitted`` and ``handleMapStageSubmitted``,
``TaskSchedulerImpl.killAllTaskAttempts``, ``TaskSetManager.maybeFinishTaskSet``,
``BasePythonRunner.MonitorThread``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, TypeVar, final

from py4j.clientserver import ClientServer
from py4j.protocol import Py4JJavaError
from pyspark import SparkContext
from pyspark.sql import SparkSession

from kgroup.errors import UsageError
from kgroup.spark.cancellable_jobs import (
    KILL_TIMEOUT,
    KILL_TIMEOUT_DEFAULT,
    MONITOR_PERIOD,
    STOPPED,
    JobGroupCancelledError,
    forget_oldest,
)
from kgroup.spark.python_workers import killed_workers

T = TypeVar("T")

SETTLE: Final = 0.2
"""Seconds for which a task counts as running after its end: Spark closes a killed Python worker's
connection, which ends the task, a moment before its daemon kills the process
(``PythonWorkerFactory.stopWorker``)."""

MAX_SETTLE: Final = 30.0
"""Seconds after a task's end until which a killed Python worker that still exists, where it can be
seen (``python_workers``), counts as the task's own. It may be another job's: Spark does not say
whose it was."""

GROUP_KEY: Final = "spark.jobGroup.id"
"""The local property that names a job's group; Spark's ``SparkContext.SPARK_JOB_GROUP_ID``."""


@final
class ClassicJobs:
    """The jobs of one classic session.

    How long a killed task runs on depends on its code. If its Python worker is in user code, Spark
    notices after up to 2 s and kills the worker after ``spark.python.task.killTimeout`` (2 s). JVM
    code ends at its next check whether the task was killed, which most sources do at each row. If
    it has not ended by the time that a Python worker would have been killed, its thread is
    interrupted. Code that ignores the interrupt too (generated code in a tight loop, such as a
    range of numbers written row by row) is waited for: only Spark's ``spark.task.reaper.enabled``
    with ``spark.task.reaper.killTimeout`` ends it, together with its executor.

    Args:
        spark: the session.

    Raises:
        UsageError: the pinned-thread mode is off, or the session was stopped.
    """

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        if not isinstance(SparkContext._gateway, ClientServer):  # noqa: SLF001 # no public way
            raise UsageError(
                "PySpark runs with PYSPARK_PIN_THREAD=false: all Python threads then share one job"
                " group, so that a batch cannot be cancelled alone; unset it before the"
                " SparkContext is created"
            )
        if context._jsc is None:  # noqa: SLF001
            raise UsageError(STOPPED)
        self._context = context
        self._cancelled: dict[str, float] = {}
        self._calls: set[str] = set()
        java = self._java_context()
        self._last_seen: dict[str, float] = {}
        self._inherited = java.getLocalProperties().clone()
        self._kill_time = (
            2 * MONITOR_PERIOD + java.conf().getTimeAsMs(KILL_TIMEOUT, KILL_TIMEOUT_DEFAULT) / 1000
        )

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        """Make a daemon thread, not yet started; it gets a JVM thread of its own.

        It inherits the local properties (``spark.scheduler.pool``, ...) of the thread that made
        this object: the program's own thread, not the event loop's.
        """

        def inherited() -> None:
            if self._alive():
                self._java_context().setLocalProperties(self._inherited.clone())
            target()

        return threading.Thread(target=inherited, name=name, daemon=True)

    def call(self, group: str, description: str, fn: Callable[..., T], *args: Any) -> T:
        """Call a function in this thread with a job group and a description.

        The group contains every job that the function starts, also those of broadcasts, adaptive
        stages and threads made with ``pyspark.InheritableThread``. It does not contain jobs of
        other threads or of streaming queries, nor jobs that the function starts after it has set
        another job group.

        Changes of this thread's local properties are undone afterwards.

        Raises:
            JobGroupCancelledError: the group was cancelled; the function was not called.
            UsageError: the session was stopped; the function was not called.
        """
        if not self._alive():
            raise UsageError(STOPPED)
        with self._in_group(group, description):
            if group in self._cancelled:
                raise JobGroupCancelledError(group)
            self._calls.add(group)
            try:
                return fn(*args)
            finally:
                self._calls.discard(group)

    def cancel(self, group: str) -> None:
        """Cancel the group's running jobs and refuse later ones. Idempotent.

        It returns when Spark's scheduler has processed the cancellation: no job runs any more, but
        tasks may. Spark does not refuse map stages, which adaptive execution submits separately,
        so `cancel` has to be called again until the function has returned. Once Spark has had the
        time to kill all Python workers, each call also interrupts the tasks that still run.

        Spark and this object remember the last 1000 cancelled groups (`MOST_CANCELLED`).
        """
        now = time.monotonic()
        since = self._cancelled.setdefault(group, now)
        forget_oldest(self._cancelled)
        if not self._alive():
            return
        # The first call may end tasks that nobody has counted, and a later one those of a new
        # stage. Their Python workers may end after them.
        ends_tasks = (since == now and group in self._calls) or self._counted(group) > 0
        self._a_killed_worker_exists()  # sees those that this kills
        java = self._java_context()
        java.cancelJobGroupAndFutureJobs(group)
        self._wait_for_scheduler(group)
        if ends_tasks:
            self._last_seen[group] = time.monotonic()
        if time.monotonic() - since > self._kill_time:
            self._interrupt(group)

    def running_tasks(self, group: str) -> int:
        """The number of tasks that still run, killed tasks and their Python workers included.

        Where the executor is another process, a killed Python worker cannot be seen, so it
        counts for `SETTLE` seconds after its task. Tasks of a lost executor do not count, because
        Spark cannot know whether they run. For a stopped session the number is 0.
        """
        if not self._alive():
            return 0
        count = self._counted(group)
        now = time.monotonic()
        if count:
            self._last_seen[group] = now
        elif group in self._last_seen:
            since = now - self._last_seen[group]
            if since < SETTLE or (since < MAX_SETTLE and self._a_killed_worker_exists()):
                return 1
            del self._last_seen[group]
        return count

    def is_cancellation(self, group: str, error: BaseException) -> bool:
        """Whether an exception, or one of its causes, reports that the group was cancelled."""
        seen: BaseException | None = error
        while seen is not None:
            if isinstance(seen, JobGroupCancelledError):
                return seen.group == group
            words = str(seen)
            if group in words and "cancelled" in words:
                return True
            seen = seen.__cause__ or seen.__context__
        return False

    def _java_context(self) -> Any:
        """Spark's own ``SparkContext`` object; py4j has no types for it."""
        java: Any = self._context._jsc  # noqa: SLF001
        return java.sc()

    def _alive(self) -> bool:
        java: Any = self._context._jsc  # noqa: SLF001
        return java is not None and not java.sc().isStopped()

    def _counted(self, group: str) -> int:
        return sum(int(tasks.runningTasks()) for tasks in self._task_sets(group))

    def _a_killed_worker_exists(self) -> bool:
        try:
            return killed_workers(self._context._jvm) > 0  # noqa: SLF001 # no public way
        except Py4JJavaError:
            return True  # Spark changed its list of workers meanwhile; the next call looks again

    def _interrupt(self, group: str) -> None:
        java = self._java_context()
        for tasks in self._task_sets(group):
            try:
                found = str(tasks.runningTasksSet().mkString(","))
            except Py4JJavaError:
                continue  # the scheduler changed the set meanwhile; the next call tries again
            for task in filter(None, found.split(",")):
                java.killTaskAttempt(int(task), True, f"job group {group} was cancelled")

    def _wait_for_scheduler(self, group: str) -> None:
        """Wait until the scheduler's event loop has processed everything posted to it so far.

        The scheduler handles its events in order. So it submits a job of the cancelled group, and
        waits until that is refused; a refused job leaves no trace in Spark's UI.
        """
        with self._in_group(group, "submitted only to be refused"):
            try:
                self._java_context().range(0, 1, 1, 1).count()
            except Py4JJavaError as error:
                if not self.is_cancellation(group, error):
                    raise

    @contextmanager
    def _in_group(self, group: str, description: str) -> Iterator[None]:
        java = self._java_context()
        before = java.getLocalProperties().clone()
        try:
            # Tasks are not interrupted at once: HDFS takes an interrupted client for a dead node.
            self._context.setJobGroup(group, description, interruptOnCancel=False)
            yield
        finally:
            if self._alive():
                java.setLocalProperties(before)

    def _task_sets(self, group: str) -> Iterator[Any]:
        pools = [self._java_context().taskScheduler().rootPool()]
        while pools:
            entry = pools.pop()
            members = entry.schedulableQueue()
            if members is not None:
                pools.extend(members.toArray())
            else:
                properties = entry.taskSet().properties()
                if properties is not None and properties.getProperty(GROUP_KEY) == group:
                    yield entry
