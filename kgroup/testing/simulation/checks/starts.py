"""Invariant 6: where an owner starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from kgroup.events import Assigned
from kgroup.model import TopicPartition
from kgroup.testing.simulation.checks.base import Check, Reaction
from kgroup.testing.simulation.checks.programs import Holding
from kgroup.testing.simulation.checks.views import Kind
from kgroup.testing.simulation.facts import HandedOut, Told

_LOG_START = 0


@final
class Starts(Check):
    """Looks at where each owner is told to start, and at the first records that it gets.

    A program that seeks is one that starts elsewhere.
    """

    number: ClassVar[int] = 6
    says: ClassVar[str] = (
        "The next owner starts exactly at the last commit that the coordinator applied, and"
        " without one at the log's start."
    )

    _begun: dict[tuple[Holding, TopicPartition], None]

    @property
    def reactions(self) -> Mapping[Kind, Reaction]:
        """See ``Check``."""
        self._begun = {}
        return {Assigned: self._assigned, HandedOut: self._handed_out}

    def _assigned(self, fact: Told) -> None:
        event = fact.event
        assert isinstance(event, Assigned)
        held = self.views.programs.holding(fact, event.group_id, event.epoch)
        if held is None:
            return
        now = self.views.groups[event.group_id].applied
        rule = self.views.programs.settings(held).auto_offset_reset
        for partition in event.assignment:
            start = event.positions.get(partition)
            then = held.committed_then
            if partition in then or partition in now:
                right = start in (then.get(partition), now.get(partition))
            else:
                right = rule != "earliest" or start == _LOG_START
            if not right:
                self.accuse(
                    fact.at,
                    f"{held} was told to start {partition} at {start}; the last commit that was"
                    f" applied is {now.get(partition)}",
                )

    def _handed_out(self, fact: HandedOut) -> None:
        held = self.views.programs.holding(fact, fact.group_id, fact.epoch)
        if held is None or (held, fact.partition) in self._begun:
            return
        self._begun[held, fact.partition] = None
        start = held.starts.get(fact.partition)
        if start is not None and fact.first != start:
            self.accuse(
                fact.at,
                f"{held} was told to start {fact.partition} at {start}, and the first record that"
                f" it got is {fact.first}",
            )
