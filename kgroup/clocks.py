"""The clocks that measure leases, and the wall clock.

INVARIANT: no lease is measured by a clock that stops while the machine is suspended, because the
coordinator's clock keeps running.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Final, final

import trio

_COUNTS_SUSPENSION: Final = ("CLOCK_BOOTTIME", "CLOCK_MONOTONIC")
"""The first clock that the system has is used. Linux has ``CLOCK_BOOTTIME``. macOS has only
``CLOCK_MONOTONIC``, which keeps running; ``time.monotonic`` reads another clock there
(``mach_absolute_time``), which stops."""


def _clock() -> Callable[[], float]:
    for name in _COUNTS_SUSPENSION:
        if hasattr(time, name):
            return partial(time.clock_gettime, getattr(time, name))
    # On Windows, the monotonic clock keeps running while the machine is suspended.
    return time.monotonic


_now: Final = _clock()


@final
class SuspendAwareClock:
    """The system's clock that also counts the time for which the machine was suspended.

    ``CLOCK_BOOTTIME`` on Linux, ``CLOCK_MONOTONIC`` on macOS, ``time.monotonic`` on Windows.
    """

    now = staticmethod(_now)
    """Seconds since some point in the past. It is read before each record, so nothing wraps it."""


def time_jumps() -> bool:
    """Whether trio's time jumps when no task can run, as that of a MockClock with autojump does."""
    clock = trio.lowlevel.current_clock()
    # The class itself is in trio.testing, which programs do not import.
    return getattr(clock, "autojump_threshold", math.inf) < math.inf


@final
class WallClock:
    """The time of day, on which the members of a group agree without talking to each other."""

    def now(self) -> float:
        """Seconds since the epoch."""
        return time.time()


@final
class TrioClock:
    """Trio's clock, which is virtual in tests that run under MockClock.

    Other threads can read it as soon as the event loop's thread has read it once.
    """

    def __init__(self) -> None:
        self._last: trio.abc.Clock | None = None

    def now(self) -> float:
        """Seconds since some point in the past."""
        try:
            self._last = clock = trio.lowlevel.current_clock()
        except RuntimeError:  # this thread has no event loop
            if self._last is None:
                raise
            clock = self._last
        return clock.current_time()
