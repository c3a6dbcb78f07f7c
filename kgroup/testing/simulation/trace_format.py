"""Puts facts into the words and marks that a timeline shows; what is shown is not decided here.

A *lane* is a program, or the coordinator (the lane without a name). Each fact that a person may
want to see becomes a `TraceEntry`: whom it is about, in words and as a label short enough for a
lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final, final

import attrs

from kgroup.error_codes import ErrorCode
from kgroup.events import (
    Assigned,
    CommitRefused,
    Committed,
    Event,
    GenerationDraining,
    GenerationEnded,
    GenerationStarted,
    Joined,
    Joining,
    Left,
)
from kgroup.testing.simulation import history
from kgroup.testing.simulation.faults import LastingFault
from kgroup.testing.simulation.history import Fact
from kgroup.types import TopicPartition

COORDINATOR: Final = ""
"""The lane of the group's coordinator."""


@final
@attrs.frozen(kw_only=True)
class TraceEntry:
    """Something to be seen.

    Attributes:
        at: virtual seconds.
        lane: a program's name, or ``COORDINATOR``.
        words: a sentence, without the time.
        label: what stands in the lane; nothing if the sentence is enough.
        outline: whether it belongs to a picture of the whole, and not only to its details.
    """

    at: float
    lane: str
    words: str
    label: str = ""
    outline: bool = False


@final
class TraceFormatter:
    """Words for facts, as short as the topics' names allow."""

    def __init__(self, topics: Iterable[str]) -> None:
        self._short = _short_names(sorted(topics))
        self._owned: dict[str, str] = {}

    def sight(self, fact: Fact) -> TraceEntry | None:
        """What there is to see of a fact, or None."""
        speak = _WORDS.get(type(fact))
        return None if speak is None else speak(self, fact)

    def told(self, process: str, event: Event) -> str:
        """A program's event as a label; that of a generation says what it has."""
        if isinstance(event, Assigned):
            self._owned[process] = self.partitions(event.assignment)
        if isinstance(event, GenerationStarted):
            return f"{event.generation_id}:{self._owned.get(process, '')}"
        return _LABELS.get(type(event), "")

    def partitions(self, partitions: Iterable[TopicPartition]) -> str:
        """Partitions in as few letters as can be: ``0-2,5``, or ``o0-2 p1`` for several topics."""
        named = groupby(sorted(partitions), lambda one: one.topic)
        return " ".join(
            self._short.get(topic, topic) + _ranges([one.partition for one in some])
            for topic, some in named
        )


def _short_names(topics: list[str]) -> Mapping[str, str]:
    """The shortest beginnings that tell the topics apart; nothing for a single one."""
    if len(topics) == 1:
        return {topics[0]: ""}

    def shortest(topic: str) -> str:
        others = [one for one in topics if one != topic]
        sizes = range(1, len(topic))
        return next(
            (topic[:n] for n in sizes if not any(one.startswith(topic[:n]) for one in others)),
            topic,
        )

    return {topic: shortest(topic) for topic in topics}


def _ranges(numbers: list[int]) -> str:
    found: list[list[int]] = []
    for number in numbers:
        if found and found[-1][-1] == number - 1:
            found[-1].append(number)
        else:
            found.append([number])
    return ",".join(f"{one[0]}-{one[-1]}" if len(one) > 1 else f"{one[0]}" for one in found)


def _span(first: int, next_offset: int) -> str:
    return f"{first}" if next_offset == first + 1 else f"{first} to {next_offset - 1}"


# Programs.


def _started(_: TraceFormatter, fact: history.ProcessStarted) -> TraceEntry:
    static = f" as {fact.group_instance_id}" if fact.group_instance_id else ""
    again = f", life {fact.life}" if fact.life > 1 else ""
    return TraceEntry(
        at=fact.at,
        lane=fact.process,
        label="start",
        words=f"{fact.process} starts{static}{again}",
        outline=True,
    )


def _ended(_: TraceFormatter, fact: history.ProcessEnded) -> TraceEntry:
    how = "ends" if fact.error is None else f"fails: {fact.error}"
    return TraceEntry(
        at=fact.at, lane=fact.process, label="end", words=f"{fact.process} {how}", outline=True
    )


def _plain(label: str, words: str) -> Callable[[TraceFormatter, Any], TraceEntry]:
    def speak(_: TraceFormatter, fact: Any) -> TraceEntry:
        said = f"{fact.process} {words}"
        return TraceEntry(at=fact.at, lane=fact.process, label=label, words=said, outline=True)

    return speak


_LABELS: Final = {
    Joining: "joining",
    Joined: "joined",
    Assigned: "assigned",
    GenerationDraining: "drains",
    GenerationEnded: "ended",
    Left: "left",
    Committed: "commit",
    CommitRefused: "refused",
}
_IN_OUTLINE: Final = (GenerationStarted, GenerationEnded)


def _told(speaker: TraceFormatter, fact: history.Told) -> TraceEntry:
    event = fact.event
    generation = f" (generation {event.generation_id})" if event.epoch else ""
    return TraceEntry(
        at=fact.at,
        lane=fact.process,
        label=speaker.told(fact.process, event),
        words=f"{fact.process}{generation}: {event.message()}",
        outline=isinstance(event, _IN_OUTLINE),
    )


def _handed_out(_: TraceFormatter, fact: history.HandedOut) -> TraceEntry:
    return TraceEntry(
        at=fact.at,
        lane=fact.process,
        label="reads",
        words=(
            f"{fact.process} (generation {fact.generation_id}) is given {fact.partition}"
            f" {_span(fact.first, fact.next_offset)}"
        ),
    )


