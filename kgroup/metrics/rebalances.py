"""How long the parts of a rebalance take, from a member's events.

A rebalance begins with the end of a generation, or with a member's first join, and is over when the
program receives the next generation. `PHASES` says which pair of events bounds each part. Attempts
that fail (a JoinGroup that is repeated, a generation that ends before the hand-over) belong to the
rebalance; the parts that they leave unfinished are not reported. Of one that fails for hours, the
last `MOST_PARTS` parts are.

Events name a member by its id only, which it has to give up when the coordinator no longer knows
it. Its next JoinGroup is then without one, and is taken for that of the last member of the group
that may have lost its id: because its generation was lost, or a JoinGroup or SyncGroup failed. A
member whose JoinGroup only waits has its id: most new members come while others wait so.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, final

import attrs

from kgroup.events import (
    Assigned,
    Event,
    GenerationDraining,
    GenerationEnded,
    GenerationStarted,
    Joined,
    Joining,
    Left,
    RequestFailed,
)

PHASES: Final[dict[tuple[type[Event], type[Event]], str]] = {
    (GenerationDraining, GenerationEnded): "drain",
    (GenerationEnded, Joining): "rejoin",
    (Joining, Joined): "join",
    (Joined, Assigned): "sync",
    (Assigned, GenerationStarted): "hand_over",
}
"""For the events that begin and end a part of a rebalance, its name."""
_MAY_LOSE_ID: Final = frozenset({"JoinGroup", "SyncGroup"})
"""The requests of a rebalance whose refusal may take the member's id."""
_EVENTS: Final = frozenset(kind for pair in PHASES for kind in pair)
_MOST: Final = 1000
"""So many rebalances are followed at once; a lost member's id may never come again."""
MOST_PARTS: Final = 100
"""So many parts of a rebalance are kept until it is over, besides all of it."""


@final
@attrs.frozen
class RebalancePart:
    """A part of a rebalance, or all of it, which has no phase; times are the clock's."""

    phase: str
    began: float
    ended: float

    @property
    def seconds(self) -> float:
        """How long it took."""
        return max(0.0, self.ended - self.began)


@final
@attrs.define
class _Rebalance:
    """One that is under way.

    Attributes:
        began: when it began.
        last: its last event.
        at: when that was.
        id_in_doubt: whether the member may have to give up its id now.
        spans: its parts.
    """

    began: float
    last: type[Event]
    at: float
    id_in_doubt: bool = False
    spans: deque[RebalancePart] = attrs.field(factory=lambda: deque(maxlen=MOST_PARTS))


@final
class RebalanceTimes:
    """Follows the rebalances of members, each by its id.

    Args:
        now: the clock, in seconds.
    """

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._running: dict[tuple[str, str], _Rebalance] = {}

    def take(self, event: Event) -> list[RebalancePart]:
        """Take an event; when a rebalance is over, return its parts, and last all of it."""
        kind = type(event)
        key = (event.group_id, event.member_id)
        if kind not in _EVENTS:
            self._take_other(event)
            return []
        now = self._now()
        # A member has no id before its first JoinGroup, or if it had to give up its id.
        running = self._running.pop(key, None) or self._running.pop((event.group_id, ""), None)
        if running is None and kind is Joining and not event.member_id:
            running = self._pop_former_id(event.group_id)
        if running is None:
            if kind is GenerationStarted:
                return []
            if len(self._running) >= _MOST:
                # The one that has waited longest for its next event.
                del self._running[next(iter(self._running))]
            self._running[key] = _Rebalance(now, kind, now, _id_in_doubt(event))
            return []
        if (phase := PHASES.get((running.last, kind))) is not None:
            running.spans.append(RebalancePart(phase, running.at, now))
        if kind is GenerationStarted:
            return [*running.spans, RebalancePart("", running.began, now)]
        if kind is not running.last:  # of repeated ones the first counts
            running.last, running.at = kind, now
        running.id_in_doubt = _id_in_doubt(event)
        self._running[key] = running
        return []

    def _take_other(self, event: Event) -> None:
        """Take an event that neither begins nor ends a part of a rebalance."""
        key = (event.group_id, event.member_id)
        if isinstance(event, Left):
            self._running.pop(key, None)
            return
        running = self._running.get(key)
        failed = isinstance(event, RequestFailed) and event.request in _MAY_LOSE_ID
        if running is not None and failed:
            running.id_in_doubt = True

    def _pop_former_id(self, group_id: str) -> _Rebalance | None:
        """The rebalance of the last member of a group that may have given up its id."""
        for key in reversed(self._running):
            if key[0] == group_id and self._running[key].id_in_doubt:
                return self._running.pop(key)
        return None


def _id_in_doubt(event: Event) -> bool:
    """Whether the member may have to give up its id after this event: it lost its partitions."""
    return isinstance(event, GenerationEnded) and not event.end.can_commit
