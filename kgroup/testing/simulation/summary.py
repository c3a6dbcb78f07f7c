"""The figures of a simulation, for one seed or added up for many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeVar, final

import attrs

from kgroup.testing.simulation.coverage import Visits
from kgroup.testing.simulation.history import (
    FaultBegan,
    GroupChanged,
    HistoryEntry,
    ProcessCrashed,
    ProcessEnded,
    ProcessStarted,
    RequestHandled,
)
from kgroup.testing.simulation.record_counts import RecordCounts
from kgroup.testing.simulation.targeted_faults import Cell
from kgroup.testing.simulation.waiting_records import WaitingRecords

T = TypeVar("T")


@final
@attrs.frozen(kw_only=True)
class Summary:
    """The figures of one simulation, or of several added up.

    Attributes:
        seconds: virtual seconds.
        generations: how many generations became stable.
        starts: how often a program was started.
        crashes: how often a program was killed.
        failures: how often a program ended with an error.
        failure: the first of these errors, as text; empty if there is none.
        faults: for each kind of fault, sorted by name, how many were injected.
        requests: how many requests coordinators handled.
        written: how many records were written.
        aborted: how many of them were in a transaction that was aborted, and were not processed;
            members with ``read_uncommitted`` process these, too.
        deleted: how many others were deleted with their topic before they were processed.
        processed: how many records were processed, each counted once.
        repeated: how often a record was processed again.
        waited: how many records waited for members that learned of a rebalance later than others;
            see ``waiting_records``.
        visits: for each cell how many faults were injected in it; see ``coverage``.
    """

    seconds: float = 0.0
    generations: int = 0
    starts: int = 0
    crashes: int = 0
    failures: int = 0
    failure: str = ""
    faults: tuple[tuple[str, int], ...] = ()
    requests: int = 0
    written: int = 0
    aborted: int = 0
    deleted: int = 0
    processed: int = 0
    repeated: int = 0
    waited: int = 0
    visits: Visits = attrs.field(default=(), repr=lambda visits: f"<{len(visits)} cells>")

    @property
    def skipped(self) -> int:
        """How many records were not processed for another reason.

        If every invariant holds, none of them is lost: members have sought past them, started
        after them, or not subscribed to their topics.
        """
        return self.written - self.processed - self.aborted - self.deleted

    @classmethod
    def of(cls, entries: Iterable[HistoryEntry]) -> Summary:
        """The figures of one simulation."""
        at = 0.0
        kinds: Counter[type[HistoryEntry]] = Counter()
        faults: Counter[str] = Counter()
        visits: Counter[Cell] = Counter()
        generations = 0
        current: dict[str, int] = {}
        failures: list[str] = []
        records = RecordCounts()
        waiting = WaitingRecords()
        for entry in entries:
            at = entry.at
            kinds[type(entry)] += 1
            waiting.add(entry)
            records.add(entry)
            if isinstance(entry, ProcessEnded) and entry.error is not None:
                failures.append(f"{entry.process}: {entry.error}")
            elif isinstance(entry, FaultBegan):
                name = type(entry.fault).__name__
                faults[name] += 1
                visits.update((name, member, entry.coordinator) for member in entry.members)
            elif isinstance(entry, GroupChanged) and entry.assigned:
                # A failover is no new generation: the group is loaded in the old one.
                generations += current.get(entry.group_id) != entry.generation_id
                current[entry.group_id] = entry.generation_id
        return cls(
            seconds=at,
            generations=generations,
            starts=kinds[ProcessStarted],
            crashes=kinds[ProcessCrashed],
            failures=len(failures),
            failure=next(iter(failures), ""),
            faults=tuple(sorted(faults.items())),
            requests=kinds[RequestHandled],
            written=records.written,
            aborted=records.aborted,
            deleted=records.deleted,
            processed=records.processed,
            repeated=records.repeated,
            waited=waiting.count,
            visits=tuple(sorted(visits.items())),
        )

    def __add__(self, other: Summary) -> Summary:
        """Add up the figures of both."""
        return Summary(
            seconds=self.seconds + other.seconds,
            generations=self.generations + other.generations,
            starts=self.starts + other.starts,
            crashes=self.crashes + other.crashes,
            failures=self.failures + other.failures,
            failure=self.failure or other.failure,
            faults=_sum(self.faults, other.faults),
            requests=self.requests + other.requests,
            written=self.written + other.written,
            aborted=self.aborted + other.aborted,
            deleted=self.deleted + other.deleted,
            processed=self.processed + other.processed,
            repeated=self.repeated + other.repeated,
            waited=self.waited + other.waited,
            visits=_sum(self.visits, other.visits),
        )


def _sum(one: tuple[tuple[T, int], ...], other: tuple[tuple[T, int], ...]) -> Any:
    """The counts of both added up, sorted by what was counted."""
    return tuple(sorted((Counter(dict(one)) + Counter(dict(other))).items()))
