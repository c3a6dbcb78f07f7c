"""Invariant 7: no record is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final, final

from kgroup.broker.groups.requests import OffsetCommit
from kgroup.events import OffsetReset
from kgroup.testing.simulation.checks.base import Check, Reaction, Violation
from kgroup.testing.simulation.checks.programs import Holding
from kgroup.testing.simulation.checks.views import Kind, Views
from kgroup.testing.simulation.history import (
    GroupOpened,
    HandedOut,
    Judged,
    Processed,
    Settled,
    Skipped,
    Sought,
    Told,
    TopicChanged,
    TransactionEnded,
)
from kgroup.testing.simulation.plan import Plan
from kgroup.types import IsolationLevel, TopicPartition

_UNCOMMITTED: Final = IsolationLevel.READ_UNCOMMITTED.value
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

    The records of a deleted topic are nobody's loss, and those of the one that is created again
    are others. A program that never says what it has processed is judged only by what it commits.
    """

    number: ClassVar[int] = 7
    says: ClassVar[str] = (
        "No record is lost: none is passed by a commit before somebody has processed it, none is"
        " left out between two batches, and at the end all are processed and committed."
    )

    def __init__(self, plan: Plan, views: Views, found: Callable[[Violation], None]) -> None:
        super().__init__(plan, views, found)
        self._done: Final[dict[_Log, _Done]] = {}
        self._next: Final[dict[tuple[Holding, TopicPartition, int], int]] = {}
        self._isolation: Final[dict[str, str]] = {}
        self._sought_to: Final[dict[_Log, int]] = {}
        self._reports = False

    @property
    def reactions(self) -> Mapping[Kind, Reaction]:
        """See ``Check``."""
        return {
            GroupOpened: self._opened,
            Processed: self._processed,
            HandedOut: self._handed_out,
            OffsetReset: self._reset,
            Sought: self._sought,
            Skipped: self._skipped,
            TopicChanged: self._topic_changed,
            TransactionEnded: self._transaction_ended,
            "offset_commit": self._committed,
            Settled: self._settled,
        }

    def _log(self, group_id: str, partition: TopicPartition) -> _Done:
        key = (group_id, partition)
        found = self._done.get(key)
        if found is None:
            found = self._done[key] = _Done()
            self._pass_hidden(group_id, partition, found)
        return found

    def _processed(self, fact: Processed) -> None:
        held = self.views.programs.life(fact.process, fact.life).groups.get(fact.partition)
        if held is not None:
            self._reports = True
            if fact.creation == self.views.logs.creation(fact.partition.topic):
                self._log(held.group_id, fact.partition).add(fact.offset)

    def _handed_out(self, fact: HandedOut) -> None:
        held = self.views.programs.holding(fact, fact.group_id, fact.epoch)
        if held is None:
            return
        key = held, fact.partition, fact.creation
        expected = self._next.get(key)
        self._next[key] = fact.next_offset
        if fact.creation != self.views.logs.creation(fact.partition.topic):
            return  # fetched before the topic was deleted
        if expected is None:
            if self.views.programs.reads_on(held, fact.partition):
                self._log(fact.group_id, fact.partition).skip_to(fact.first)
            expected = fact.first
        missing = [*range(expected, fact.first), *fact.left_out]
        log = self.views.logs[fact.partition]
        isolation = self.views.programs.settings(held).isolation_level
        if any(not log.hides(one, isolation) for one in missing):
            self.accuse(
                fact.at,
                f"{held} got records of {fact.partition} from {fact.first} on, after those before"
                f" {expected}",
            )

    def _reset(self, fact: Told) -> None:
        event = fact.event
        assert isinstance(event, OffsetReset)
        held = self.views.programs.holding(fact, event.group_id, event.epoch)
        if held is None:
            return
        self._forget(held, event.partition)
        if self.views.programs.settings(held).auto_offset_reset == "latest":
            self._log(event.group_id, event.partition).skip_to(event.offset)

    def _sought(self, fact: Sought) -> None:
        held = self.views.programs.holding(fact, fact.group_id, fact.epoch)
        if held is not None:
            self._sought_to[fact.group_id, fact.partition] = fact.offset
            self._forget(held, fact.partition)

    def _forget(self, held: Holding, partition: TopicPartition) -> None:
        """The generation goes on elsewhere: what comes next need not follow what came last."""
        self._next.pop((held, partition, self.views.logs.creation(partition.topic)), None)

    def _skipped(self, fact: Skipped) -> None:
        held = self.views.programs.life(fact.process, fact.life).groups.get(fact.partition)
        if held is not None:
            self._log(held.group_id, fact.partition).skip_to(fact.offset)

    def _topic_changed(self, fact: TopicChanged) -> None:
        if fact.partitions:
            return
        for key in [one for one in self._done if one[1].topic == fact.topic]:
            del self._done[key]
        for key in [one for one in self._sought_to if one[1].topic == fact.topic]:
            del self._sought_to[key]

    def _transaction_ended(self, fact: TransactionEnded) -> None:
        touched = {partition for partition, _ in fact.markers}
        for (group_id, partition), done in self._done.items():
            if partition in touched:
                self._pass_hidden(group_id, partition, done)

    def _pass_hidden(self, group_id: str, partition: TopicPartition, done: _Done) -> None:
        """Nobody can process what nobody is given."""
        log = self.views.logs[partition]
        aborted = () if self._isolation.get(group_id) == _UNCOMMITTED else log.aborted
        for offset in sorted((*log.markers, *aborted)):
            done.add(offset)

    def _opened(self, fact: GroupOpened) -> None:
        self._isolation[fact.group_id] = fact.isolation_level

    def _committed(self, fact: Judged) -> None:
        if not self._reports:
            return
        request = fact.request
        assert isinstance(request, OffsetCommit)
        for partition, offset in self.views.groups.commit.accepted.items():
            log = self._log(request.group_id, partition)
            if offset > log.upto and not self._is_excused(request, partition):
                self.accuse(
                    fact.at,
                    f"{fact.process or request.member_id} committed {partition} at {offset}, and"
                    f" nobody has processed the record {log.upto}",
                )
                log.skip_to(offset)  # told once

    def _is_excused(self, request: OffsetCommit, partition: TopicPartition) -> bool:
        """Whether the member commits by positions of before the topic was created again."""
        programs = self.views.programs
        held = programs.of_member(request.group_id, request.member_id, request.generation_id)
        return held is not None and programs.reads_on(held, partition)

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
            sought = self._sought_to.get((fact.group_id, partition), 0)
            if max(committed, sought) < end:  # who keeps its own offsets may commit later
                self.accuse(fact.at, f"{partition} ends at {end} and is committed at {committed}")
