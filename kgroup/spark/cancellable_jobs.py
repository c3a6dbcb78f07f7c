"""What a Spark session must be able to do with the jobs of one group, whichever kind it is.

``classic`` does it for a session in this process, ``connect`` for Spark Connect; ``runner`` is
what uses it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, Final, Protocol, TypeVar

from kgroup.errors import KgroupError

T = TypeVar("T")

KILL_TIMEOUT: Final = "spark.python.task.killTimeout"
"""Spark's setting: how long a killed task's Python worker may go on once Spark has looked."""

KILL_TIMEOUT_DEFAULT: Final = "2s"

MONITOR_PERIOD: Final = 2.0
"""Seconds between two looks of Spark's ``BasePythonRunner.MonitorThread`` at its task."""


class JobGroupCancelledError(KgroupError):
    """The job group was poisoned before this call; nothing was started.

    A poisoned group stays so: another attempt at the same work needs a group of another name.

    Attributes:
        group: the job group.
    """

    def __init__(self, group: str) -> None:
        super().__init__(
            f"the Spark job group {group!r} was cancelled and takes no further job; run another"
            " attempt under another job group"
        )
        self.group = group


class CancellableJobs(Protocol):
    """The jobs of one Spark session, by job group. Safe to use from any thread."""

    def thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        """A thread, not yet started, that has what Spark kept for the thread that made this."""
        ...

    def call(self, group: str, description: str, fn: Callable[..., T], *args: Any) -> T:
        """Call a function in this thread; the jobs that it starts are the group's."""
        ...

    def poison(self, group: str) -> None:
        """Cancel the group's jobs and refuse later ones; call it again while any are left."""
        ...

    def running(self, group: str) -> int:
        """How many tasks of the group still run."""
        ...

    def cancelled(self, group: str, error: BaseException) -> bool:
        """Whether an exception says nothing but that the group was poisoned."""
        ...
