"""Spark job groups in which nothing starts after they are cancelled: the interface.

A cancelled group accepts no later job, so that a function whose jobs were cancelled cannot start
another one. ``classic_jobs`` implements this for a session whose driver is in this process,
``connect_jobs`` for Spark Connect; each imports packages that the other kind of program may lack.
``session.jobs_of`` chooses one of them, and ``action_runner`` runs functions in a thread with it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from kgroup.errors import KgroupError

T = TypeVar("T")

KILL_TIMEOUT: Final = "spark.python.task.killTimeout"
"""Spark's setting: how long a killed task's Python worker may run on once Spark has noticed."""

KILL_TIMEOUT_DEFAULT: Final = "2s"

MONITOR_PERIOD: Final = 2.0
"""Seconds between two checks by which Spark's ``BasePythonRunner.MonitorThread`` notices that its
task was killed."""

MOST_CANCELLED: Final = 1000
"""So many cancelled groups are remembered, as by Spark itself
(``spark.scheduler.numCancelledJobGroupsToTrack``). A group's call begins soon or never."""

STOPPED: Final = "the Spark session was stopped; make a new one"
"""What is said of a session that runs nothing any more."""


def forget_oldest(cancelled: dict[str, float]) -> None:
    """Forget all but the last `MOST_CANCELLED` groups that were cancelled; in any thread."""
    for group in list(cancelled)[:-MOST_CANCELLED]:
        cancelled.pop(group, None)


class JobGroupCancelledError(KgroupError):
    """The job group was cancelled before this call; nothing was started.

    A group stays cancelled: another attempt at the same work needs a group of another name.

    Attributes:
        group: the job group.
    """

    def __init__(self, group: str) -> None:
        super().__init__(
            f"the Spark job group {group!r} was cancelled and accepts no further job; run another"
            " attempt under another job group"
        )
        self.group = group


class CancellableJobs(Protocol):
    """The jobs of one Spark session, by job group. Safe to use from any thread."""

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        """Make a thread, not yet started, that inherits what Spark keeps for the creating thread.

        That is the thread that called `jobs_of`.
        """
        ...

    def call(self, group: str, description: str, fn: Callable[..., T], *args: Any) -> T:
        """Call a function in this thread; the jobs that it starts belong to the group."""
        ...

    def cancel(self, group: str) -> None:
        """Cancel the group's jobs and refuse later ones; call it again while tasks still run."""
        ...

    def running_tasks(self, group: str) -> int:
        """The number of tasks of the group that still run."""
        ...

    def is_cancellation(self, group: str, error: BaseException) -> bool:
        """Whether an exception only reports that the group was cancelled."""
        ...
