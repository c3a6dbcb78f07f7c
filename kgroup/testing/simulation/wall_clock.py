"""The wall clocks of simulated machines, which disagree and jump.

Members send their heartbeats at round values of the wall clock (``kgroup.client.beat``). No
invariant may depend on that, so that simulated clocks are worse than real ones.
"""

from __future__ import annotations

from random import Random
from typing import Final, final

import trio

_EXACT: Final = 0.02
"""The most seconds by which a synchronized clock is wrong; every other clock is one."""
_JUMP: Final = 5 / 3
"""How many times the error of a clock its jumps may be, forwards or backwards."""
_UNTIL_JUMP: Final = 300.0
"""Seconds between two jumps of a clock that is not synchronized, on average."""


@final
class DriftingWallClock:
    """The wall clock of one machine.

    Args:
        random: decides how wrong it is, and when it jumps.
        error: the most seconds by which a clock is wrong at first that is not synchronized; with 0
            every clock is right, and none jumps.
    """

    def __init__(self, random: Random, error: float) -> None:
        self._random = random
        self._jump = error * _JUMP
        synchronized = random.random() < 1 / 2 or not error
        most = min(_EXACT, error) if synchronized else error
        self._offset = random.uniform(-most, most)
        self._jumps_at = float("inf") if synchronized else self._next_jump(trio.current_time())

    def now(self) -> float:
        """Seconds since some point in the past."""
        now = trio.current_time()
        while now >= self._jumps_at:
            self._offset += self._random.uniform(-self._jump, self._jump)
            self._jumps_at = self._next_jump(self._jumps_at)
        return now + self._offset

    def _next_jump(self, after: float) -> float:
        return after + self._random.expovariate(1 / _UNTIL_JUMP)
