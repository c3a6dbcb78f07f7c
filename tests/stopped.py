"""Waits for processes that were sent SIGSTOP or SIGCONT.

The signal takes effect only when the system next schedules the process. The system reports that to
the parent alone, and on macOS not before Python 3.13; so a test that is not the parent has to poll.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import psutil

_POLL: Final = 0.01


def wait_until_one_is_stopped(processes: Sequence[psutil.Process]) -> None:
    """Block until one of the processes is stopped; those that end meanwhile do not count."""
    while not any(map(_is_stopped, processes)):
        time.sleep(_POLL)


def wait_until_none_is_stopped(processes: Sequence[psutil.Process]) -> None:
    """Block until none of the processes is stopped."""
    while any(map(_is_stopped, processes)):
        time.sleep(_POLL)


def _is_stopped(process: psutil.Process) -> bool:
    try:
        return bool(process.status() == psutil.STATUS_STOPPED)
    except psutil.NoSuchProcess:
        return False
