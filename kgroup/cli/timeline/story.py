"""Makes of a group's events what is drawn: spans of each member, marks, and rebalances.

No I/O. A member is in one phase at a time; the table ``PHASES`` says which event begins which. The
end of a generation gives its span a kind, by which it is coloured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, final

import attrs

from kgroup.cli.timeline.reader import Entry
from kgroup.types import Cause

JOINING: Final = "joining"
STARTING: Final = "starting"
RUNNING: Final = "running"
DRAINING: Final = "draining"
WAITING: Final = "waiting"

PHASES: Final[Mapping[str, str | None]] = {
    "Joining": JOINING,
    "Joined": STARTING,
    "GenerationStarted": RUNNING,
    "GenerationDraining": DRAINING,
    "GenerationEnded": None,
    "BackingOff": WAITING,
    "Left": None,
}
"""The phase that each event begins; None if the member is in none until it joins again."""

NORMAL: Final = "normal"
LOST: Final = "lost"
UNKNOWN: Final = "unknown"

_NORMAL_CAUSES: Final = frozenset(
    {
        Cause.REBALANCE.value,
        Cause.CLOSED.value,
        Cause.PARTITIONS_CHANGED.value,
        Cause.SUBSCRIPTION_CHANGED.value,
        Cause.TASK_RETURNED.value,
    }
)
_QUIET: Final = frozenset({"Committed", "CoordinatorFound", "Assigned", *PHASES} - {"Left"})
"""Events that are no marks, unless they are warnings: spans or commits show them."""


@final
@attrs.frozen(kw_only=True)
class Span:
    """A time for which a member was in one phase.

    Attributes:
        begin: in seconds since 1970.
        end: likewise.
        phase: joining, starting, running, draining or waiting.
        generation_id: -1 before there is one.
        partitions: the member's in this generation.
        kind: how the generation ended: normal, lost, or unknown if its end is in no file.
        text: the end, in words.
    """

    begin: float
    end: float
    phase: str
    generation_id: int
    partitions: Sequence[str] = ()
    kind: str = NORMAL
    text: str = ""


@final
@attrs.frozen(kw_only=True)
class Mark:
    """Something that happened at one moment.

    Attributes:
        at: in seconds since 1970.
        event: the class of the event.
        text: what happened.
        is_warning: whether it is a warning.
    """

    at: float
    event: str
    text: str
    is_warning: bool


@final
@attrs.frozen(kw_only=True)
class Member:
    """One member: a row of the picture.

    Attributes:
        name: its process.
        spans: its phases, in order.
        marks: what else happened to it, in order.
        commits: when its commits were accepted.
    """

    name: str
    spans: Sequence[Span]
    marks: Sequence[Mark]
    commits: Sequence[float]


@final
@attrs.frozen(kw_only=True)
class Rebalance:
    """The change to a generation.

    Attributes:
        generation_id: the new generation's.
        begin: when its first sign was seen: a member joined, left or began to drain.
        end: when the last member began to work in it.
        learned: for each member of the old generation, the seconds until it learned of the change.
        started: for each member of the new one, the seconds until it began to work.
    """

    generation_id: int
    begin: float
    end: float
    learned: Mapping[str, float]
    started: Mapping[str, float]


@final
@attrs.frozen(kw_only=True)
class Story:
    """All that is drawn of one group.

    Attributes:
        group_id: the group.
        begin: of the first event, in seconds since 1970.
        end: of the last one.
        members: the rows.
        rebalances: in order.
    """

    group_id: str
    begin: float
    end: float
    members: Sequence[Member]
    rebalances: Sequence[Rebalance]


def story_of(entries: Sequence[Entry]) -> Story:
    """The story of one group; the entries are in the order of their time, and at least one."""
    by_member: dict[str, list[Entry]] = {}
    for entry in entries:
        by_member.setdefault(entry.member, []).append(entry)
    return Story(
        group_id=entries[0].group_id,
        begin=entries[0].at,
        end=entries[-1].at,
        members=[_member(name, own) for name, own in by_member.items()],
        rebalances=_rebalances(entries),
    )


def _member(name: str, entries: Sequence[Entry]) -> Member:
    return Member(
        name=name,
        spans=_spans(entries),
        marks=[
            Mark(at=one.at, event=one.event, text=one.message, is_warning=one.is_warning)
            for one in entries
            if one.event not in _QUIET or one.is_warning
        ],
        commits=[one.at for one in entries if one.event == "Committed"],
    )


def _spans(entries: Sequence[Entry]) -> list[Span]:
    spans: list[Span] = []
    partitions: Sequence[str] = ()
    phase: str | None = None
    begin = entries[0].at
    for entry in entries:
        if entry.event == "Assigned":
            partitions = tuple(map(str, entry.fields.get("assignment") or ()))
        if entry.event not in PHASES:
            continue
        if phase is not None:
            number = _generation_before(entry, phase, spans)
            spans.append(
                Span(
                    begin=begin,
                    end=entry.at,
                    phase=phase,
                    generation_id=number,
                    partitions=partitions if phase in (RUNNING, DRAINING) else (),
                )
            )
        if entry.event == "GenerationEnded":
            _set_end(spans, entry)
        phase, begin = PHASES[entry.event], entry.at
    if phase is not None:
        last = entries[-1]
        spans.append(
            Span(
                begin=begin,
                end=last.at,
                phase=phase,
                generation_id=last.generation_id,
                partitions=partitions if phase in (RUNNING, DRAINING) else (),
                kind=UNKNOWN,
                text="no later event of this process is in the files",
            )
        )
    return spans


def _generation_before(entry: Entry, phase: str, spans: Sequence[Span]) -> int:
    """The generation of a phase that this event ends."""
    if phase in (JOINING, WAITING):
        return entry.generation_id if entry.event == "Joined" else -1
    if entry.generation_id >= 0:
        return entry.generation_id
    return spans[-1].generation_id if spans else -1


def _set_end(spans: list[Span], entry: Entry) -> None:
    """Give the spans of the generation that ended its kind."""
    end = entry.fields.get("end")
    cause = str(end.get("cause", "")) if isinstance(end, Mapping) else ""
    kind = NORMAL if cause in _NORMAL_CAUSES and not entry.fields.get("cut_short") else LOST
    for number in range(len(spans) - 1, -1, -1):
        span = spans[number]
        if span.generation_id != entry.generation_id or span.phase == JOINING:
            break
        spans[number] = attrs.evolve(span, kind=kind, text=entry.message)


def _rebalances(entries: Sequence[Entry]) -> list[Rebalance]:
    """The change to each generation in which a member began to work."""
    found: list[Rebalance] = []
    since = entries[0].at
    for number in dict.fromkeys(
        one.generation_id for one in entries if one.event == "GenerationStarted"
    ):
        starts = [
            one
            for one in entries
            if one.event == "GenerationStarted" and one.generation_id == number
        ]
        before = [one for one in entries if since <= one.at <= starts[-1].at]
        signs = [one for one in before if one.event in ("Joining", "Left", "GenerationDraining")]
        signs = [one for one in signs if one.at <= starts[0].at]
        begin = signs[0].at if signs else starts[0].at
        found.append(
            Rebalance(
                generation_id=number,
                begin=begin,
                end=starts[-1].at,
                learned=_first(signs, "GenerationDraining", begin),
                started=_first(starts, "GenerationStarted", begin),
            )
        )
        since = starts[-1].at
    return found


def _first(entries: Iterable[Entry], event: str, begin: float) -> dict[str, float]:
    """For each member, the seconds until its first event of a class."""
    seconds: dict[str, float] = {}
    for entry in entries:
        if entry.event == event:
            seconds.setdefault(entry.member, entry.at - begin)
    return seconds
