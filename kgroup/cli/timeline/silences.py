"""Finds when a member was gone and the coordinator did not know: its partitions stood still.

A process that was killed, and a static member that has stopped, remain members until their sessions
end. Only then does a rebalance give their partitions to others, unless the static member comes back
before. This is mostly the longest time in which records wait, and no member's events show it.

A killed process writes no last event. Its heartbeats went on for a time that is not known, at most
until a session before the rebalance that removed it.

Three more cases have later events, which hide that the member did nothing: a process that was
frozen, or whose event loop was blocked, says so only when it goes on; a static member that another
process with the same ``group_instance_id`` replaces learns of it from its next request; and a
killed process may be followed in its row by another one with the same host name and pid, as those
of containers are, which joins although the generation before has no end.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, islice
from typing import Final, final

import attrs

from kgroup.cli.timeline.reader import Entry
from kgroup.cli.timeline.rebalances import Rebalance, Rejoin, cause_of, partitions_of
from kgroup.types import Cause

_STAYING: Final = ("Joining", "Joined", "GenerationStarted", "GenerationDraining", "BackingOff")
"""Events after which a process that ends, and writes nothing more, is still a member."""
_KILLED: Final = "killed within this time, or its later events are not in the files"
_STOPPED: Final = "stopped without leaving the group"
_FROZEN: Final = "frozen for {:.1f} s: its process was suspended, or its event loop blocked"
_RESTARTED: Final = "its process was started again then, and joined"
_REPLACED: Final = "replaced, which it did not know yet"
_WENT_ON: Final = "its partitions stood still until it went on"
_NOTHING_LEFT: Final = "; from then on it owned nothing, and learned that when it went on"
_OPEN: Final = "the files end before others got its partitions"


@final
@attrs.frozen(kw_only=True)
class Silence:
    """A time in which a member's partitions stood still because it was gone.

    Attributes:
        begin: when it stopped; for a killed one, the earliest time that is possible.
        end: when others worked in the next generation, or it was back.
        generation_id: the generation that it was in.
        partitions: what it owned.
        text: what happened, in words.
        lost: whether it owned nothing more from the end on, in this generation.
    """

    begin: float
    end: float
    generation_id: int
    partitions: Sequence[str]
    text: str
    lost: bool = True


@final
@attrs.frozen(kw_only=True)
class _Stop:
    """The moment from which a member did nothing, as far as is known, and had not left.

    Attributes:
        at: when.
        how: in words.
        killed: whether it wrote nothing of it.
        frozen_until: when it went on, if it was only frozen.
        session_timeout: the member's; None if the file does not have it.
        instance: its ``group_instance_id``; empty without one.
        back: when the same row goes on; infinite if it does not.
    """

    at: float
    how: str
    killed: bool
    frozen_until: float | None
    generation_id: int
    partitions: Sequence[str]
    session_timeout: float | None
    instance: str
    back: float = float("inf")


@final
@attrs.frozen
class _End:
    """What ends a silence.

    Attributes:
        began: its first sign.
        at: when the partitions were worked on again.
        text: in words.
        lost: whether the member owned them no more.
    """

    began: float
    at: float
    text: str
    lost: bool = True


@final
@attrs.frozen
class _Successor:
    """A process that joined as an instance.

    Attributes:
        member: its row.
        joined: when the coordinator answered its JoinGroup, and had fenced the former process.
        works: when it began to work; infinite if it did not.
    """

    member: str
    joined: float
    works: float = float("inf")


@final
class Silences:
    """The silences of a group.

    Args:
        rebalances: the group's, in order.
        rejoins: likewise.
        entries: the group's, in the order of their time; at least one.
    """

    def __init__(
        self,
        rebalances: Sequence[Rebalance],
        rejoins: Sequence[Rejoin],
        entries: Sequence[Entry],
    ) -> None:
        self._rebalances = rebalances
        self._works = [one.works for one in rebalances]
        self._rejoins: dict[tuple[int, Sequence[str]], list[Rejoin]] = {}
        for one in rejoins:
            self._rejoins.setdefault((one.generation_id, one.partitions), []).append(one)
        # They are in the order of their ends; the first that began after a moment is found by the
        # latest begin up to each of them.
        self._latest_begins = {
            key: list(accumulate((one.begin for one in found), max))
            for key, found in self._rejoins.items()
        }
        self._end = entries[-1].at
        self._instances = _instances(entries)

    def of(self, entries: Sequence[Entry]) -> Iterator[Silence]:
        """The silences of one member, whose entries these are; none begins within another."""
        over = float("-inf")
        for stop in _stops(entries, self._instances):
            silence = None if stop.at < over else self._after(stop, entries[0].member)
            if silence is not None:
                yield silence
                over = silence.end

    def _after(self, stop: _Stop, member: str) -> Silence | None:
        ends = [
            one
            for one in (
                self._of_freeze(stop),
                self._of_successor(stop, member),
                self._of_rejoin(stop),
                self._of_rebalance(stop),
                self._of_restart(stop),
            )
            if one is not None
        ]
        if not ends and stop.killed:
            return None  # nothing shows that it does not run
        end = min(ends, key=lambda one: one.at, default=_End(self._end, self._end, _OPEN))
        begin = stop.at
        if stop.killed and stop.session_timeout is not None:
            begin = max(begin, end.began - stop.session_timeout)
        held = "" if stop.frozen_until is None or not end.lost else _NOTHING_LEFT
        return Silence(
            begin=begin,
            end=max(begin, min(end.at, stop.back)),
            generation_id=stop.generation_id,
            partitions=stop.partitions,
            text=f"{stop.how}; {end.text}{held}",
            lost=end.lost,
        )

    def _of_freeze(self, stop: _Stop) -> _End | None:
        until = stop.frozen_until
        return None if until is None else _End(until, until, _WENT_ON, lost=False)

    def _of_restart(self, stop: _Stop) -> _End | None:
        known = stop.killed and stop.back < float("inf")
        return _End(stop.back, stop.back, _RESTARTED) if known else None

    def _of_successor(self, stop: _Stop, member: str) -> _End | None:
        found = _successor(self._instances, stop.instance, member, stop.at)
        if found is None or found.works == float("inf"):
            return None
        text = f"{found.member} joined with the same group_instance_id, and has its partitions"
        return _End(found.joined, found.works, text)

    def _of_rejoin(self, stop: _Stop) -> _End | None:
        """The return of the member, maybe as another process: with its partitions, unchanged."""
        key = stop.generation_id, stop.partitions
        found: Sequence[Rejoin] = self._rejoins.get(key, ())
        place = bisect_right(self._latest_begins.get(key, ()), stop.at)
        if place == len(found):
            return None
        one = found[place]
        text = f"{one.member} continued with its partitions, without a rebalance"
        return _End(one.begin, one.end, text)

    def _of_rebalance(self, stop: _Stop) -> _End | None:
        """The first rebalance that ended without the member."""
        first = bisect_right(self._works, stop.at)
        later = islice(self._rebalances, first, first + 2)  # one of two has another number
        one = next((one for one in later if one.generation_id != stop.generation_id), None)
        if one is None:
            return None
        text = (
            "its partitions stood still until its session had ended and others worked in"
            f" generation {one.generation_id}"
        )
        return _End(one.begin, one.works, text)


def _instances(entries: Iterable[Entry]) -> dict[str, list[_Successor]]:
    """Who joined as each instance, in order."""
    found: dict[str, list[_Successor]] = {}
    joined: dict[str, tuple[list[_Successor], int]] = {}
    for entry in entries:
        if entry.event == "Joined" and entry.instance:
            own = found.setdefault(entry.instance, [])
            joined[entry.member] = own, len(own)
            own.append(_Successor(entry.member, entry.at))
        elif entry.event == "GenerationStarted" and entry.member in joined:
            own, place = joined.pop(entry.member)
            own[place] = attrs.evolve(own[place], works=entry.at)
    return found


def _successor(
    instances: Mapping[str, Sequence[_Successor]], instance: str, member: str, after: float
) -> _Successor | None:
    """The first one of the instance that joined at this time or later, in another row."""
    known = instances.get(instance, ())
    first = bisect_left(known, after, key=lambda one: one.joined)
    return next((one for one in islice(known, first, None) if one.member != member), None)


@final
class _Membership:
    """What a member's events say of its membership, up to one of them."""

    def __init__(self) -> None:
        self._number = -1
        self._partitions: Sequence[str] = ()
        self._timeout: float | None = None
        self._instance = ""
        self.works = False
        self.since = float("-inf")
        self.is_fenced = False
        self.last_sign = float("-inf")

    def before(self, entry: Entry) -> Iterator[_Stop]:
        """The kill that the next event shows: a join, although the generation has no end."""
        if self.works and entry.event in ("Joining", "Joined"):
            self.works = False
            yield attrs.evolve(self.stop(self.last_sign, _KILLED, killed=True), back=entry.at)

    def after(self, entry: Entry) -> None:
        """Take in the next event."""
        # A member without an id is not in the generation, but a new process that is about to join.
        if not self.works or entry.fields.get("member_id") != "":
            self.last_sign = entry.at
        if entry.event == "Joined":
            self._number, self._partitions, self.is_fenced = entry.generation_id, (), False
            self._timeout = entry.fields.get("session_timeout")
            self._instance = entry.instance
        elif entry.event == "Assigned":
            self._partitions = partitions_of(entry)
        elif entry.event == "GenerationStarted":
            self.works, self.since = True, entry.at
        elif entry.event == "GenerationEnded":
            self.works = False
            self.is_fenced = cause_of(entry) == Cause.FENCED.value

    def stop(
        self, at: float, how: str, *, killed: bool = False, frozen_until: float | None = None
    ) -> _Stop:
        """The member stops now, or is frozen."""
        return _Stop(
            at=at,
            how=how,
            killed=killed,
            frozen_until=frozen_until,
            generation_id=self._number,
            partitions=self._partitions,
            session_timeout=self._timeout,
            instance=self._instance,
        )


