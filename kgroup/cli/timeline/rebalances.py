"""Finds the rebalances in a group's events, and the joins that were none.

A rebalance begins with its first sign, and ends when the last member works in the new generation. A
sign is what makes the coordinator begin one, or what shows that it has. Not every join, drain or
departure is a sign:

- A static member that comes back within its session gets the generation that the others still work
  in (KIP-345), as does a follower that joins a stable group again. These are rejoins.
- A static member that stops drains, and tells the coordinator nothing. Nor does a member that is
  killed while it drains.

Such an event would make the next rebalance seem as long as the time that lies between them. So
would the departures of a group's last members, if the group is started again later: in between it
was empty, and a rebalance of an empty group begins with the first join.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from itertools import pairwise
from operator import itemgetter
from typing import Final, final

import attrs

from kgroup.cli.timeline.reader import Entry
from kgroup.types import Cause

SIGNS: Final = ("Joining", "Left", "GenerationDraining")
_SIGNS_OF_LIFE: Final = (*SIGNS, "Joined", "GenerationStarted", "GenerationEnded", "Committed")
"""Events that show that a member is in the group, or comes or goes."""


@final
@attrs.frozen(kw_only=True)
class Rebalance:
    """The change to a generation.

    Attributes:
        generation_id: the new generation's.
        begin: when its first sign was seen: a member joined, left or began to drain.
        end: when the last member began to work in it.
        learned: for each member of the old generation, the seconds until it learned of the change:
            until it began to drain. The others waited for the last of them.
        late: likewise for members that learned only when the new generation had begun, as after a
            freeze; the others did not wait for them.
        started: for each member of the new one, the seconds until it began to work.
        drained: for each member that the others waited for, the seconds of its longest drain
            because of this rebalance. A drain for another cause is not here, such as that of a
            member that closes: the others work until it leaves. Nor is one that had not ended when
            the first member worked in the new generation. Files of older versions do not say it.
    """

    generation_id: int
    begin: float
    end: float
    learned: Mapping[str, float]
    late: Mapping[str, float]
    started: Mapping[str, float]
    drained: Mapping[str, float]

    @property
    def slowest(self) -> tuple[str, float] | None:
        """The member whose drain took longest, and its seconds; None if no file says it."""
        return max(self.drained.items(), key=itemgetter(1), default=None)

    @property
    def works(self) -> float:
        """When the first member began to work in the new generation."""
        return self.begin + min(self.started.values())


@final
@attrs.frozen(kw_only=True)
class Rejoin:
    """A member that came into a generation in which others worked already, without a rebalance.

    Attributes:
        member: its row.
        generation_id: the generation.
        begin: when it began to join.
        end: when it began to work.
        partitions: what it was assigned.
    """

    member: str
    generation_id: int
    begin: float
    end: float
    partitions: Sequence[str]


def changes_of(entries: Sequence[Entry]) -> tuple[list[Rebalance], list[Rejoin]]:
    """The rebalances and the rejoins of a group; the entries are in the order of their time."""
    starts, rejoins, quiet = _starts(entries)
    quiet |= _untold(entries, quiet)
    late = _ends_after_the_next_start(entries, starts)
    signs = [one for place, one in enumerate(entries) if one.event in SIGNS and place not in quiet]
    times = [one.at for one in signs]
    founded = _foundings(entries)
    drains = _drains(entries)
    found: list[Rebalance] = []
    after = 0
    for number, started in starts.items():
        first, last = started[0].at, started[-1].at
        founding = founded[bisect_right(founded, first) - 1]
        own = signs[max(after, bisect_left(times, founding)) : bisect_right(times, first)]
        begin = own[0].at if own else first
        found.append(
            Rebalance(
                generation_id=number,
                begin=begin,
                end=last,
                learned=_first(
                    (one for one in own if one.event == "GenerationDraining"), begin=begin
                ),
                late=_first(late.get(number, ()), begin=begin),
                started=_first(started, begin=begin),
                drained=_waited_for(own, drains, until=first),
            )
        )
        # A sign at the very time of the last start belongs to this rebalance or to none.
        after = bisect_right(times, last)
    return found, rejoins


def _foundings(entries: Sequence[Entry]) -> list[float]:
    """When the group began to have members, as far as the files show; the first entry counts.

    A static member that has stopped, and one whose events end, remain members until their sessions
    end.
    """
    last = {entry.member: place for place, entry in enumerate(entries)}
    founded = [entries[0].at]
    until: dict[str, float] = {}
    latest: list[tuple[float, str]] = []  # a heap of (-until, member), also of former values
    sessions: dict[str, float] = {}
    for place, entry in enumerate(entries):
        if entry.event not in _SIGNS_OF_LIFE:
            continue
        while latest and until[latest[0][1]] != -latest[0][0]:
            heappop(latest)
        if latest and -latest[0][0] < entry.at:
            until.clear()
            latest.clear()
            founded.append(entry.at)
        if entry.event == "Joined":
            sessions[entry.member] = entry.fields.get("session_timeout", math.inf)
        if entry.event == "Left" and entry.fields.get("notified") is not False:
            end = entry.at
        elif entry.event == "Left" or last[entry.member] == place:
            end = entry.at + sessions.get(entry.member, math.inf)
        else:
            end = math.inf
        if until.get(entry.member) != end:
            until[entry.member] = end
            heappush(latest, (-end, entry.member))
    return founded


def partitions_of(assigned: Entry) -> Sequence[str]:
    """The partitions of an ``Assigned``."""
    return tuple(assigned.fields.get("assignment", ()))


def _starts(entries: Sequence[Entry]) -> tuple[dict[int, list[Entry]], list[Rejoin], set[int]]:
    """Who began to work in each generation after its rebalance; the rejoins; their joins' places.

    A JoinGroup that is answered with a generation in which somebody works already, and that was
    sent after that, cannot have been a part of the rebalance.
    """
    starts: dict[int, list[Entry]] = {}
    rejoins: list[Rejoin] = []
    quiet: set[int] = set()
    joins: dict[str, list[int]] = {}
    partitions: dict[str, Sequence[str]] = {}
    latest: int | None = None
    for place, entry in enumerate(entries):
        member = entry.member
        if entry.event == "Joining":
            joins.setdefault(member, []).append(place)
        elif entry.event == "Assigned":
            partitions[member] = partitions_of(entry)
        elif entry.event == "GenerationStarted":
            own, number = joins.pop(member, []), entry.generation_id
            if number == latest and own and entries[own[0]].at > starts[number][0].at:
                quiet.update(own)
                rejoins.append(
                    Rejoin(
                        member=member,
                        generation_id=number,
                        begin=entries[own[0]].at,
                        end=entry.at,
                        partitions=partitions.get(member, ()),
                    )
                )
            else:
                starts.setdefault(number, []).append(entry)
                latest = number
    return starts, rejoins, quiet


def _untold(entries: Sequence[Entry], quiet: set[int]) -> set[int]:
    """The places of drains and departures that the coordinator was not told of.

    A drain because of a rebalance follows from what the coordinator said. Any other drain is the
    member's own affair until it leaves or joins again.
    """
    untold: set[int] = set()
    told: dict[str, bool] = {}
    for place in range(len(entries) - 1, -1, -1):
        entry = entries[place]
        if entry.event == "Left":
            told[entry.member] = entry.fields.get("notified") is not False
            if not told[entry.member]:
                untold.add(place)
        elif entry.event == "Joining":
            told[entry.member] = place not in quiet
        elif entry.event == "GenerationDraining":
            cause = cause_of(entry)
            if cause and cause != Cause.REBALANCE.value and not told.get(entry.member):
                untold.add(place)
    return untold


def cause_of(entry: Entry) -> str:
    """The cause in an end or a drain of a generation; empty if the line has none."""
    return str(entry.fields.get("end", {}).get("cause", ""))


def _ends_after_the_next_start(
    entries: Sequence[Entry], starts: Mapping[int, Sequence[Entry]]
) -> dict[int, list[Entry]]:
    """For each generation, how its predecessor ended in members that had not learned of it before.

    A member that was frozen, or cut off from the coordinator, still is in the old generation when
    the others work in the new one. It learns of that when it drains or loses its generation.
    """
    following = dict(pairwise(starts))
    late: dict[int, list[Entry]] = {}
    drained: set[tuple[str, int]] = set()
    for entry in entries:
        if entry.event not in ("GenerationDraining", "GenerationEnded"):
            continue
        key = (entry.member, entry.generation_id)
        number = following.get(entry.generation_id)
        if key not in drained and number is not None and entry.at > starts[number][0].at:
            late.setdefault(number, []).append(entry)
        drained.add(key)
    return late


def _drains(entries: Iterable[Entry]) -> dict[tuple[str, float], Entry]:
    """By its member and its beginning, the end of each drain because of a rebalance.

    Ends that do not say how long the drain took are left out.
    """
    begun: dict[str, Entry] = {}
    drains: dict[tuple[str, float], Entry] = {}
    for entry in entries:
        if entry.event == "GenerationDraining":
            if cause_of(entry) == Cause.REBALANCE.value:
                begun[entry.member] = entry
        elif entry.event == "GenerationEnded":
            drain = begun.pop(entry.member, None)
            says = entry.fields.get("seconds") is not None
            if drain and says and drain.generation_id == entry.generation_id:
                drains[entry.member, drain.at] = entry
    return drains


def _waited_for(
    signs: Iterable[Entry], drains: Mapping[tuple[str, float], Entry], until: float
) -> dict[str, float]:
    """For each member, the seconds of its longest drain that had ended at a time."""
    seconds: dict[str, float] = {}
    for sign in signs:
        end = drains.get((sign.member, sign.at))
        if sign.event == "GenerationDraining" and end and end.at <= until:
            took = end.fields["seconds"]
            seconds[sign.member] = max(took, seconds.get(sign.member, 0.0))
    return seconds


def _first(entries: Iterable[Entry], begin: float) -> dict[str, float]:
    """For each member, the seconds until the first of its events."""
    seconds: dict[str, float] = {}
    for entry in entries:
        seconds.setdefault(entry.member, entry.at - begin)
    return seconds
