"""Invariant 6: where an owner starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from kgroup.events import Assigned
from kgroup.testing.simulation.checks.base import Check, Reaction
from kgroup.testing.simulation.checks.programs import Holding
from kgroup.testing.simulation.checks.views import Kind
from kgroup.testing.simulation.history import HandedOut, Sought, Told
from kgroup.types import TopicPartition

_LOG_START = 0


@final
class StartPositions(Check):
    """Looks at where each owner is told to start, and at the first records that it gets.

    A program that seeks starts again, where it seeks.
    """

    number: ClassVar[int] = 6
    says: ClassVar[str] = (
        "The next owner starts exactly at the last commit that the coordinator applied, and"
        " without one at the log's start; a program that seeks goes on exactly there."
    )

    _begun: dict[tuple[Holding, TopicPartition], None]

    @property
    def reactions(self) -> Mapping[Kind, Reaction]:
        """See ``Check``."""
        self._begun = {}
        return {
            Assigned: self._assigned,
            Sought: self._sought,
            HandedOut: self._handed_out,
        }

    def _assigned(self, fact: Told) -> None:
        event = fact.event
        assert isinstance(event, Assigned)
        held = self.views.programs.holding(fact, event.group_id, event.epoch)
        if held is None:
            return
        rule = self.views.programs.settings(held).auto_offset_reset
        for partition in event.assignment:
            start = event.positions.get(partition)
            commits = self._commits(held, partition)
            right = start in commits
            if not right and None in commits:
                right = rule != "earliest" or start == _LOG_START
            if not right:
                now = self.views.groups[event.group_id].applied.get(partition)
                self.accuse(
                    fact.at,
                    f"{held} was told to start {partition} at {start}; the last commit that was"
                    f" applied is {now}",
                )

    def _commits(self, held: Holding, partition: TopicPartition) -> set[int | None]:
        """What the coordinator had for a partition since the member joined; None is nothing."""
        applied = self.views.groups[held.group_id].applied
        found = {held.committed_then.get(partition), applied.get(partition)}
        if self.views.logs.deleted_at(partition.topic) >= held.joined_at:
            found.add(None)
        return found

    def _sought(self, fact: Sought) -> None:
        held = self.views.programs.holding(fact, fact.group_id, fact.epoch)
        if held is not None:
            self._begun.pop((held, fact.partition), None)

    def _handed_out(self, fact: HandedOut) -> None:
        held = self.views.programs.holding(fact, fact.group_id, fact.epoch)
        if held is None or (held, fact.partition) in self._begun:
            return
        self._begun[held, fact.partition] = None
        start = held.starts.get(fact.partition)
        if start is None or self._is_first(held, fact, start):
            return
        self.accuse(
            fact.at,
            f"{held} was told to start {fact.partition} at {start}, and the first record that"
            f" it got is {fact.first}",
        )

    def _is_first(self, held: Holding, fact: HandedOut, start: int) -> bool:
        """Whether there is nothing to see between a start and the first record."""
        log = self.views.logs[fact.partition]
        isolation = self.views.programs.settings(held).isolation_level
        between = range(start, fact.first)
        return start <= fact.first and all(log.hides(one, isolation) for one in between)