def _stops(
    entries: Sequence[Entry], instances: Mapping[str, Sequence[_Successor]]
) -> Iterator[_Stop]:
    """From when a member did nothing, without having left; in order."""
    now = _Membership()
    last = ""
    stop: _Stop | None = None
    successor: _Successor | None = None
    for entry in entries:
        yield from now.before(entry)
        if entry.event in _STAYING or entry.event in ("Left", "GenerationEnded"):
            if stop is not None:
                yield attrs.evolve(stop, back=entry.at)
                stop = None
            last = entry.event
        seconds = entry.fields.get("seconds") if entry.event == "LoopBlocked" else None
        if now.works and seconds is not None:
            yield now.stop(
                max(now.since, entry.at - seconds),
                _FROZEN.format(seconds),
                frozen_until=entry.at,
            )
        if now.works and successor is not None and entry.at >= successor.joined:
            yield now.stop(successor.joined, _REPLACED)
            successor = None
        now.after(entry)
        if entry.event == "Joined":
            successor = _successor(instances, entry.instance, entry.member, entry.at)
        elif entry.event == "Left" and entry.fields.get("notified") is False and not now.is_fenced:
            stop = now.stop(entry.at, _STOPPED)
    if stop is not None:
        yield stop
    elif last in _STAYING:
        yield now.stop(entries[-1].at, _KILLED, killed=True)
