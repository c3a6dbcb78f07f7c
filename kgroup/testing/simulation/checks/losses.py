"""Invariant 7: no record is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final, final

from kgroup.broker.groups.requests import OffsetCommit
from kgroup.events import OffsetReset
from kgroup.model import TopicPartition
from kgroup.testing.simulation.checks.base import Check, Reaction, Violation
from kgroup.testing.simulation.checks.programs import Holding
from kgroup.testing.simulation.checks.views import Kind, Views
from kgroup.testing.simulation.facts import HandedOut, Judged, Processed, Settled, Told
from kgroup.testing.simulation.plan import Plan

_Log = tuple[str, TopicPartition]
"""A partition, as one group reads it."""


@final
class _Done:
    """Which records of a partition have been processed: all before ``upto``, and some behind."""

    __slots__ = ("_behind", "upto")

    def __init__(self) -> None:
        self.upto = 0
        self._behind: set[int] = set()

    def add(self, offset: int) -> None:
        if offset == self.upto:
            self.upto += 1
            while self._behind and self.upto in self._behind:
                self._behind.remove(self.upto)
                self.upto += 1
        elif offset > self.upto:
            self._behind.add(offset)

    def skip_to(self, offset: int) -> None:
        for one in range(self.upto, offset):
            self.add(one)


@final
class Losses(Check):
    """Holds commits, and what is there at the end, against what was processed.

    A program that never says what it has processed is judged only by what it commits.
    """

    number: ClassVar[int] = 7
    says: ClassVar[str] = (
        "No record is lost: none is passed by a commit before somebody has processed it, none is"
        " left out between two batches, and at the end all are processed and committed."
    )

    def __init__(self, plan: Plan, views: Views, found: Callable[[Violation], None]) -> None:
        super().__init__(plan, views, found)
        self._done: Final[dict[_Log, _Done]] = {}
        self._next: Final[dict[tuple[Holding, TopicPartition], int]] = {}
        self._reports = False

    @property
    def reactions(self) -> Mapping[Kind, Reaction]:
        """See ``Check``."""
        return {
            Processed: self._processed,
            HandedOut: self._handed_out,
            OffsetReset: self._reset,
            "offset_commit": self._committed,
            Settled: self._settled,
        }

    def _log(self, group_id: str, partition: TopicPartition) -> _Done:
        key = (group_id, partition)
        found = self._done.get(key)
        if found is None:
            found = self._done[key] = _Done()
        return found

    def _processed(self, fact: Processed) -> None:
        held = self.views.programs.life(fact.process, fact.life).groups.get(fact.partition)
        if held is not None:
            self._reports = True
            self._log(held.group_id, fact.partition).add(fact.offset)

    def _handed_out(self, fact: HandedOut) -> None:
        held = self.views.programs.holding(fact, fact.group_id, fact.epoch)
        if held is None:
            return
        expected = self._next.get((held, fact.partition), fact.first)
        self._next[held, fact.partition] = fact.next_offset
        if fact.first > expected:
            self.accuse(
                fact.at,
                f"{held} got records of {fact.partition} from {fact.first} on, after those before"
                f" {expected}",
            )

    def _reset(self, fact: Told) -> None:
        event = fact.event
        assert isinstance(event, OffsetReset)
        held = self.views.programs.holding(fact, event.group_id, event.epoch)
        if held and self.views.programs.settings(held).auto_offset_reset == "latest":
            self._log(event.group_id, event.partition).skip_to(event.offset)

    def _committed(self, fact: Judged) -> None:
        if not self._reports:
            return
        request = fact.request
        assert isinstance(request, OffsetCommit)
        for partition, offset in self.views.groups.commit.accepted.items():
            log = self._log(request.group_id, partition)
            if offset > log.upto:
                self.accuse(
                    fact.at,
                    f"{fact.process or request.member_id} committed {partition} at {offset}, and"
                    f" nobody has processed the record {log.upto}",
                )
                log.skip_to(offset)  # told once

    def _settled(self, fact: Settled) -> None:
        now = self.views.groups[fact.group_id].now
        for partition, end in sorted(fact.ends.items()):
            if now is None or partition.topic not in now.topics:
                continue
            upto = self._log(fact.group_id, partition).upto
            if self._reports and upto < end:
                self.accuse(
                    fact.at,
                    f"{partition} ends at {end}, and nobody has processed the record {upto}",
                )
            committed = fact.committed.get(partition, 0)
            if committed < end:
                self.accuse(fact.at, f"{partition} ends at {end} and is committed at {committed}")
