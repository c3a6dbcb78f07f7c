"""What happened in a simulation, in figures: for one seed, and added up for many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, TypeVar, final

import attrs

from kgroup.testing.simulation.coverage import Visits
from kgroup.testing.simulation.history import (
    Appended,
    Fact,
    FaultBegan,
    GroupChanged,
    Judged,
    ProcessCrashed,
    Processed,
    ProcessEnded,
    ProcessStarted,
)
from kgroup.testing.simulation.targeted_faults import Cell
from kgroup.types import TopicPartition

T = TypeVar("T")


@final
@attrs.frozen(kw_only=True)
class Summary:
    """Figures of one simulation, or of several together.

    Attributes:
        seconds: virtual ones.
        generations: that became stable: rebalances that came to an end.
        starts: of programs.
        crashes: of programs.
        failures: how often a program ended with an error.
        failure: the first of these errors, in words; empty if there is none.
        faults: that happened, by kind, in the kinds' order.
        requests: that coordinators were asked.
        written: records.
        processed: records, each counted once.
        repeated: how often a record was processed that had been before.
        visits: how often each kind of fault met which states; see ``coverage``.
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
    processed: int = 0
    repeated: int = 0
    visits: Visits = attrs.field(default=(), repr=lambda visits: f"<{len(visits)} cells>")

    @classmethod
    def of(cls, facts: Iterable[Fact]) -> Summary:
        """The figures of one simulation."""
        at = 0.0
        kinds: Counter[type[Fact]] = Counter()
        faults: Counter[str] = Counter()
        visits: Counter[Cell] = Counter()
        generations = 0
        current: dict[str, int] = {}
        done: set[tuple[TopicPartition, int, int]] = set()
        failures: list[str] = []
        written = 0
        for fact in facts:
            at = fact.at
            kinds[type(fact)] += 1
            if isinstance(fact, Processed):
                done.add((fact.partition, fact.creation, fact.offset))
            elif isinstance(fact, Appended):
                written += fact.next_offset - fact.first
            elif isinstance(fact, ProcessEnded) and fact.error is not None:
                failures.append(f"{fact.process}: {fact.error}")
            elif isinstance(fact, FaultBegan):
                name = type(fact.fault).__name__
                faults[name] += 1
                visits.update((name, member, fact.coordinator) for member in fact.members)
            elif isinstance(fact, GroupChanged) and fact.assigned:
                # A group that another coordinator loads is stable in the generation that it was in.
                generations += current.get(fact.group_id) != fact.generation_id
                current[fact.group_id] = fact.generation_id
        return cls(
            seconds=at,
            generations=generations,
            starts=kinds[ProcessStarted],
            crashes=kinds[ProcessCrashed],
            failures=len(failures),
            failure=next(iter(failures), ""),
            faults=tuple(sorted(faults.items())),
            requests=kinds[Judged],
            written=written,
            processed=len(done),
            repeated=kinds[Processed] - len(done),
            visits=tuple(sorted(visits.items())),
        )

    def __add__(self, other: Summary) -> Summary:
        """Both together."""
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
            processed=self.processed + other.processed,
            repeated=self.repeated + other.repeated,
            visits=_sum(self.visits, other.visits),
        )


def _sum(one: tuple[tuple[T, int], ...], other: tuple[tuple[T, int], ...]) -> Any:
    """Counts of both together, sorted by what was counted."""
    return tuple(sorted((Counter(dict(one)) + Counter(dict(other))).items()))
