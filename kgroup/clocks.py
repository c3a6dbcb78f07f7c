"""The clocks that a lease can be measured by.

INVARIANT: a lease is never measured by a clock that stands still while the machine sleeps; the
coordinator's does not.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Final, final

import trio

_COUNTS_SUSPENSION: Final = ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC")
"""The first that the system has: Linux's, and macOS's, where ``time.monotonic`` is another clock
that stands still (``mach_absolute_time``)."""


def _clock() -> Callable[[], float]:
    for name in _COUNTS_SUSPENSION:
        if hasattr(time, name):
            return partial(time.clock_gettime, getattr(time, name))
    # Windows: its monotonic clock goes on while the machine sleeps.
    return time.monotonic


_now: Final = _clock()


@final
class SuspendAwareClock:
    """The system's clock that counts the time a machine was suspended.

    ``CLOCK_BOOTTIME`` on Linux, ``CLOCK_MONOTONIC`` on macOS, ``time.monotonic`` on Windows.
    """

    def now(self) -> float:
        """Seconds since some point in the past."""
        return _now()


@final
class TrioClock:
    """Trio's own clock: virtual where a test runs under MockClock."""

    def now(self) -> float:
        """Seconds since some point in the past."""
        return trio.current_time()
