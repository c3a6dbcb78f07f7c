"""Poisonable job groups of a Spark Connect session, whose driver is elsewhere.

The group is an operation tag. What is weaker than in ``classic``:

- Spark Connect has no way to refuse a tag's later operations. A poisoned one is refused at the
  next ``call``, and what its function starts all the same is interrupted each time ``poison`` is
  called again: an operation can run for the moments between.
- A client does not see tasks. After an interrupt that hit something, tasks are taken to run for
  as long as Spark needs to kill a Python worker; JVM code that notices nothing may take longer.
- There are no local properties, so no scheduler pool is inherited and no description is shown;
  tags are inherited.
- A server that the network has cut off goes on with its operation until its own time-outs.

Read from Spark 4.0: ``SparkConnectClient.interrupt_tag`` and ``add_tag``,
``SessionHolder.interruptTag``, ``ExecuteHolder.interrupt``, ``ExecuteThreadRunner``.

INVARIANT: a group is marked here before the server is told, so that no call starts in between.
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
    JobGroupCancelledError,
)

T = TypeVar("T")

MARGIN: Final = 1.0
"""Seconds that the server may take to tell its executors, beyond what Spark takes to kill."""

INTERRUPTED: Final = "OPERATION_CANCELED"
"""What Spark calls the failure of an operation that was interrupted."""

UNITS: Final = {"ms": 0.001, "": 0.001, "s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0}
"""Seconds in what Spark writes after a number of its settings."""


@final
class ConnectJobs:
    """The jobs of one Spark Connect session.

    Args:
        spark: the session.

    Raises:
        UsageError: the server's ``spark.python.task.killTimeout`` is no duration.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._inherited = set(spark.getTags())
        self._poisoned: dict[str, float] = {}
        kill_timeout = spark.conf.get(KILL_TIMEOUT, KILL_TIMEOUT_DEFAULT)
        self._kill_time = MONITOR_PERIOD + _seconds(str(kill_timeout)) + MARGIN

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        """A daemon thread, not yet started, with the tags of the thread that made this object."""

        def tagged() -> None:
            for tag in self._inherited:
                self._spark.addTag(tag)
            target()

        return threading.Thread(target=tagged, name=name, daemon=True)

    def call(self, group: str, description: str, fn: Callable[..., T], *args: Any) -> T:  # noqa: ARG002 # see the module
        """Call a function in this thread; the operations that it starts carry the group's tag.

        Threads that it makes with ``pyspark.InheritableThread`` carry it too. Whatever the
        function does to this thread's tags is undone afterwards.

        Raises:
            JobGroupCancelledError: the group was poisoned; the function was not called.
        """
        before = set(self._spark.getTags())
        self._spark.addTag(_tag(group))
        try:
            if group in self._poisoned:
                raise JobGroupCancelledError(group)
            return fn(*args)
        finally:
            self._spark.clearTags()
            for tag in before:
                self._spark.addTag(tag)

    def poison(self, group: str) -> None:
        """Interrupt the group's operations, and refuse later calls. Idempotent, never undone.

        An operation that the function starts afterwards is interrupted by the next call.
        """
        self._poisoned.setdefault(group, 0.0)
        if self._spark.interruptTag(_tag(group)):
            self._poisoned[group] = time.monotonic() + self._kill_time

    def running(self, group: str) -> int:
        """1 for as long as Spark may need to end the tasks of what was interrupted last, else 0."""
        return int(time.monotonic() < self._poisoned.get(group, 0.0))

    def cancelled(self, group: str, error: BaseException) -> bool:
        """Whether an exception, or what caused it, is Spark's word that the group was cancelled."""
        seen: BaseException | None = error
        while seen is not None:
            if isinstance(seen, JobGroupCancelledError):
                return seen.group == group
            if isinstance(seen, PySparkException) and INTERRUPTED in str(seen):
                return group in self._poisoned
            seen = seen.__cause__ or seen.__context__
        return False


def _tag(group: str) -> str:
    return "kgroup:" + group.replace("%", "%25").replace(",", "%2C")  # no tag may have a comma


def _seconds(duration: str) -> float:
    found = re.fullmatch(r"\s*(\d+)\s*([a-z]*)\s*", duration.lower())
    if found is None or found[2] not in UNITS:
        raise UsageError(f"Spark's {KILL_TIMEOUT} is {duration!r}, which is no duration")
    return int(found[1]) * UNITS[found[2]]