def _processed(_: TraceFormatter, fact: history.Processed) -> TraceEntry:
    return TraceEntry(
        at=fact.at,
        lane=fact.process,
        label="works",
        words=f"{fact.process} has processed {fact.partition} {fact.offset}",
    )


# Coordinators.


def _judged(_: TraceFormatter, fact: history.Judged) -> TraceEntry | None:
    errors = _errors(fact.response)
    if not errors:
        return None
    return TraceEntry(
        at=fact.at,
        lane=COORDINATOR,
        label="refuses",
        words=f"b{fact.node_id} refuses {fact.api} of {fact.process or 'nobody known'}: {errors}",
    )


def _answered(_: TraceFormatter, fact: history.Answered) -> TraceEntry | None:
    errors = _errors(fact.response)
    if not errors:
        return None
    words = f"b{fact.node_id} refuses what has waited: {errors}"
    return TraceEntry(at=fact.at, lane=COORDINATOR, label="refuses", words=words)


def _errors(response: object) -> str:
    """The errors of an answer and of its parts, each named once."""
    return ", ".join(dict.fromkeys(_error_names(response)))


def _error_names(response: object) -> Iterator[str]:
    error = getattr(response, "error", None)
    if isinstance(error, ErrorCode) and error is not ErrorCode.NONE:
        yield error.name
    for part in (*getattr(response, "partitions", ()), *getattr(response, "groups", ())):
        yield from _error_names(part)


def _group_changed(speaker: TraceFormatter, fact: history.GroupChanged) -> TraceEntry:
    members = ", ".join(
        f"{one.process or one.member_id}"
        + (f" {speaker.partitions(one.assignment) or '-'}" if fact.assigned else "")
        for one in fact.members
    )
    return TraceEntry(
        at=fact.at,
        lane=COORDINATOR,
        label=f"{fact.generation_id} {fact.state.removesuffix('Rebalance')}",
        words=(
            f"{fact.group_id} is {fact.state} in generation {fact.generation_id} at"
            f" b{fact.node_id}: {members or 'nobody'}"
        ),
        outline=True,
    )


def _coordinator_moved(_: TraceFormatter, fact: history.CoordinatorMoved) -> TraceEntry:
    return TraceEntry(
        at=fact.at,
        lane=COORDINATOR,
        label=f"at b{fact.node_id}",
        words=(
            f"b{fact.node_id} has loaded {fact.group_id}, incarnation {fact.incarnation};"
            f" committed: {_offsets(fact.committed)}"
        ),
        outline=True,
    )


def _offsets(offsets: Mapping[TopicPartition, int]) -> str:
    return ", ".join(f"{one} at {offset}" for one, offset in offsets.items()) or "nothing"


# The world.


def _fault_began(_: TraceFormatter, fact: history.FaultBegan) -> TraceEntry:
    return TraceEntry(
        at=fact.at,
        lane=getattr(fact.fault, "process", COORDINATOR).strip("*"),
        label="FAULT",
        words=f"FAULT: {fact.fault.words()}",
        outline=True,
    )


def _fault_ended(_: TraceFormatter, fact: history.FaultEnded) -> TraceEntry | None:
    if not isinstance(fact.fault, LastingFault):
        return None
    return TraceEntry(
        at=fact.at,
        lane=getattr(fact.fault, "process", COORDINATOR).strip("*"),
        words=f"over: {fact.fault.words()}",
        outline=True,
    )


def _topic_changed(_: TraceFormatter, fact: history.TopicChanged) -> TraceEntry:
    words = f"{fact.topic} has {fact.partitions} partitions"
    return TraceEntry(at=fact.at, lane=COORDINATOR, words=words, outline=True)


def _quiet(_: TraceFormatter, fact: history.Quiet) -> TraceEntry:
    words = "all faults are over, and nothing is written any more"
    return TraceEntry(at=fact.at, lane=COORDINATOR, words=words, outline=True)


def _settled(_: TraceFormatter, fact: history.Settled) -> TraceEntry:
    left = {
        one: end - fact.committed.get(one, 0)
        for one, end in fact.ends.items()
        if fact.committed.get(one, 0) != end
    }
    state = "stable" if fact.stable else "NOT stable"
    done = ", ".join(f"{one} lacks {number}" for one, number in left.items())
    words = f"{fact.group_id} is {state}; {done or 'everything is committed'}"
    return TraceEntry(at=fact.at, lane=COORDINATOR, words=words, outline=True)


def _over(_: TraceFormatter, fact: history.Over) -> TraceEntry:
    return TraceEntry(at=fact.at, lane=COORDINATOR, words="all programs have ended", outline=True)


_WORDS: Final[Mapping[type[Fact], Callable[[TraceFormatter, Any], TraceEntry | None]]] = {
    history.ProcessStarted: _started,
    history.ProcessEnded: _ended,
    history.ProcessCrashed: _plain("crash", "crashes"),
    history.ProcessFrozen: _plain("frozen", "is frozen"),
    history.ProcessThawed: _plain("thawed", "goes on"),
    history.Told: _told,
    history.HandedOut: _handed_out,
    history.Processed: _processed,
    history.Judged: _judged,
    history.Answered: _answered,
    history.GroupChanged: _group_changed,
    history.CoordinatorMoved: _coordinator_moved,
    history.FaultBegan: _fault_began,
    history.FaultEnded: _fault_ended,
    history.TopicChanged: _topic_changed,
    history.Quiet: _quiet,
    history.Settled: _settled,
    history.Over: _over,
}
"""How each kind of fact is told; a fact that is not here is not shown."""
