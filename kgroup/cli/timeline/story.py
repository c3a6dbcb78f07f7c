"""Makes of a group's events what is drawn: spans of each member, marks, and rebalances.

``rebalances`` finds the rebalances, ``silences`` when members were gone without having left, and
``gaps`` what the files do not have.

No I/O. A member is in one phase at a time; the table ``PHASES`` says which event begins which. The
end of a generation gives its span a kind, by which it is coloured; the table ``ENDS`` says which.

The time that this takes grows with the number of events, and not with its square: a file of a day
has a million commits and thousands of generations.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from operator import itemgetter
from typing import Final, final

import attrs

from kgroup.cli.timeline.gaps import Gap, gaps_of
from kgroup.cli.timeline.reader import Entry
from kgroup.cli.timeline.rebalances import Rebalance, cause_of, changes_of, partitions_of
from kgroup.cli.timeline.silences import Silence, Silences
from kgroup.errors import count_of
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

_ENDING: Final = ("GenerationDraining", "GenerationEnded")
"""The events that a member's work in a generation always ends with, unless it is killed."""

PLANNED: Final = "planned"
RAISED: Final = "raised"
LOST: Final = "lost"
OVERDUE: Final = "overdue"
UNKNOWN: Final = "unknown"
SILENT: Final = "silent"
"""Both a phase and its kind: the member is gone, and the coordinator does not know."""

ENDS: Final[Mapping[Cause, str]] = {
    Cause.REBALANCE: PLANNED,
    Cause.CLOSED: PLANNED,
    Cause.PARTITIONS_CHANGED: PLANNED,
    Cause.SUBSCRIPTION_CHANGED: PLANNED,
    Cause.TASK_RETURNED: PLANNED,
    Cause.TASK_RAISED: RAISED,
    Cause.FENCED: LOST,
    Cause.MEMBERSHIP_LOST: LOST,
    Cause.COORDINATOR_LOST: LOST,
    Cause.CANCELLED: LOST,
    Cause.PROCESSING_STUCK: OVERDUE,
}
"""The kind of a generation's end, by its cause. A planned end whose drain was cut short is overdue:
like a stuck batch, some of its work was not finished in time."""
_KIND_OF_CAUSE: Final = {cause.value: kind for cause, kind in ENDS.items()}

COMMIT: Final = "commit"
REFUSAL: Final = "refusal"
JOIN: Final = "join"
DRAIN: Final = "drain"
WARNING: Final = "warning"
OTHER: Final = "other"

_MARKS: Final = {
    "Committed": COMMIT,
    "CommitRefused": REFUSAL,
    "AssignmentRefused": REFUSAL,
    "TopicsRefused": REFUSAL,
    "Joined": JOIN,
    "GenerationDraining": DRAIN,
}
"""Events that have a kind of mark of their own, whatever their level is."""
_QUIET: Final = frozenset({"CoordinatorFound", "Assigned", *PHASES} - {"Left"})
"""Events that are no other marks, unless they are warnings: spans show them."""


@final
@attrs.frozen(kw_only=True)
class Span:
    """A time for which a member was in one phase.

    Attributes:
        begin: in seconds since 1970.
        end: likewise.
        phase: joining, starting, running, draining, waiting or silent.
        generation_id: -1 before there is one.
        partitions: the member's in this generation.
        kind: how the generation ended: planned, raised, lost, overdue, or unknown if its end is in
            no file; silent for that phase.
        text: the end, in words.
    """

    begin: float
    end: float
    phase: str
    generation_id: int
    partitions: Sequence[str] = ()
    kind: str = PLANNED
    text: str = ""


@final
@attrs.frozen(kw_only=True)
class Mark:
    """Something that happened at one moment.

    Attributes:
        at: in seconds since 1970.
        kind: commit, refusal, join, drain, warning or other.
        event: the class of the event.
        text: what happened.
    """

    at: float
    kind: str
    event: str
    text: str


