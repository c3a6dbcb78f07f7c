"""Finds when a member was gone and the coordinator did not know: its partitions stood still.

A process that was killed, and a static member that has stopped, remain members until their sessions
end. Only then does a rebalance give their partitions to others, unless the static member comes back
before. This is mostly the longest time in which records wait, and no member's events show it.

A killed process writes no last event. Its heartbeats went on for a time that is not known, at most
until a session before the rebalance that removed it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Final, final

import attrs

from kgroup.cli.timeline.reader import Entry
from kgroup.cli.timeline.rebalances import Rebalance, Rejoin, partitions_of

_STAYING: Final = ("Joining", "Joined", "GenerationStarted", "GenerationDraining", "BackingOff")
"""Events after which a process that ends, and writes nothing more, is still a member."""
_KILLED: Final = "killed within this time, or its later events are not in the files"
_STOPPED: Final = "stopped without leaving the group"


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
    """

    begin: float
    end: float
    generation_id: int
    partitions: Sequence[str]
    text: str


@final
@attrs.frozen(kw_only=True)
class _Stop:
    """The last sign of a member that did not leave.

    Attributes:
        at: when.
        killed: whether it wrote nothing of it.
        back: when the same row goes on; infinite if it does not.
        session_timeout: the member's; None if the file does not have it.
    """

    at: float
    killed: bool
    generation_id: int
    partitions: Sequence[str]
    session_timeout: float | None
    back: float = float("inf")


@final
class Silences:
    """The silences of a group.

    Args:
        rebalances: the group's, in order.
        rejoins: likewise.
        end: the time of its last event.
    """

    def __init__(
        self, rebalances: Sequence[Rebalance], rejoins: Sequence[Rejoin], end: float
    ) -> None:
        self._rebalances = rebalances
        self._works = [one.works for one in rebalances]
        self._rejoins: dict[tuple[int, Sequence[str]], list[Rejoin]] = {}
        for one in rejoins:
            self._rejoins.setdefault((one.generation_id, one.partitions), []).append(one)
        self._end = end

    def of(self, entries: Sequence[Entry]) -> Iterator[Silence]:
        """The silences of one member, whose entries these are."""
        for stop in _stops(entries):
            silence = self._after(stop)
            if silence is not None:
                yield silence

    def _after(self, stop: _Stop) -> Silence | None:
        how = _KILLED if stop.killed else _STOPPED
        rebalance = self._next_rebalance(stop)
        rejoin = self._return(stop)
        if rejoin is not None and (rebalance is None or rejoin.end < rebalance.works):
            begin, end = rejoin.begin, rejoin.end
            text = f"{how}; {rejoin.member} continued with its partitions, without a rebalance"
        elif rebalance is not None:
            begin, end = rebalance.begin, rebalance.works
            text = (
                f"{how}; its partitions stood still until its session had ended and others worked"
                f" in generation {rebalance.generation_id}"
            )
        elif stop.killed:
            return None  # nothing shows that it does not run
        else:
            begin, end = stop.at, self._end
            text = f"{how}; the files end before others got its partitions"
        earliest = stop.at
        if stop.killed and stop.session_timeout is not None:
            earliest = max(earliest, begin - stop.session_timeout)
        return Silence(
            begin=earliest,
            end=max(earliest, min(end, stop.back)),
            generation_id=stop.generation_id,
            partitions=stop.partitions,
            text=text,
        )

    def _next_rebalance(self, stop: _Stop) -> Rebalance | None:
        """The first one that ended without the member."""
        first = bisect_right(self._works, stop.at)
        later = islice(self._rebalances, first, first + 2)  # one of two has another number
        return next((one for one in later if one.generation_id != stop.generation_id), None)

    def _return(self, stop: _Stop) -> Rejoin | None:
        """The return of the member, maybe as another process: with its partitions, unchanged."""
        found: Iterable[Rejoin] = self._rejoins.get((stop.generation_id, stop.partitions), ())
        return next((one for one in found if one.begin > stop.at), None)


def _stops(entries: Sequence[Entry]) -> Iterator[_Stop]:
    partitions: Sequence[str] = ()
    number, timeout = -1, None
    last = ""
    stop: _Stop | None = None
    for entry in entries:
        if entry.event in _STAYING or entry.event in ("Left", "GenerationEnded"):
            if stop is not None:
                yield attrs.evolve(stop, back=entry.at)
                stop = None
            last = entry.event
        if entry.event == "Joined":
            number, partitions = entry.generation_id, ()
            given = entry.fields.get("session_timeout")
            timeout = float(given) if isinstance(given, int | float) else None
        elif entry.event == "Assigned":
            partitions = partitions_of(entry)
        elif entry.event == "Left" and entry.fields.get("notified") is False:
            stop = _Stop(
                at=entry.at,
                killed=False,
                generation_id=number,
                partitions=partitions,
                session_timeout=timeout,
            )
    if stop is not None:
        yield stop
    elif last in _STAYING:
        yield _Stop(
            at=entries[-1].at,
            killed=True,
            generation_id=number,
            partitions=partitions,
            session_timeout=timeout,
        )
