"""The programs, as the history shows them: their generations, batches, commits and records."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, final

import attrs

from kgroup.broker.groups.requests import OffsetCommit
from kgroup.client.error_policy import Request
from kgroup.events import (
    Assigned,
    CommitRefused,
    Committed,
    GenerationDraining,
    GenerationEnded,
    Joined,
    OffsetReset,
    RequestFailed,
)
from kgroup.testing.simulation.checks.groups import GroupsView
from kgroup.testing.simulation.checks.logs import LogsView
from kgroup.testing.simulation.history import (
    EventReported,
    GroupOpened,
    HandedOut,
    ProcessCrashed,
    Processed,
    ProcessEnded,
    ProcessFrozen,
    ProcessStarted,
    ProcessThawed,
    RecordsSkipped,
    RequestHandled,
    SeekCalled,
    TopicChanged,
)
from kgroup.types import TopicPartition

Life = tuple[str, int]
"""A program, and which start of it."""
_Log = tuple[str, TopicPartition]
"""A group and a partition that it reads."""
_Accepted = tuple[str, int]
"""A commit that a coordinator accepted: the member id and the offset."""


@final
@attrs.define(eq=False)
class HeldGeneration:
    """One generation of one run of a program.

    Attributes:
        joined_at: when the program reported that it had joined the generation.
        committed_then: the commits that were applied at that time.
        assignment: the partitions that the program received; None before.
        positions: for each partition the start position that it received.
        starts: for each partition the last start position, after resets and seeks too.
        lowest_starts: for each partition the lowest of these.
        handed: for each partition the end of the records that were handed out.
        processed: for each partition the end of the records that were processed.
        draining_at: when the program reported the beginning of its drain, if it did.
        ended: the event that reported its end, if there was one.
        ended_at: when.
        over: whether the generation or its program has ended.
        was_frozen: whether the program was frozen during the generation.
        refused: whether a commit of it failed, or may have failed.
        sought: for each partition the lowest offset that the program sought.
        chosen: for each partition the offsets that the program sought, or up to which it skipped.
        reset_at: for each partition when its position was last reset without a commit.
        starts_at_old_commit: partitions that start by a commit of a generation that began
            before their topic was created again.
    """

    life: Life
    group_id: str
    member_id: str
    generation_id: int
    epoch: int
    joined_at: float
    committed_then: Mapping[TopicPartition, int]
    assignment: frozenset[TopicPartition] | None = None
    positions: Mapping[TopicPartition, int] = attrs.field(factory=dict)
    starts: dict[TopicPartition, int] = attrs.field(factory=dict)
    lowest_starts: dict[TopicPartition, int] = attrs.field(factory=dict)
    handed: dict[TopicPartition, int] = attrs.field(factory=dict)
    processed: dict[TopicPartition, int] = attrs.field(factory=dict)
    draining_at: float | None = None
    ended: GenerationEnded | None = None
    ended_at: float = math.inf
    over: bool = False
    was_frozen: bool = False
    refused: bool = False
    sought: dict[TopicPartition, int] = attrs.field(factory=dict)
    chosen: defaultdict[TopicPartition, set[int]] = attrs.field(factory=lambda: defaultdict(set))
    reset_at: dict[TopicPartition, float] = attrs.field(factory=dict)
    starts_at_old_commit: set[TopicPartition] = attrs.field(factory=set)

    def __str__(self) -> str:
        return f"{self.life[0]} in generation {self.generation_id}"

    def start_at(self, partition: TopicPartition, offset: int) -> None:
        """It reads from this position on."""
        self.starts[partition] = offset
        self.lowest_starts[partition] = min(offset, self.lowest_starts.get(partition, offset))

    def position(self, partition: TopicPartition) -> int | None:
        """The highest offset that it may commit, or None if it has no start position."""
        known = [
            offsets[partition] for offsets in (self.starts, self.handed) if partition in offsets
        ]
        return max(known, default=None)


@final
@attrs.define(eq=False)
class LifeView:
    """One run of a program.

    Attributes:
        group_instance_id: its instance id, or None.
        over: whether it has ended or crashed.
        frozen: whether it is frozen.
        thawed_at: when it was thawed last.
        held_generations: for each of its groups its last generation.
        member_ids: for each of its groups the member ids that it has had.
        owners: for each group and partition the generation that received it last.
        settings: for each of its groups the settings.
    """

    group_instance_id: str | None = None
    over: bool = False
    frozen: bool = False
    thawed_at: float = -math.inf
    held_generations: dict[str, HeldGeneration] = attrs.field(factory=dict)
    member_ids: defaultdict[str, set[str]] = attrs.field(factory=lambda: defaultdict(set))
    owners: dict[_Log, HeldGeneration] = attrs.field(factory=dict)
    settings: dict[str, GroupOpened] = attrs.field(factory=dict)


@final
@attrs.define(eq=False)
class MemberCommits:
    """What one member knows of its commits of one partition.

    Attributes:
        acknowledged: the last one that was acknowledged; None if none was.
        earlier: what it has committed before that one.
        unconfirmed: what it has committed after that one without an answer.
    """

    acknowledged: int | None = None
    earlier: set[int] = attrs.field(factory=set)
    unconfirmed: set[int] = attrs.field(factory=set)

    def acknowledge(self, offset: int) -> None:
        """A commit of this offset was acknowledged."""
        self.earlier |= self.unconfirmed
        self.unconfirmed.clear()
        if self.acknowledged is not None:
            self.earlier.add(self.acknowledged)
        self.acknowledged = offset

    def has_arrived_late(self, offset: int) -> bool:
        """Whether a commit of this offset can only be one from before the acknowledged one."""
        return offset in self.earlier - self.unconfirmed


@final
class ProgramsView:
    """All runs of all programs."""

    def __init__(self, groups: GroupsView, logs: LogsView) -> None:
        self._groups = groups
        self._logs = logs
        self._lives: defaultdict[Life, LifeView] = defaultdict(LifeView)
        self._by_member: dict[tuple[str, str, int], HeldGeneration] = {}
        self._latest: dict[tuple[str, str], HeldGeneration] = {}
        self.acknowledged: Final[defaultdict[str, dict[TopicPartition, int]]] = defaultdict(dict)
        """By group, for each partition the last commit that a program got acknowledged, or a lower
        one that was accepted after it (a program may seek back)."""
        self._accepted_commits: Final[defaultdict[_Log, list[_Accepted]]] = defaultdict(list)
        self._ever_accepted: Final[defaultdict[_Log, set[_Accepted]]] = defaultdict(set)
        self._member_commits: Final[defaultdict[_Log, defaultdict[str, MemberCommits]]] = (
            defaultdict(lambda: defaultdict(MemberCommits))
        )
        self._old_commits: Final[dict[_Log, int]] = {}
        self.watch_interval = 0.0
        """The longest ``partition_watch_interval`` of any program."""

    def settings(self, held: HeldGeneration) -> GroupOpened:
        """The settings of a generation's group."""
        return self._lives[held.life].settings[held.group_id]

    def life(self, process: str, life: int) -> LifeView:
        """One run of a program."""
        return self._lives[process, life]

    def held_generation(
        self, entry: EventReported | HandedOut | SeekCalled, group_id: str, epoch: int
    ) -> HeldGeneration | None:
        """The generation that an entry is about, if it is the run's last one in the group."""
        held = self._lives[entry.process, entry.life].held_generations.get(group_id)
        return held if held is not None and held.epoch == epoch else None

    def owner(self, entry: Processed | RecordsSkipped) -> HeldGeneration | None:
        """The generation in which a program processes or skips records, if there was one."""
        owners = self._lives[entry.process, entry.life].owners
        return owners.get((entry.group_id, entry.partition))

    def was_frozen_since(self, held: HeldGeneration, at: float) -> bool:
        """Whether a program was frozen at that time or after it, in this generation."""
        life = self._lives[held.life]
        return held.was_frozen and (life.frozen or life.thawed_at >= at)

    def of_member(self, group_id: str, member_id: str, generation_id: int) -> HeldGeneration | None:
        """A generation of a member."""
        return self._by_member.get((group_id, member_id, generation_id))

    def latest(self, group_id: str, member_id: str) -> HeldGeneration | None:
        """The last generation of a member."""
        return self._latest.get((group_id, member_id))

    def uses_old_positions(self, held: HeldGeneration, partition: TopicPartition) -> bool:
        """Whether the position of a generation may be from before the topic was created again."""
        again = self._logs.created_again_at(partition.topic)
        if held.reset_at.get(partition, 0.0) >= again:
            return False
        return held.joined_at <= again or partition in held.starts_at_old_commit

    def has_old_commit(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether the last accepted commit is of a generation that `uses_old_positions`."""
        return (group_id, partition) in self._old_commits

    def was_accepted(
        self, group_id: str, member_id: str, partition: TopicPartition, offset: int
    ) -> bool:
        """Whether a coordinator has accepted this commit, also if its topic was deleted since."""
        return (member_id, offset) in self._ever_accepted[group_id, partition]

    def commits_of_member(
        self, group_id: str, member_id: str, partition: TopicPartition
    ) -> MemberCommits:
        """What a member knows of its commits of a partition since the topic was created."""
        return self._member_commits[group_id, partition][member_id]

    @property
    def handlers(self) -> Mapping[type[object] | str, Callable[[Any], None]]:
        """The handler for each kind of entry."""
        return {
            ProcessStarted: self._started,
            GroupOpened: self._opened,
            ProcessEnded: self._over,
            ProcessCrashed: self._over,
            ProcessFrozen: self._frozen,
            ProcessThawed: self._thawed,
            Joined: self._joined,
            Assigned: self._assigned,
            OffsetReset: self._reset,
            GenerationDraining: self._draining,
            GenerationEnded: self._ended,
            Committed: self._committed,
            CommitRefused: self._refused,
            RequestFailed: self._failed,
            HandedOut: self._handed_out,
            SeekCalled: self._sought,
            RecordsSkipped: self._skipped,
            Processed: self._processed,
            TopicChanged: self._topic_changed,
            "offset_commit": self._accepted,
        }

    def _started(self, entry: ProcessStarted) -> None:
        self._lives[entry.process, entry.life].group_instance_id = entry.group_instance_id

    def _opened(self, entry: GroupOpened) -> None:
        self._lives[entry.process, entry.life].settings[entry.group_id] = entry
        self.watch_interval = max(self.watch_interval, entry.partition_watch_interval)

    def _over(self, entry: ProcessEnded | ProcessCrashed) -> None:
        life = self._lives[entry.process, entry.life]
        life.over = True
        for held in life.held_generations.values():
            held.over = True

    def _frozen(self, entry: ProcessFrozen) -> None:
        life = self._lives[entry.process, entry.life]
        life.frozen = True
        for held in life.held_generations.values():
            held.was_frozen = True

    def _thawed(self, entry: ProcessThawed) -> None:
        life = self._lives[entry.process, entry.life]
        life.frozen, life.thawed_at = False, entry.at

    def _joined(self, entry: EventReported) -> None:
        event = entry.event
        held = HeldGeneration(
            (entry.process, entry.life),
            event.group_id,
            event.member_id,
            event.generation_id,
            event.epoch,
            entry.at,
            dict(self._groups[event.group_id].applied),
        )
        life = self._lives[entry.process, entry.life]
        life.held_generations[event.group_id] = held
        life.member_ids[event.group_id].add(event.member_id)
        self._by_member[event.group_id, event.member_id, event.generation_id] = held
        self._latest[event.group_id, event.member_id] = held

    def _assigned(self, entry: EventReported) -> None:
        event = entry.event
        assert isinstance(event, Assigned)
        held = self.held_generation(entry, event.group_id, event.epoch)
        if held is None:
            return
        held.assignment = frozenset(event.assignment)
        held.positions = event.start_offsets
        for partition, offset in event.start_offsets.items():
            held.start_at(partition, offset)
        for partition in held.assignment:
            self._lives[held.life].owners[event.group_id, partition] = held
            old_commit = self._old_commits.get((event.group_id, partition))
            if old_commit is not None and old_commit == event.start_offsets.get(partition):
                held.starts_at_old_commit.add(partition)

    def _reset(self, entry: EventReported) -> None:
        event = entry.event
        assert isinstance(event, OffsetReset)
        held = self.held_generation(entry, event.group_id, event.epoch)
        if held is not None:
            held.start_at(event.partition, event.offset)
            of_old_commit = (event.group_id, event.partition) in self._old_commits
            if of_old_commit and event.skipped and held.assignment is None:
                # It begins where the leader epoch of the old topic's commit ends in the new log.
                held.starts_at_old_commit.add(event.partition)
            else:
                held.reset_at[event.partition] = entry.at

    def _sought(self, entry: SeekCalled) -> None:
        held = self.held_generation(entry, entry.group_id, entry.epoch)
        if held is not None:
            lowest = held.sought.get(entry.partition, entry.offset)
            held.sought[entry.partition] = min(lowest, entry.offset)
            held.chosen[entry.partition].add(entry.offset)
            held.start_at(entry.partition, entry.offset)
            held.processed.pop(entry.partition, None)

    def _skipped(self, entry: RecordsSkipped) -> None:
        held = self.owner(entry)
        if held is not None:
            held.chosen[entry.partition].add(entry.offset)

    def _draining(self, entry: EventReported) -> None:
        if held := self.held_generation(entry, entry.event.group_id, entry.event.epoch):
            held.draining_at = entry.at

    def _ended(self, entry: EventReported) -> None:
        event = entry.event
        assert isinstance(event, GenerationEnded)
        if held := self.held_generation(entry, event.group_id, event.epoch):
            if held.ended is None:
                held.ended, held.ended_at = event, entry.at
            held.over = True

    def _accepted(self, entry: RequestHandled) -> None:
        request = entry.request
        assert isinstance(request, OffsetCommit)
        group_id, member_id = request.group_id, request.member_id
        known = self.acknowledged[group_id]
        held = self.of_member(group_id, member_id, request.generation_id)
        for partition, offset in self._groups.commit.accepted.items():
            key = group_id, partition
            self._accepted_commits[key].append((member_id, offset))
            self._ever_accepted[key].add((member_id, offset))
            if offset < known.get(partition, -1):
                known[partition] = offset
            if held is not None and self.uses_old_positions(held, partition):
                self._old_commits[key] = offset
            else:
                self._old_commits.pop(key, None)

    def _committed(self, entry: EventReported) -> None:
        event = entry.event
        assert isinstance(event, Committed)
        known = self.acknowledged[event.group_id]
        for partition, offset in event.offsets.items():
            self._member_commits[event.group_id, partition][event.member_id].acknowledge(offset)
            accepted = self._accepted_commits[event.group_id, partition]
            since = _last(accepted, (event.member_id, offset))
            if since is None:
                continue  # the topic was deleted since, or a later commit was acknowledged
            del accepted[:since]
            known[partition] = min(one for _, one in accepted)
            del accepted[0]

    def _refused(self, entry: EventReported) -> None:
        event = entry.event
        assert isinstance(event, CommitRefused)
        for partition, offset in event.offsets.items():
            known = self._member_commits[event.group_id, partition][event.member_id]
            known.unconfirmed.add(offset)
        self._no_success(entry)

    def _failed(self, entry: EventReported) -> None:
        event = entry.event
        assert isinstance(event, RequestFailed)
        if event.request == Request.COMMIT.value:
            self._no_success(entry)

    def _no_success(self, entry: EventReported) -> None:
        if held := self.held_generation(entry, entry.event.group_id, entry.event.epoch):
            held.refused = True

    def _handed_out(self, entry: HandedOut) -> None:
        if held := self.held_generation(entry, entry.group_id, entry.epoch):
            held.handed[entry.partition] = max(
                entry.next_offset, held.handed.get(entry.partition, 0)
            )

    def _processed(self, entry: Processed) -> None:
        held = self.owner(entry)
        if held is not None and entry.creation == self._logs.creation(entry.partition.topic):
            held.processed[entry.partition] = entry.offset + 1

    def _topic_changed(self, entry: TopicChanged) -> None:
        if entry.partitions:
            return
        for known in self.acknowledged.values():
            _forget(known, entry.topic)
        for life in self._lives.values():
            for held in life.held_generations.values():
                _forget(held.processed, entry.topic)
        for commits in (self._accepted_commits, self._old_commits, self._member_commits):
            for log in [one for one in commits if one[1].topic == entry.topic]:
                commits.pop(log)


def _forget(known: dict[TopicPartition, int], topic: str) -> None:
    """Remove all partitions of a topic."""
    for partition in [one for one in known if one.topic == topic]:
        del known[partition]


def _last(accepted: list[_Accepted], wanted: _Accepted) -> int | None:
    """The index of the last commit like this one among the accepted ones, or None."""
    return next((n for n in reversed(range(len(accepted))) if accepted[n] == wanted), None)
