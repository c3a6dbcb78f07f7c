"""Formats history entries as text and labels for the timeline, which decides what it shows.

A *lane* belongs to a program, or to the coordinator (the lane without a name). Each history entry
that is of interest to a reader becomes a `TraceEntry`: its lane, a sentence, and a label that is
short enough for a lane.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import groupby
from typing import Any, Final, final

import attrs

from kgroup.broker.groups.requests import TxnOffsetCommit
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
from kgroup.testing.simulation.history import HistoryEntry
from kgroup.testing.simulation.touched import Touched, accepted, touched
from kgroup.types import TopicPartition

COORDINATOR: Final = ""
"""The lane of the group's coordinator."""


@final
@attrs.frozen(kw_only=True)
class TraceEntry:
    """One row of a timeline.

    Attributes:
        at: virtual seconds.
        lane: a program's name, or ``COORDINATOR``.
        words: a sentence, without the time.
        label: the text in the lane; empty if the sentence is enough.
        outline: whether it is shown in an outline too.
        touched: the partitions and offsets that it is about.
        minor: whether it is shown only if the violation is about one of these partitions.
    """

    at: float
    lane: str
    words: str
    label: str = ""
    outline: bool = False
    touched: Touched = attrs.field(factory=dict)
    minor: bool = False


@final
class TraceFormatter:
    """Formats history entries; partitions are written as briefly as the topics' names allow."""

    def __init__(self, topics: Iterable[str]) -> None:
        self._short = _short_names(sorted(topics))
        self._owned: dict[str, str] = {}

    def format(self, entry: HistoryEntry) -> TraceEntry | None:
        """The trace entry for a history entry, or None if it is not shown."""
        format_entry = _FORMATTERS.get(type(entry))
        formatted = None if format_entry is None else format_entry(self, entry)
        return formatted and attrs.evolve(formatted, touched=touched(entry))

    def event_label(self, process: str, event: Event) -> str:
        """The label for a program's event; that of a generation includes its partitions."""
        if isinstance(event, Assigned):
            self._owned[process] = self.partitions(event.assignment)
        if isinstance(event, GenerationStarted):
            return f"{event.generation_id}:{self._owned.get(process, '')}"
        return _LABELS.get(type(event), "")

    def partitions(self, partitions: Iterable[TopicPartition]) -> str:
        """Partitions, abbreviated: ``0-2,5``, or ``o0-2 p1`` if there are several topics."""
        named = groupby(sorted(partitions), lambda one: one.topic)
        return " ".join(
            self._short.get(topic, topic) + _ranges([one.partition for one in some])
            for topic, some in named
        )


def _short_names(topics: list[str]) -> Mapping[str, str]:
    """The shortest unique prefix of each topic; empty if there is only one topic."""
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


def _started(_: TraceFormatter, entry: history.ProcessStarted) -> TraceEntry:
    static = f" as {entry.group_instance_id}" if entry.group_instance_id else ""
    restart = f", start number {entry.life}" if entry.life > 1 else ""
    return TraceEntry(
        at=entry.at,
        lane=entry.process,
        label="start",
        words=f"{entry.process} starts{static}{restart}",
        outline=True,
    )


def _ended(_: TraceFormatter, entry: history.ProcessEnded) -> TraceEntry:
    how = "ends" if entry.error is None else f"fails: {entry.error}"
    return TraceEntry(
        at=entry.at, lane=entry.process, label="end", words=f"{entry.process} {how}", outline=True
    )


def _process_entry(label: str, words: str) -> Callable[[TraceFormatter, Any], TraceEntry]:
    def format_entry(_: TraceFormatter, entry: Any) -> TraceEntry:
        sentence = f"{entry.process} {words}"
        return TraceEntry(
            at=entry.at, lane=entry.process, label=label, words=sentence, outline=True
        )

    return format_entry


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


