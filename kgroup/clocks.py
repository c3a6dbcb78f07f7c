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

_now: Final[Callable[[], float]] = (
    partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if hasattr(time, "CLOCK_BOOTTIME")
    else time.monotonic
)


@final
class SuspendAwareClock:
    """The system's clock that counts the time a machine was suspended.

    ``CLOCK_BOOTTIME`` on Linux; macOS's monotonic clock counts it too, and other systems have
    only ``time.monotonic``.
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
