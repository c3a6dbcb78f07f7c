"""How long the parts of a rebalance take, from a member's events.

A rebalance begins with the end of a generation, or with a member's first join, and is over when the
program receives the next generation. `PHASES` says which pair of events bounds each part. Attempts
that fail (a JoinGroup that is repeated, a generation that ends before the hand-over) belong to the
rebalance; the parts that they leave unfinished are not reported. Of one that fails for hours, the
last `MOST_PARTS` parts are.

Events name a member by its id only, which it has to give up when the coordinator no longer knows
it. Its next JoinGroup is then without one, and is taken for that of the last member of the group
that may have lost its id: because its generation was lost, or a JoinGroup or SyncGroup failed. The
reason of a JoinGroup tells new members apart, and those that change their ids themselves. Of
several members without an id, the last one has just been given one if it joins again with it, as
such a response comes at once, and the first one if its JoinGroup is answered. Two members that are
mistaken for each other swap the beginnings of their rebalances, and no rebalance is left out.
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from itertools import count
from typing import Final, TypeAlias, final

import attrs

from kgroup.events import (
    FIRST_JOIN,
    NEW_ID_JOIN,
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
from kgroup.monitors import Monitored
from kgroup.status import ENDED, Phase

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
_Key: TypeAlias = tuple[str, str, int]
"""A group, a member's id, and a number if there is no id."""
_EVENTS: Final = frozenset(kind for pair in PHASES for kind in pair)
_SETTLED: Final = frozenset({Phase.RUNNING, Phase.UNSUBSCRIBED})
"""The phases of a member that is in no rebalance."""
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
        is_first: whether it is a new member's, of which no JoinGroup was answered yet.
        id_in_doubt: whether the member may have to give up its id now.
        spans: its parts.
    """

    began: float
    last: type[Event]
    at: float
    is_first: bool
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
        self._running: dict[_Key, _Rebalance] = {}
        """In the order of their last events; other threads may change it between two statements."""
        self._nameless = count(1)
        self._groups: list[weakref.ref[Monitored]] = []

    def entered(self, group: Monitored) -> None:
        """A program has entered a group: what those of its id that have ended began is over.

        A member that closes without an id, before its first JoinGroup is answered for example, does
        not say so by an event. What is more than one for each of the others that are in a rebalance
        is left over: first what has no id, or may have lost it.
        """
        group_id, others = group.status().group_id, 0
        for known in self._groups.copy():
            one = known()
            status = None if one is None else one.status()
            if status is None or status.phase in ENDED:
                with suppress(ValueError):  # another thread was quicker
                    self._groups.remove(known)
            elif status.group_id == group_id and status.phase not in _SETTLED:
                others += 1
        self._groups.append(weakref.ref(group))
        of_group = self._of(group_id)
        keys = sorted(of_group, key=lambda key: bool(key[1]) and not of_group[key].id_in_doubt)
        for key in keys[: max(0, len(keys) - others)]:
            self._running.pop(key, None)

    def take(self, event: Event) -> list[RebalancePart]:
        """Take an event; when a rebalance is over, return its parts, and last all of it."""
        kind = type(event)
        key = self._key(event)
        if kind not in _EVENTS:
            self._take_other(event)
            return []
        now = self._now()
        running = self._running.pop(key, None) or self._pop_without_id(event)
        if running is None:
            if kind is GenerationStarted:
                return []
            if len(self._running) >= _MOST:
                # The one that has waited longest for its next event.
                self._running.pop(next(iter(self._running.copy())), None)
            self._running[key] = _Rebalance(now, kind, now, _is_first(event), _id_in_doubt(event))
            return []
        if (phase := PHASES.get((running.last, kind))) is not None:
            running.spans.append(RebalancePart(phase, running.at, now))
        if kind is GenerationStarted:
            return [*running.spans, RebalancePart("", running.began, now)]
        if kind is not running.last:  # of repeated ones the first counts
            running.last, running.at = kind, now
        running.id_in_doubt = _id_in_doubt(event)
        running.is_first &= kind is Joining
        self._running[key] = running
        return []

    def _key(self, event: Event) -> _Key:
        """Where the rebalance of an event's member is; a new place for each without an id."""
        number = 0 if event.member_id else next(self._nameless)
        return event.group_id, event.member_id, number

    def _take_other(self, event: Event) -> None:
        """Take an event that neither begins nor ends a part of a rebalance."""
        if isinstance(event, Left):
            if event.reason.startswith(NEW_ID_JOIN):
                return  # the rebalance goes on: the next JoinGroup is without an id
            self._running.pop(self._key(event), None)
        elif isinstance(event, RequestFailed) and event.request in _MAY_LOSE_ID:
            found = [
                running
                for (group_id, member_id, _), running in self._running.copy().items()
                if (group_id, member_id) == (event.group_id, event.member_id)
            ]
            if found:
                found[-1].id_in_doubt = True

    def _of(self, group_id: str) -> dict[_Key, _Rebalance]:
        """Those of a group, in the order of their last events."""
        return {key: one for key, one in self._running.copy().items() if key[0] == group_id}

    def _pop_without_id(self, event: Event) -> _Rebalance | None:
        """The rebalance of a member without an id, or without it from now on, that goes on."""
        kind = type(event)
        if kind not in (Joining, Joined):
            return None
        of_group = self._of(event.group_id)
        nameless = [key for key in of_group if not key[1]]
        if kind is Joined:
            found = nameless
        elif event.member_id:
            found = nameless[::-1]
        else:  # a repeated JoinGroup, or the first one without the id that the member had
            found = [key for key in reversed(of_group) if of_group[key].id_in_doubt]
            found = [key for key in found if of_group[key].is_first == _is_first(event)]
            found.sort(key=lambda key: key[1] != "")
            if isinstance(event, Joining) and event.reason == NEW_ID_JOIN:
                # A JoinGroup of the member was answered, and no event says so.
                found += [
                    key
                    for key in reversed(of_group)
                    if key[1] and of_group[key].last is Joining and key not in found
                ]
        return self._running.pop(found[0], None) if found else None


def _is_first(event: Event) -> bool:
    """Whether it is the first join of a new member, or the same again."""
    return isinstance(event, Joining) and event.reason == FIRST_JOIN


def _id_in_doubt(event: Event) -> bool:
    """Whether the member may have to give up its id after this event: it lost its partitions."""
    return isinstance(event, GenerationEnded) and not event.end.can_commit