@final
@attrs.frozen(kw_only=True)
class MemberStory:
    """One member: a row of the picture.

    Attributes:
        name: its process.
        spans: its phases, in order.
        marks: what happened to it, in order.
    """

    name: str
    spans: Sequence[Span]
    marks: Sequence[Mark]


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
        gaps: the generations of which members are missing, in order.
        moved: for each member whose machine's clock was set back, the seconds by which its first
            events are drawn earlier than they say.
    """

    group_id: str
    begin: float
    end: float
    members: Sequence[MemberStory]
    rebalances: Sequence[Rebalance]
    gaps: Sequence[Gap]
    moved: Mapping[str, float]


def story_of(entries: Sequence[Entry]) -> Story:
    """The story of one group; the entries are in the order of their time, and at least one."""
    by_member: dict[str, list[Entry]] = {}
    for entry in entries:
        by_member.setdefault(entry.member, []).append(entry)
    rebalances, rejoins = changes_of(entries)
    silences = Silences(rebalances, rejoins, entries)
    return Story(
        group_id=entries[0].group_id,
        begin=entries[0].at,
        end=entries[-1].at,
        members=[_member(name, own, list(silences.of(own))) for name, own in by_member.items()],
        rebalances=rebalances,
        gaps=list(gaps_of(entries)),
        moved={name: own[0].moved for name, own in by_member.items() if own[0].moved},
    )


def clocks_set_back(moved: Mapping[str, float]) -> str:
    """Whose clock was set back, in one clause; empty if none was."""
    if not moved:
        return ""
    name, seconds = max(moved.items(), key=itemgetter(1))
    others = f" and {count_of(len(moved) - 1, 'other')}" if len(moved) > 1 else ""
    return (
        f"the clock of {name}{others} was set back: what was before is drawn up to {seconds:.1f} s"
        " earlier than its events say"
    )


def _member(name: str, entries: Sequence[Entry], silences: Sequence[Silence]) -> MemberStory:
    return MemberStory(
        name=name,
        spans=_with_silences(_spans(entries), silences),
        marks=[
            Mark(at=one.at, kind=kind, event=one.event, text=one.message)
            for one in entries
            if (kind := _kind_of_mark(one)) is not None
        ],
    )


def _kind_of_mark(entry: Entry) -> str | None:
    """Which mark an event is, or None if it is none."""
    kind = _MARKS.get(entry.event)
    if kind is None and entry.is_warning:
        return WARNING
    return OTHER if kind is None and entry.event not in _QUIET else kind


def _spans(entries: Sequence[Entry]) -> list[Span]:
    spans: list[Span] = []
    partitions: Sequence[str] = ()
    phase: str | None = None
    begin = entries[0].at
    for entry in entries:
        if entry.event == "Assigned":
            partitions = partitions_of(entry)
        if entry.event not in PHASES:
            continue
        if phase is not None:
            number = _generation_before(entry, phase, spans)
            in_generation = phase in (RUNNING, DRAINING)
            # A process that was killed, and started again under the same host name and pid, as
            # containers are, goes on in its row with a join.
            is_known = not in_generation or entry.event in _ENDING
            spans.append(
                Span(
                    begin=begin,
                    end=entry.at,
                    phase=phase,
                    generation_id=number,
                    partitions=partitions if in_generation else (),
                    kind=PLANNED if is_known else UNKNOWN,
                    text="" if is_known else "no end of this generation is in the files",
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


def _with_silences(spans: list[Span], silences: Sequence[Silence]) -> list[Span]:
    """The phases of a member, and the times in which it was gone without having left."""
    if silences and spans and spans[-1].kind == UNKNOWN:
        # A killed member worked, and had nothing to report, until the earliest possible moment.
        spans[-1] = attrs.evolve(spans[-1], end=max(spans[-1].end, silences[-1].begin))
    gone = [
        Span(
            begin=one.begin,
            end=one.end,
            phase=SILENT,
            generation_id=one.generation_id,
            partitions=one.partitions,
            kind=SILENT,
            text=one.text,
        )
        for one in silences
    ]
    return sorted([*_without(spans, silences), *gone], key=lambda span: span.begin)


def _without(spans: Sequence[Span], silences: Sequence[Silence]) -> Iterator[Span]:
    """The phases of a member, of which it was in none during its silences.

    If it had lost its partitions in one, it was in none until it joined again. Both the spans and
    the silences are in order, and no two spans or silences overlap; so one pass is enough.
    """
    joins = [one.begin for one in spans if one.phase == JOINING]
    rest = list(reversed(spans))
    for silence in silences:
        until = silence.end
        if silence.lost:
            again = bisect_left(joins, silence.end)
            until = joins[again] if again < len(joins) else math.inf
        while rest and rest[-1].end <= silence.begin:
            yield rest.pop()
        while rest and rest[-1].begin < until:
            span = rest.pop()
            if span.begin < silence.begin:
                yield attrs.evolve(span, end=silence.begin)
            if span.end > until:
                rest.append(attrs.evolve(span, begin=until))
    yield from reversed(rest)


def _generation_before(entry: Entry, phase: str, spans: Sequence[Span]) -> int:
    """The generation of a phase that this event ends."""
    if phase in (JOINING, WAITING):
        return entry.generation_id if entry.event == "Joined" else -1
    if entry.generation_id >= 0:
        return entry.generation_id
    return spans[-1].generation_id if spans else -1


def _set_end(spans: list[Span], entry: Entry) -> None:
    """Give the spans of the generation that ended its kind."""
    kind = _KIND_OF_CAUSE.get(cause_of(entry), UNKNOWN)
    if kind == PLANNED and entry.fields.get("cut_short"):
        kind = OVERDUE
    for number in range(len(spans) - 1, -1, -1):
        span = spans[number]
        if span.generation_id != entry.generation_id or span.phase == JOINING:
            break
        spans[number] = attrs.evolve(span, kind=kind, text=entry.message)
