"""Waits between attempts: doubling, with jitter, capped."""

from __future__ import annotations

from typing import Final, final

from kgroup.interfaces import Random

_JITTER: Final = 0.2
"""A wait is stretched or shrunk by up to this part, so that members do not come in step."""


@final
class Allowance:
    """How often something may be done: a number of times at once, then so many times a second.

    Pure; who waits is up to the caller.
    """

    def __init__(self, at_once: int, per_second: float) -> None:
        self._slack = (at_once - 1) / per_second
        self._between = 1 / per_second
        self._due = 0.0
        """When the next one would be due, had all been done in time."""

    def wait(self, now: float) -> float:
        """Seconds to wait before the next one, which is counted; 0 as long as there is slack.

        Source: the generic cell rate algorithm.
        """
        wait = max(0.0, self._due - self._slack - now)
        self._due = max(self._due, now) + self._between
        return wait


@final
class Backoff:
    """The next wait of a series. Pure; who waits is up to the caller."""

    def __init__(self, first: float, most: float, random: Random) -> None:
        self._first = first
        self._most = most
        self._random = random
        self._attempts = 0

    @property
    def attempts(self) -> int:
        """Waits given since the last `reset`."""
        return self._attempts

    def reset(self) -> None:
        """Begin anew: something succeeded."""
        self._attempts = 0

    def next(self) -> float:
        """Seconds to wait before the next attempt; never more than the most."""
        # Doubling stops counting long before a float overflows.
        wait = self._first * 2.0 ** min(self._attempts, 60)
        self._attempts += 1
        jitter = 1 + _JITTER * (2 * self._random.random() - 1)
        return min(wait * jitter, self._most)
