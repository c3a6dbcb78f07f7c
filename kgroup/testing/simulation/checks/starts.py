"""Invariant 6: where an owner starts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, final

from kgroup.events import Assigned, OffsetReset
from kgroup.testing.simulation.checks.base import Check, EntryHandler
from kgroup.testing.simulation.checks.programs import HeldGeneration
from kgroup.testing.simulation.checks.views import Kind
from kgroup.testing.simulation.history import EventReported, HandedOut, SeekCalled
from kgroup.types import TopicPartition

_LOG_START = 0


@final
class StartPositions(Check):
    """Checks the start position of each owner, and in which order it gets the records.

    A seek or a reset counts as a new start. Invariant 7 checks that no record is missing between
    two batches.
    """

    number: ClassVar[int] = 6
    invariant: ClassVar[str] = (
        "The next owner of a partition starts exactly at the last commit that the coordinator "
        "applied, or at the log's start if there is none, or if the commit is of a topic of that "
        "name that was deleted since, or, if that is a commit of the same member that arrived "
        "after a later one, at that later one; where the program has its own start "
        "(GroupConfig.starts), exactly there. After a seek or a reset, it continues exactly at the "
        "new position; otherwise it gets each record once, in the order of their offsets."
    )

    _next: dict[tuple[HeldGeneration, TopicPartition], int]
    """Where each partition continues that has begun."""

    @property
    def handlers(self) -> Mapping[Kind, EntryHandler]:
        """See ``Check``."""
        self._next = {}
        return {
            Assigned: self._assigned,
            SeekCalled: self._sought,
            OffsetReset: self._reset,
            HandedOut: self._handed_out,
        }

    def _assigned(self, entry: EventReported) -> None:
        event = entry.event
        assert isinstance(event, Assigned)
        held = self.views.programs.held_generation(entry, event.group_id, event.epoch)
        if held is None:
            return
        rule = self.views.programs.settings(held).auto_offset_reset
        for partition in event.assignment:
            start = event.start_offsets.get(partition)
            if partition in held.sought:
                if start != held.sought[partition]:
                    self.report(
                        entry.at,
                        f"{held} starts {partition} at {start}, but its program's store has"
                        f" {held.sought[partition]}",
                        partition=partition,
                        offset=start,
                    )
                continue
            commits = self._commits(held, partition)
            right = start in commits
            if not right and None in commits:
                right = rule != "earliest" or start == _LOG_START
            now = self.views.groups[event.group_id].applied.get(partition)
            if not right and now is not None and partition in event.assignment.kept:
                own = self.views.programs.commits_of_member(
                    held.group_id, held.member_id, partition
                )
                right = start == own.acknowledged and own.has_arrived_late(now)
            if not right and self.views.programs.has_old_commit(event.group_id, partition):
                # Its leader epoch shows that it is of another log: where that ends in this one, or
                # where the first reader finds by the reset policy.
                right = start is None or (now is not None and start < now)
            if not right:
                self.report(
                    entry.at,
                    f"{held} starts {partition} at {start}, but the last commit that was applied"
                    f" is {now}",
                    partition=partition,
                    offset=start,
                )

    def _commits(self, held: HeldGeneration, partition: TopicPartition) -> set[int | None]:
        """The commits of a partition since the member joined; None stands for no commit."""
        applied = self.views.groups[held.group_id].applied
        found = {held.committed_then.get(partition), applied.get(partition)}
        if self.views.logs.deleted_at(partition.topic) >= held.joined_at:
            found.add(None)
        return found

    def _sought(self, entry: SeekCalled) -> None:
        held = self.views.programs.held_generation(entry, entry.group_id, entry.epoch)
        if held is not None:
            self._next.pop((held, entry.partition), None)

    def _reset(self, entry: EventReported) -> None:
        event = entry.event
        assert isinstance(event, OffsetReset)
        held = self.views.programs.held_generation(entry, event.group_id, event.epoch)
        if held is not None:
            self._next.pop((held, event.partition), None)

    def _handed_out(self, entry: HandedOut) -> None:
        held = self.views.programs.held_generation(entry, entry.group_id, entry.epoch)
        if held is None:
            return
        expected = self._next.get((held, entry.partition))
        self._next[held, entry.partition] = entry.next_offset
        self._report_disorder(held, entry, expected)
        if expected is not None:
            return
        start = held.starts.get(entry.partition)
        if start is None or self._is_first(held, entry, start):
            return
        self.report(
            entry.at,
            f"{held} starts {entry.partition} at {start}, but the first record that it got is"
            f" {entry.first}",
            partition=entry.partition,
            offset=start,
        )

    def _report_disorder(
        self, held: HeldGeneration, entry: HandedOut, expected: int | None
    ) -> None:
        """Report a record that comes again, or after a later one."""
        again = entry.misplaced[:1]
        if expected is not None and entry.first < expected:
            again = (entry.first,)
        for offset in again:
            self.report(
                entry.at,
                f"{held} got the record at offset {offset} of {entry.partition} again, or after a"
                " later one, although nothing has sought or reset its position",
                partition=entry.partition,
                offset=offset,
            )

    def _is_first(self, held: HeldGeneration, entry: HandedOut, start: int) -> bool:
        """Whether the member could read no record between a start and its first record."""
        log = self.views.logs.of_creation(entry.partition, entry.creation)
        isolation = self.views.programs.settings(held).isolation_level
        between = range(start, entry.first)
        return start <= entry.first and all(log.hides(one, isolation) for one in between)
