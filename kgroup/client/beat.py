"""The beat: the moments of the wall clock at which the members of a group send their heartbeats.

Theory of operation
===================

A member of a classic group learns of a rebalance only from the response to a heartbeat. The member
that learns first finishes its work and joins again, and then waits for the one that learns last:
up to a whole heartbeat interval, in which its partitions are not read. If all members send their
heartbeats at the same moments, they learn of a rebalance together, and none waits.

Nothing needs to be agreed on for that. The moments are the multiples of the interval on the wall
clock, shifted by a phase that follows from the group id, so that all groups do not burden a
coordinator at the same moments. There are few phases, so that a process with many groups wakes up
for several of them at once: to wake up costs more than to send a heartbeat. Members whose intervals
are multiples of each other have common moments too. A member that is about to leave, or that
requests a rebalance, does so shortly before such a moment, so that the others learn of it at once.

The wall clock decides when a heartbeat is sent, and nothing else: leases, deadlines and the length
of each wait are measured by other clocks. If wall clocks disagree or jump, or if other clients are
in the group, hand-overs take as long as they do without a beat.

INVARIANT: whatever the wall clock says, each wait for a heartbeat is at least half and at most one
and a half times the requested interval, and never longer than ``longest``.
"""

from __future__ import annotations

import math
import zlib
from typing import Final, final

from kgroup.interfaces import Clock

_PHASES: Final = 100
"""The phase is a number of tenths of a second below this. It is longer than usual intervals, so
that it shifts groups apart whatever their interval is."""


@final
class Beat:
    """The moments at which one group's members send their heartbeats. Without I/O.

    Args:
        wall_clock: the time that the members' machines agree on, in seconds.
        group_id: gives the phase.
        longest: the longest wait for a heartbeat, in seconds.
    """

    def __init__(self, wall_clock: Clock, group_id: str, *, longest: float = math.inf) -> None:
        self._wall_clock = wall_clock
        self._phase = zlib.crc32(group_id.encode("utf-8", "surrogatepass")) % _PHASES / 10
        self._longest = longest

    def delay(self, interval: float) -> float:
        """Seconds to the multiple of the interval that is nearest to one interval from now."""
        wait = self.delay_to_next(interval)
        if wait < interval / 2 and wait + interval <= max(self._longest, interval):
            return wait + interval
        return wait

    def delay_to_next(self, interval: float) -> float:
        """Seconds to the next multiple of the interval: more than 0, at most the interval."""
        now = self._wall_clock.now()
        if not math.isfinite(now):
            return interval
        return interval - (now - self._phase) % interval

    def delay_before(self, interval: float, lead: float) -> float:
        """Seconds to the next moment that is ``lead`` before a multiple of the interval.

        At least 0, and less than the interval.
        """
        return (self.delay_to_next(interval) - lead) % interval