def _event_reported(formatter: TraceFormatter, entry: history.EventReported) -> TraceEntry:
    event = entry.event
    generation = f" (generation {event.generation_id})" if event.epoch else ""
    return TraceEntry(
        at=entry.at,
        lane=entry.process,
        label=formatter.event_label(entry.process, event),
        words=f"{entry.process}{generation}: {event.message()}",
        outline=isinstance(event, _IN_OUTLINE),
    )


def _handed_out(_: TraceFormatter, entry: history.HandedOut) -> TraceEntry:
    return TraceEntry(
        at=entry.at,
        lane=entry.process,
        label="reads",
        words=(
            f"{entry.process} (generation {entry.generation_id}) is handed {entry.partition}"
            f" {_span(entry.first, entry.next_offset)}"
        ),
    )


def _processed(_: TraceFormatter, entry: history.Processed) -> TraceEntry:
    return TraceEntry(
        at=entry.at,
        lane=entry.process,
        label="works",
        words=f"{entry.process} has processed {entry.partition} {entry.offset}",
    )


def _sought(_: TraceFormatter, entry: history.SeekCalled) -> TraceEntry:
    words = f"{entry.process} seeks {entry.partition} to {entry.offset}"
    return TraceEntry(at=entry.at, lane=entry.process, label="seek", words=words)


def _skipped(_: TraceFormatter, entry: history.RecordsSkipped) -> TraceEntry:
    words = f"{entry.process} skips {entry.partition} before {entry.offset}"
    return TraceEntry(at=entry.at, lane=entry.process, label="skip", words=words)


# Coordinators.


def _request_handled(_: TraceFormatter, entry: history.RequestHandled) -> TraceEntry | None:
    errors = _errors(entry.response)
    if not errors:
        return _commit_accepted(entry)
    return TraceEntry(
        at=entry.at,
        lane=COORDINATOR,
        label="refuses",
        words=(
            f"b{entry.node_id} refuses {entry.api} of {entry.process or 'an unknown client'}:"
            f" {errors}"
        ),
    )


def _commit_accepted(entry: history.RequestHandled) -> TraceEntry | None:
    """A commit where it is accepted: its member may never learn of that."""
    if not (offsets := accepted(entry)):
        return None
    whose = f"a commit of {entry.process or 'an unknown client'}"
    transactional = isinstance(entry.request, TxnOffsetCommit)
    what = f"adds {whose} to a transaction" if transactional else f"applies {whose}"
    return TraceEntry(
        at=entry.at,
        lane=COORDINATOR,
        label="commit",
        words=f"b{entry.node_id} {what}: {_offsets(offsets)}",
        minor=True,
    )


def _answered(_: TraceFormatter, entry: history.ParkedRequestAnswered) -> TraceEntry | None:
    errors = _errors(entry.response)
    if not errors:
        return None
    words = f"b{entry.node_id} refuses a waiting request: {errors}"
    return TraceEntry(at=entry.at, lane=COORDINATOR, label="refuses", words=words)


def _errors(response: object) -> str:
    """The errors of a response and of its parts, each named once."""
    return ", ".join(dict.fromkeys(_error_names(response)))


def _error_names(response: object) -> Iterator[str]:
    error = getattr(response, "error", None)
    if isinstance(error, ErrorCode) and error is not ErrorCode.NONE:
        yield error.name
    for part in (*getattr(response, "partitions", ()), *getattr(response, "groups", ())):
        yield from _error_names(part)


def _group_changed(formatter: TraceFormatter, entry: history.GroupChanged) -> TraceEntry:
    members = ", ".join(
        f"{one.process or one.member_id}"
        + (f" {formatter.partitions(one.assignment) or '-'}" if entry.assigned else "")
        for one in entry.members
    )
    return TraceEntry(
        at=entry.at,
        lane=COORDINATOR,
        label=f"{entry.generation_id} {entry.state.removesuffix('Rebalance')}",
        words=(
            f"{entry.group_id} is {entry.state} in generation {entry.generation_id} at"
            f" b{entry.node_id}: {members or 'no members'}"
        ),
        outline=True,
    )


