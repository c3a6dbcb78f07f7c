"""Poisonable job groups of a Spark session whose driver is in this process.

Spark keeps what belongs to a job in local properties of the JVM thread that submits it, and the
pinned-thread mode gives each Python thread a JVM thread of its own. Read from Spark 4.0 (the same
in 4.3): ``SparkContext.cancelJobGroupAndFutureJobs``, ``DAGScheduler.handleJobGroupCancelled``,
``handleJobSubmitted`` and ``handleMapStageSubmitted``, ``TaskSchedulerImpl.killAllTaskAttempts``,
``TaskSetManager.maybeFinishTaskSet``, ``BasePythonRunner.MonitorThread``.

What counts as running is read from the task scheduler itself, not from the status tracker: that
one hears of tasks through the listener bus, which is late and under load drops what it should
tell. A set of tasks stays in the scheduler's pools until the last of its tasks, killed ones
included, has been reported ended by its executor (or its executor is lost).

INVARIANT: a group is marked here before Spark is told, so that no call starts in between.
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
    JobGroupCancelledError,
)

T = TypeVar("T")

SETTLE: Final = 0.2
"""Seconds for which a task counts as running after its end: Spark closes a killed Python worker's
connection, which ends the task, a moment before its daemon kills the process
(``PythonWorkerFactory.stopWorker``)."""

GROUP_KEY: Final = "spark.jobGroup.id"
"""The local property that names a job's group; Spark's ``SparkContext.SPARK_JOB_GROUP_ID``."""


@final
class ClassicJobs:
    """The jobs of one classic session.

    A killed task whose Python worker is in user code lives until Spark has killed the worker:
    up to 2 s until it looks, then ``spark.python.task.killTimeout`` (2 s). A task of JVM code
    ends where it next looks whether it was killed, as most sources do at each row. One that has
    not by then has its thread interrupted, and one that heeds not even that (generated code in
    a tight loop, as a range of numbers written row by row) is waited for: only Spark's
    ``spark.task.reaper.enabled`` with ``spark.task.reaper.killTimeout`` ends it, with its
    executor.

    Args:
        spark: the session.

    Raises:
        UsageError: the pinned-thread mode is off, or the session was stopped.
    """

    def __init__(self, spark: SparkSession) -> None:
        context = spark.sparkContext
        if not isinstance(SparkContext._gateway, ClientServer):  # noqa: SLF001 # no public way
            raise UsageError(
                "PySpark runs with PYSPARK_PIN_THREAD=false: all Python threads then share their"
                " job groups, and a batch could not be cancelled alone; unset it before the"
                " SparkContext is made"
            )
        if context._jsc is None:  # noqa: SLF001
            raise UsageError("the Spark session was stopped; make a new one")
        self._context = context
        self._poisoned: dict[str, float] = {}
        java = self._java_context()
        self._last_seen: dict[str, float] = {}
        self._inherited = java.getLocalProperties().clone()
        self._kill_time = (
            2 * MONITOR_PERIOD + java.conf().getTimeAsMs(KILL_TIMEOUT, KILL_TIMEOUT_DEFAULT) / 1000
        )

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        """A daemon thread, not yet started; it gets a JVM thread of its own.

        It has the local properties (``spark.scheduler.pool``, ...) that the thread had which
        made this object, so that a program's own thread counts and not the event loop's.
        """

        def inherited() -> None:
            if self._alive():
                self._java_context().setLocalProperties(self._inherited.clone())
            target()

        return threading.Thread(target=inherited, name=name, daemon=True)

    def call(self, group: str, description: str, fn: Callable[..., T], *args: Any) -> T:
        """Call a function in this thread with a job group and a description.

        The group holds every job that the function starts: those of broadcasts and adaptive
        stages, and of threads that it makes with ``pyspark.InheritableThread``. It does not
        hold jobs of other threads, of streaming queries, or those started after the function
        has given itself another job group.

        Whatever the function does to this thread's local properties is undone afterwards.

        Raises:
            JobGroupCancelledError: the group was poisoned; the function was not called.
        """
        with self._in_group(group, description):
            if group in self._poisoned:
                raise JobGroupCancelledError(group)
            return fn(*args)

    def poison(self, group: str) -> None:
        """Cancel the group's running jobs and refuse later ones. Idempotent, never undone.

        Returns when Spark's scheduler has done so: tasks may still run, jobs do not. Spark does
        not refuse map stages, which adaptive execution submits by themselves, so it has to be
        called again while the function has not returned; from the time on by which Spark has
        killed all Python workers, each call also interrupts the threads of what still runs.

        Spark remembers the last 1000 poisoned groups
        (``spark.scheduler.numCancelledJobGroupsToTrack``).
        """
        since = self._poisoned.setdefault(group, time.monotonic())
        if not self._alive():
            return
        java = self._java_context()
        java.cancelJobGroupAndFutureJobs(group)
        self._wait_until_noted(group)
        if time.monotonic() - since > self._kill_time:
            self._interrupt(group)

    def running(self, group: str) -> int:
        """How many tasks of the group still run, killed ones and their Python workers included.

        Tasks of a lost executor do not count: nobody can tell whether they run. Nothing runs
        for a driver that was stopped.
        """
        if not self._alive():
            return 0
        count = sum(int(tasks.runningTasks()) for tasks in self._task_sets(group))
        now = time.monotonic()
        if count:
            self._last_seen[group] = now
        elif now - self._last_seen.get(group, -SETTLE) < SETTLE:
            return 1
        else:
            self._last_seen.pop(group, None)
        return count

    def cancelled(self, group: str, error: BaseException) -> bool:
        """Whether an exception, or what caused it, is Spark's word that the group was cancelled."""
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
        """Spark's own ``SparkContext``, which py4j's stubs know nothing of."""
        java: Any = self._context._jsc  # noqa: SLF001
        return java.sc()

    def _alive(self) -> bool:
        java: Any = self._context._jsc  # noqa: SLF001
        return java is not None and not java.sc().isStopped()

    def _interrupt(self, group: str) -> None:
        java = self._java_context()
        for tasks in self._task_sets(group):
            try:
                found = str(tasks.runningTasksSet().mkString(","))
            except Py4JJavaError:
                continue  # the scheduler was just changing it; there is a next call
            for task in filter(None, found.split(",")):
                java.killTaskAttempt(int(task), True, f"job group {group} was cancelled")

    def _wait_until_noted(self, group: str) -> None:
        """Wait until the scheduler's event loop has come to what was posted to it so far.

        A job of the poisoned group is refused there, in its turn, and leaves no trace.
        """
        with self._in_group(group, "told only so as to be refused"):
            try:
                self._java_context().range(0, 1, 1, 1).count()
            except Py4JJavaError as error:
                if not self.cancelled(group, error):
                    raise

    @contextmanager
    def _in_group(self, group: str, description: str) -> Iterator[None]:
        java = self._java_context()
        before = java.getLocalProperties().clone()
        try:
            # Not to be interrupted at once: HDFS takes an interrupted client for a dead node.
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
