"""Invariant 7: no record is lost."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar, Final, final

from kgroup.broker.groups.requests import OffsetCommit
from kgroup.events import OffsetReset
from kgroup.testing.simulation.checks.base import Check, EntryHandler, Violation
from kgroup.testing.simulation.checks.programs import HeldGeneration
from kgroup.testing.simulation.checks.views import Kind, Views
from kgroup.testing.simulation.history import (
    EventReported,
    FinalGroupState,
    GroupChanged,
    GroupOpened,
    HandedOut,
    Processed,
    RecordsSkipped,
    RequestHandled,
    SeekCalled,
    TopicChanged,
    TransactionEnded,
)
from kgroup.testing.simulation.plan import Plan
from kgroup.types import IsolationLevel, TopicPartition

_UNCOMMITTED: Final = IsolationLevel.READ_UNCOMMITTED.value
_Log = tuple[str, TopicPartition]
"""A group and a partition that it reads."""


@final
class _Done:
    """The processed records of a partition: all before ``upto``, and some after it."""

    __slots__ = ("_later", "upto")

    def __init__(self) -> None:
        self.upto = 0
        self._later: set[int] = set()

    def add(self, offset: int) -> None:
        if offset == self.upto:
            self.upto += 1
            while self._later and self.upto in self._later:
                self._later.remove(self.upto)
                self.upto += 1
        elif offset > self.upto:
            self._later.add(offset)

    def skip_to(self, offset: int) -> None:
        for one in range(self.upto, offset):
            self.add(one)


@final
class Losses(Check):
    """Compares commits, and the logs at the end, with the records that were processed.

    The records of a deleted topic do not count as lost, and those of the topic that is created
    again are different ones. A group whose members have all left still has to process the topics
    that it read last: its programs do not come back, however long the simulation waits for them.

    Only a program knows what it has processed. One that never reports it looks like one that loses
    everything; ``report`` says how to report it.

    A program with offsets of its own may commit later, less, or nothing: at the end it does not
    matter what a group with ``GroupConfig.starts`` has committed, nor one that seeks and commits
    nothing but where it starts. Any other group that has ever committed what it has
    read has to commit everything, up to where it has sought.
    """

    number: ClassVar[int] = 7
    invariant: ClassVar[str] = (
        "No record is lost: no commit passes a record that has not been processed, no record is "
        "missing between two batches, and at the end every record is processed and committed, "
        "except by programs that keep offsets of their own, which need not commit."
    )

    def __init__(self, plan: Plan, views: Views, on_violation: Callable[[Violation], None]) -> None:
        super().__init__(plan, views, on_violation)
        self._done: Final[dict[_Log, _Done]] = {}
        self._next: Final[dict[tuple[HeldGeneration, TopicPartition, int], int]] = {}
        self._isolation: Final[dict[str, str]] = {}
        self._sought_to: Final[dict[_Log, int]] = {}
        self._own_starts: Final[set[str]] = set()
        self._readers: Final[dict[_Log, HeldGeneration]] = {}
        """Who began to read last."""
        self._commits_read: Final[set[str]] = set()
        self._topics: Final[dict[str, Mapping[str, int]]] = {}

    @property
    def handlers(self) -> Mapping[Kind, EntryHandler]:
        """See ``Check``."""
        return {
            GroupOpened: self._opened,
            GroupChanged: self._group_changed,
            Processed: self._processed,
            HandedOut: self._handed_out,
            OffsetReset: self._reset,
            SeekCalled: self._sought,
            RecordsSkipped: self._skipped,
            TopicChanged: self._topic_changed,
            TransactionEnded: self._transaction_ended,
            "offset_commit": self._committed,
            FinalGroupState: self._at_the_end,
        }

    def _group_changed(self, entry: GroupChanged) -> None:
        if entry.members:
            self._topics[entry.group_id] = entry.topics

    def _log(self, group_id: str, partition: TopicPartition) -> _Done:
        key = (group_id, partition)
        found = self._done.get(key)
        if found is None:
            found = self._done[key] = _Done()
            self._pass_hidden(group_id, partition, found)
        return found

    def _processed(self, entry: Processed) -> None:
        held = self.views.programs.owner(entry)
        if held is not None and entry.creation == self.views.logs.creation(entry.partition.topic):
            self._log(held.group_id, entry.partition).add(entry.offset)

    def _handed_out(self, entry: HandedOut) -> None:
        held = self.views.programs.held_generation(entry, entry.group_id, entry.epoch)
        if held is None:
            return
        key = held, entry.partition, entry.creation
        expected = self._next.get(key)
        self._next[key] = entry.next_offset
        if entry.creation != self.views.logs.creation(entry.partition.topic):
            return  # fetched before the topic was deleted
        if expected is None:
            if self.views.programs.uses_old_positions(held, entry.partition):
                self._log(entry.group_id, entry.partition).skip_to(entry.first)
            expected = entry.first
            self._readers[entry.group_id, entry.partition] = held
        missing = [*range(expected, entry.first), *entry.left_out]
        log = self.views.logs[entry.partition]
        isolation = self.views.programs.settings(held).isolation_level
        if any(not log.hides(one, isolation) for one in missing):
            self.report(
                entry.at,
                f"{held} got records of {entry.partition} from {entry.first} on, right after those"
                f" before {expected}",
                partition=entry.partition,
                offset=missing[0],
            )

    def _reset(self, entry: EventReported) -> None:
        event = entry.event
        assert isinstance(event, OffsetReset)
        held = self.views.programs.held_generation(entry, event.group_id, event.epoch)
        if held is None:
            return
        self._forget(held, event.partition)
        if self.views.programs.settings(held).auto_offset_reset == "latest":
            self._log(event.group_id, event.partition).skip_to(event.offset)

    def _sought(self, entry: SeekCalled) -> None:
        held = self.views.programs.held_generation(entry, entry.group_id, entry.epoch)
        if held is not None:
            self._sought_to[entry.group_id, entry.partition] = entry.offset
            self._forget(held, entry.partition)

    def _forget(self, held: HeldGeneration, partition: TopicPartition) -> None:
        """The generation continues elsewhere: its next batch need not follow its last one."""
        self._next.pop((held, partition, self.views.logs.creation(partition.topic)), None)

    def _skipped(self, entry: RecordsSkipped) -> None:
        held = self.views.programs.owner(entry)
        if held is not None:
            self._log(held.group_id, entry.partition).skip_to(entry.offset)

    def _topic_changed(self, entry: TopicChanged) -> None:
        if entry.partitions:
            return
        for key in [one for one in self._done if one[1].topic == entry.topic]:
            del self._done[key]
        for key in [one for one in self._sought_to if one[1].topic == entry.topic]:
            del self._sought_to[key]
        for key in [one for one in self._readers if one[1].topic == entry.topic]:
            del self._readers[key]

    def _transaction_ended(self, entry: TransactionEnded) -> None:
        touched = {partition for partition, _ in entry.markers}
        for (group_id, partition), done in self._done.items():
            if partition in touched:
                self._pass_hidden(group_id, partition, done)

    def _pass_hidden(self, group_id: str, partition: TopicPartition, done: _Done) -> None:
        """Count records that are never handed out as processed."""
        log = self.views.logs[partition]
        aborted = () if self._isolation.get(group_id) == _UNCOMMITTED else log.aborted
        for offset in sorted((*log.markers, *aborted)):
            done.add(offset)

    def _opened(self, entry: GroupOpened) -> None:
        self._isolation[entry.group_id] = entry.isolation_level
        if entry.own_starts:
            self._own_starts.add(entry.group_id)

    def _committed(self, entry: RequestHandled) -> None:
        request = entry.request
        assert isinstance(request, OffsetCommit)
        programs = self.views.programs
        held = programs.of_member(request.group_id, request.member_id, request.generation_id)
        for partition, offset in self.views.groups.commit.requested.items():
            if held is None or not _is_unread(held, partition, offset):
                self._commits_read.add(request.group_id)
        for partition, offset in self.views.groups.commit.accepted.items():
            log = self._log(request.group_id, partition)
            if offset > log.upto and not self._is_excused(request, partition):
                self.report(
                    entry.at,
                    f"{entry.process or request.member_id} committed {partition} at {offset},"
                    f" but the record at offset {log.upto} has not been processed"
                    f"{self._passed(request.group_id, partition)}",
                    partition=partition,
                    offset=log.upto,
                )
                log.skip_to(offset)  # report it once

    def _passed(self, group_id: str, partition: TopicPartition) -> str:
        """Whose ``starts`` led past the first record that has not been processed, if one did."""
        held = self._readers.get((group_id, partition))
        if held is None or group_id not in self._own_starts or partition not in held.sought:
            return ""
        start = held.positions.get(partition, 0)
        if start <= self._log(group_id, partition).upto:
            return ""
        return f": {held} began at {start}, which its `starts` had returned"

    def _is_excused(self, request: OffsetCommit, partition: TopicPartition) -> bool:
        """Whether the member commits positions from before the topic was created again."""
        programs = self.views.programs
        held = programs.of_member(request.group_id, request.member_id, request.generation_id)
        return held is not None and programs.uses_old_positions(held, partition)

    def _at_the_end(self, entry: FinalGroupState) -> None:
        topics = self._topics.get(entry.group_id, ())
        for partition, end in sorted(entry.ends.items()):
            if partition.topic not in topics:
                continue
            log = self._log(entry.group_id, partition)
            committed = entry.committed.get(partition, 0)
            if self.views.programs.has_old_commit(entry.group_id, partition):
                log.skip_to(committed)  # no record after it may have shown where its reader began
            upto = log.upto
            if upto < end:
                self.report(
                    entry.at,
                    f"{partition} ends at {end}, but the record at offset {upto} has not been"
                    f" processed{self._passed(entry.group_id, partition)}",
                    partition=partition,
                    offset=upto,
                )
            sought = self._sought_to.get((entry.group_id, partition), 0)
            if self._needs_no_commits(entry.group_id):
                continue
            if max(committed, sought) < end:  # a program with offsets of its own may commit later
                self.report(
                    entry.at,
                    f"{partition} ends at {end}, but is committed only at {committed}",
                    partition=partition,
                    offset=max(committed, sought),
                )

    def _needs_no_commits(self, group_id: str) -> bool:
        if group_id in self._own_starts:
            return True
        return group_id not in self._commits_read and any(
            one == group_id for one, _ in self._sought_to
        )


def _is_unread(held: HeldGeneration, partition: TopicPartition, offset: int) -> bool:
    """Whether an offset is where a program has started or sought, and so not one it has read to."""
    return offset == held.starts.get(partition) or offset in held.chosen.get(partition, ())
