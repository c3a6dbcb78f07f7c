"""Deadlines by name that are cheap to move; Kafka uses a timing wheel for the same purpose.

INVARIANT: every name has at most one deadline, and one entry in the heap at or before it. A
deadline that moves later leaves its entry where it is; when the entry reaches the top of the heap,
it is replaced by one at the true deadline. So a heartbeat, which moves a session's deadline, costs
one dictionary write.
"""

from __future__ import annotations

import enum
import heapq
import math
from collections.abc import Mapping
from typing import Final, NamedTuple, final


@final
class TimerKind(enum.Enum):
    """The kind of a deadline. Kafka names its keys heartbeat, join and sync."""

    SESSION = "session"
    JOIN = "join"
    SYNC = "sync"
    RETENTION = "retention"

    # Timer names are hashed often. The hash of an enum member is computed in Python code, which is
    # slow; that of an object is not.
    __hash__ = object.__hash__


#: How long each timer runs, and when it is set and stopped.
MEANING: Final[Mapping[TimerKind, str]] = {
    TimerKind.SESSION: (
        "one for each member and each pending member id. It runs for the member's session"
        " time-out; heartbeats, commits and the response to a waiting request start it again. While"
        " a new member's JoinGroup waits, it runs for 300 s instead"
    ),
    TimerKind.JOIN: (
        "one for each group that prepares a rebalance. It runs for the longest rebalance time-out"
        " of the members. If the group was Empty, it runs for the initial delay, again and again"
        " while new members join, up to the first member's rebalance time-out. The end of the join"
        " cancels it. While only static members are waited for it runs again and again, each time"
        " for 0.1 s at least (Kafka: also without a pause, if the time-out is 0 or negative)"
    ),
    TimerKind.SYNC: (
        "one for each group whose join has completed. It runs for the longest rebalance time-out of"
        " the members; the last SyncGroup and the next rebalance cancel it"
    ),
    TimerKind.RETENTION: (
        "one for the coordinator. It runs for the check interval"
        " (`offsets.retention.check.interval.ms`), then deletes the offsets that were unused for"
        " the retention, and groups without members together with their last offset"
    ),
}


@final
class TimerName(NamedTuple):
    """A deadline's name: its kind, its group (but for retention) and, for sessions, its member.

    A tuple because names are looked up all the time, and tuples are hashed quickly.
    """

    kind: TimerKind
    group_id: str = ""
    member_id: str = ""


@final
class Timers:
    """Deadlines in float seconds. Equal ones expire in the order in which they were set."""

    def __init__(self) -> None:
        self._deadlines: dict[TimerName, tuple[float, int]] = {}
        self._heap: list[tuple[float, int, TimerName]] = []
        self._entries: dict[TimerName, tuple[float, int]] = {}
        self._count = 0

    def set(self, name: TimerName, at: float) -> None:
        """Set a deadline, or replace it."""
        self._count += 1
        self._deadlines[name] = deadline = (at, self._count)
        if name not in self._entries or self._entries[name] > deadline:
            self._push(name, deadline)

    def cancel(self, name: TimerName) -> None:
        """Remove a deadline, if it is set."""
        self._deadlines.pop(name, None)

    def get(self, name: TimerName) -> float | None:
        """A deadline, or None."""
        return self._deadlines[name][0] if name in self._deadlines else None

    def next(self) -> float | None:
        """The earliest deadline, or None."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    @property
    def set_so_far(self) -> int:
        """How often a deadline was set; see ``pop_due``."""
        return self._count

    def pop_due(self, now: float, among: float = math.inf) -> TimerName | None:
        """Remove and return the earliest deadline that is not after now, or None.

        Args:
            now: the time; no deadline is set for an earlier one.
            among: an earlier value of ``set_so_far``: deadlines that were set since are left.
        """
        # No deadline is before the top entry: mostly there is nothing to settle.
        if not self._heap or self._heap[0][0] > now:
            return None
        self._settle()
        if not self._heap or self._heap[0][0] > now or self._heap[0][1] > among:
            return None
        name = heapq.heappop(self._heap)[2]
        del self._entries[name], self._deadlines[name]
        return name

    def _push(self, name: TimerName, deadline: tuple[float, int]) -> None:
        self._entries[name] = deadline
        heapq.heappush(self._heap, (*deadline, name))

    def _settle(self) -> None:
        """Bring the true earliest deadline to the top."""
        while self._heap:
            at, count, name = self._heap[0]
            entry, deadline = self._entries.get(name), self._deadlines.get(name)
            if entry == deadline == (at, count):
                return
            heapq.heappop(self._heap)
            if entry == (at, count):
                del self._entries[name]
                if deadline is not None:
                    self._push(name, deadline)