def _coordinator_moved(_: TraceFormatter, entry: history.CoordinatorMoved) -> TraceEntry:
    return TraceEntry(
        at=entry.at,
        lane=COORDINATOR,
        label=f"at b{entry.node_id}",
        words=(
            f"b{entry.node_id} has loaded {entry.group_id}, incarnation {entry.incarnation};"
            f" committed: {_offsets(entry.committed)}"
        ),
        outline=True,
    )


def _offsets(offsets: Mapping[TopicPartition, int]) -> str:
    return ", ".join(f"{one} at {offset}" for one, offset in offsets.items()) or "nothing"


# Faults, topics and the end.


def _fault_began(_: TraceFormatter, entry: history.FaultBegan) -> TraceEntry:
    return TraceEntry(
        at=entry.at,
        lane=getattr(entry.fault, "process", COORDINATOR).strip("*"),
        label="FAULT",
        words=f"FAULT: {entry.fault.message()}",
        outline=True,
    )


def _fault_ended(_: TraceFormatter, entry: history.FaultEnded) -> TraceEntry | None:
    if not isinstance(entry.fault, LastingFault):
        return None
    return TraceEntry(
        at=entry.at,
        lane=getattr(entry.fault, "process", COORDINATOR).strip("*"),
        words=f"fault over: {entry.fault.message()}",
        outline=True,
    )


def _topic_changed(_: TraceFormatter, entry: history.TopicChanged) -> TraceEntry:
    words = f"{entry.topic} has {entry.partitions} partitions"
    return TraceEntry(at=entry.at, lane=COORDINATOR, words=words, outline=True)


def _workload_ended(_: TraceFormatter, entry: history.WorkloadEnded) -> TraceEntry:
    words = "all faults are over and all records are written"
    return TraceEntry(at=entry.at, lane=COORDINATOR, words=words, outline=True)


def _final_group_state(_: TraceFormatter, entry: history.FinalGroupState) -> TraceEntry:
    # A commit may lie past the last record that can be read: behind markers, or aborted records.
    left = {
        one: end - entry.committed.get(one, 0)
        for one, end in entry.ends.items()
        if entry.committed.get(one, 0) < end
    }
    state = "stable" if entry.stable else "NOT stable"
    done = ", ".join(f"{one}: {number} not committed" for one, number in left.items())
    words = f"{entry.group_id} is {state}; {done or 'everything is committed'}"
    return TraceEntry(at=entry.at, lane=COORDINATOR, words=words, outline=True)


def _simulation_ended(_: TraceFormatter, entry: history.SimulationEnded) -> TraceEntry:
    return TraceEntry(at=entry.at, lane=COORDINATOR, words="all programs have ended", outline=True)


_FORMATTERS: Final[
    Mapping[type[HistoryEntry], Callable[[TraceFormatter, Any], TraceEntry | None]]
] = {
    history.ProcessStarted: _started,
    history.ProcessEnded: _ended,
    history.ProcessCrashed: _process_entry("crash", "crashes"),
    history.ProcessFrozen: _process_entry("frozen", "is frozen"),
    history.ProcessThawed: _process_entry("thawed", "continues"),
    history.EventReported: _event_reported,
    history.HandedOut: _handed_out,
    history.Processed: _processed,
    history.SeekCalled: _sought,
    history.RecordsSkipped: _skipped,
    history.RequestHandled: _request_handled,
    history.ParkedRequestAnswered: _answered,
    history.GroupChanged: _group_changed,
    history.CoordinatorMoved: _coordinator_moved,
    history.FaultBegan: _fault_began,
    history.FaultEnded: _fault_ended,
    history.TopicChanged: _topic_changed,
    history.WorkloadEnded: _workload_ended,
    history.FinalGroupState: _final_group_state,
    history.SimulationEnded: _simulation_ended,
}
"""The formatter of each kind of entry; other kinds are not shown."""
