"""Invariant 15: what a program that keeps offsets of its own has processed stays processed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final, final

from kgroup.testing.simulation.checks.base import Check, EntryHandler, Violation
from kgroup.testing.simulation.checks.programs import HeldGeneration
from kgroup.testing.simulation.checks.views import Kind, Views
from kgroup.testing.simulation.history import GroupOpened, Processed
from kgroup.testing.simulation.plan import Plan
from kgroup.types import TopicPartition

_Record = tuple[str, TopicPartition, int, int]
"""A record as a group reads it: the group, the partition, the creation of its topic, the offset."""


@final
class ProcessedOnce(Check):
    """Looks for records that a group has processed twice.

    A program with ``GroupConfig.starts`` chooses where it begins, so no commit can show that it
    began too early. A program that processes at least once, although it has a store, is simulated
    with ``exactly_once=False``.
    """

    number: ClassVar[int] = 15
    invariant: ClassVar[str] = (
        "A program that keeps offsets of its own (GroupConfig.starts) processes no record twice, "
        "except with Scenario(exactly_once=False). With exactly_once=True that holds for every "
        "program."
    )

    def __init__(self, plan: Plan, views: Views, on_violation: Callable[[Violation], None]) -> None:
        super().__init__(plan, views, on_violation)
        self._own_starts: Final[set[str]] = set()
        self._processed: Final[dict[_Record, tuple[HeldGeneration, float]]] = {}
        self._reported: Final[set[tuple[HeldGeneration, TopicPartition]]] = set()

    @property
    def handlers(self) -> Mapping[Kind, EntryHandler]:
        """See ``Check``."""
        if self.plan.exactly_once is False:
            return {}
        return {GroupOpened: self._opened, Processed: self._add}

    def _opened(self, entry: GroupOpened) -> None:
        if entry.own_starts:
            self._own_starts.add(entry.group_id)

    def _add(self, entry: Processed) -> None:
        partition = entry.partition
        held = self.views.programs.owner(entry)
        if held is None or not (self.plan.exactly_once or held.group_id in self._own_starts):
            return
        record = held.group_id, partition, entry.creation, entry.offset
        before = self._processed.setdefault(record, (held, entry.at))
        if before == (held, entry.at) or (held, partition) in self._reported:
            return
        self._reported.add((held, partition))
        first, at = before
        self.report(
            entry.at,
            f"{held} processed the record at offset {entry.offset} of {partition} again, which"
            f" {first} had processed at {at:.3f} s; {self._start(held, partition)}. A program that"
            " keeps offsets of its own changes result and offset in one transaction, and starts"
            " there; one that may process a record again is simulated with exactly_once=False"
            " (--no-exactly-once)",
            partition=partition,
            offset=entry.offset,
        )

    def _start(self, held: HeldGeneration, partition: TopicPartition) -> str:
        start = held.positions.get(partition)
        if held.group_id not in self._own_starts:
            return f"it had started the partition at {start}"
        if partition in held.sought:
            return f"its `starts` had returned {start}"
        return f"its `starts` had returned no offset, so that it started at {start}"
