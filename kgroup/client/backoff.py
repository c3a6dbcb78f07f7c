"""Waits between attempts: an exponential backoff with jitter, and a rate limit."""

from __future__ import annotations

from typing import Final, final

from kgroup.interfaces import Random

_JITTER: Final = 0.2
"""The most by which jitter changes a wait, as a fraction, so that members do not retry together."""


@final
class RateLimit:
    """Allows a burst of events, and then so many per second. The caller does the waiting."""

    def __init__(self, at_once: int, per_second: float) -> None:
        self._slack = (at_once - 1) / per_second
        self._between = 1 / per_second
        self._due = 0.0
        """When the next event is due at the steady rate, without the burst."""

    def delay(self, now: float) -> float:
        """The seconds to wait before the next event, which is counted; 0 while the burst lasts.

        Source: the generic cell rate algorithm.
        """
        wait = self.wait(now)
        self.count(now)
        return wait

    def wait(self, now: float) -> float:
        """The seconds to wait before the next event, which `count` counts when it happens."""
        return max(0.0, self._due - self._slack - now)

    def count(self, now: float) -> None:
        """Count an event that happens now."""
        self._due = max(self._due, now) + self._between


@final
class Backoff:
    """An exponential backoff with jitter. The caller does the waiting."""

    def __init__(self, first: float, most: float, random: Random) -> None:
        self._first = first
        self._most = most
        self._random = random
        self._attempts = 0

    def reset(self) -> None:
        """Start again with the first wait, after a success."""
        self._attempts = 0

    def next(self) -> float:
        """The seconds to wait before the next attempt; never more than the longest wait."""
        # The exponent is limited, because a float would overflow.
        wait = self._first * 2.0 ** min(self._attempts, 60)
        self._attempts += 1
        jitter = 1 + _JITTER * (2 * self._random.random() - 1)
        return min(wait * jitter, self._most)
