"""Cancellable job groups of a Spark Connect session, whose driver is in another process.

A group is an operation tag. This is weaker than ``classic_jobs`` in four ways:

- Spark Connect cannot refuse later operations of a tag. A cancelled group is refused by the next
  ``call``; an operation that its function starts nevertheless is interrupted by the next
  ``cancel``, so it can run for a moment.
- A client does not see tasks. After an interrupt that hit an operation, tasks count as running for
  as long as Spark needs to kill a Python worker; JVM code that ignores the kill may run longer.
- There are no local properties: no scheduler pool is inherited, and no description is shown. Tags
  are inherited.
- A server that the network has cut off continues its operation until its own time-outs.

INVARIANT: a group is marked as cancelled here before the server is called, so that no function
starts in between.

Source: Spark 4.0: ``SparkConnectClient.interrupt_tag`` and ``add_tag``,
``SessionHolder.interruptTag``, ``ExecuteHolder.interrupt``, ``ExecuteThreadRunner``.
"""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar, final

from pyspark.errors import PySparkException
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

T = TypeVar("T")

MARGIN: Final = 1.0
"""Seconds that the server may take to reach its executors, beyond the time to kill a worker."""

INTERRUPTED: Final = "OPERATION_CANCELED"
"""Spark's error class for an operation that was interrupted."""

UNITS: Final = {"ms": 0.001, "": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
"""The units of Spark's durations, in seconds."""


@final
class ConnectJobs:
    """The jobs of one Spark Connect session.

    Args:
        spark: the session.

    Raises:
        UsageError: the session was stopped, or the server's ``spark.python.task.killTimeout`` is
            not a duration.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        if self._stopped():
            raise UsageError(STOPPED)
        self._inherited = set(spark.getTags())
        self._cancelled: dict[str, float] = {}
        kill_timeout = spark.conf.get(KILL_TIMEOUT, KILL_TIMEOUT_DEFAULT)
        self._kill_time = MONITOR_PERIOD + _seconds(str(kill_timeout)) + MARGIN

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        """Make a daemon thread, not yet started, with the tags of the thread that made this."""

        def tagged() -> None:
            for tag in self._inherited:
                self._spark.addTag(tag)
            target()

        return threading.Thread(target=tagged, name=name, daemon=True)

    def call(self, group: str, description: str, fn: Callable[..., T], *args: Any) -> T:  # noqa: ARG002 # see the module
        """Call a function in this thread; the operations that it starts carry the group's tag.

        Threads made with ``pyspark.InheritableThread`` carry it too. Changes of this thread's tags
        are undone afterwards.

        Raises:
            JobGroupCancelledError: the group was cancelled; the function was not called.
            UsageError: the session was stopped; the function was not called.
        """
        if self._stopped():
            raise UsageError(STOPPED)
        before = set(self._spark.getTags())
        self._spark.addTag(_tag(group))
        try:
            if group in self._cancelled:
                raise JobGroupCancelledError(group)
            return fn(*args)
        finally:
            self._spark.clearTags()
            for tag in before:
                self._spark.addTag(tag)

    def cancel(self, group: str) -> None:
        """Interrupt the group's operations, and refuse later calls. Idempotent.

        The last `MOST_CANCELLED` groups are remembered.

        An operation that the function starts afterwards is interrupted by the next `cancel`.
        """
        stopped = self._stopped()
        # A server interrupts the operations of a session that is stopped, at the latest now.
        ends = time.monotonic() + self._kill_time if stopped else 0.0
        self._cancelled.setdefault(group, ends)
        forget_oldest(self._cancelled)
        if not stopped and self._spark.interruptTag(_tag(group)):
            self._cancelled[group] = time.monotonic() + self._kill_time

    def running_tasks(self, group: str) -> int:
        """1 while Spark may still need time to end the tasks that were interrupted last, else 0."""
        return int(time.monotonic() < self._cancelled.get(group, 0.0))

    def is_cancellation(self, group: str, error: BaseException) -> bool:
        """Whether an exception, or one of its causes, reports that the group was cancelled."""
        seen: BaseException | None = error
        while seen is not None:
            if isinstance(seen, JobGroupCancelledError):
                return seen.group == group
            if isinstance(seen, PySparkException) and INTERRUPTED in str(seen):
                return group in self._cancelled
            seen = seen.__cause__ or seen.__context__
        return False

    def _stopped(self) -> bool:
        stopped: bool = self._spark.is_stopped  # type: ignore[attr-defined] # Connect's has it
        return stopped


def _tag(group: str) -> str:
    return "kgroup:" + group.replace("%", "%25").replace(",", "%2C")  # no tag may have a comma


def _seconds(duration: str) -> float:
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", duration.lower())
    if found is None or found[2] not in UNITS:
        raise UsageError(f"Spark's setting {KILL_TIMEOUT} is {duration!r}, which is not a duration")
    return int(found[1]) * UNITS[found[2]]
