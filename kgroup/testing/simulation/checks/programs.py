"""The programs, as they told: which generations they had, what they were handed, what they did."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, final

import attrs

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
from kgroup.model import TopicPartition
from kgroup.recovery import Request
from kgroup.testing.simulation.checks.groups import Groups
from kgroup.testing.simulation.facts import (
    GroupOpened,
    HandedOut,
    ProcessCrashed,
    Processed,
    ProcessEnded,
    ProcessFrozen,
    ProcessStarted,
    ProcessThawed,
    Told,
    TopicChanged,
)

Life = tuple[str, int]
"""A program and the number of its start."""


@final
@attrs.define(eq=False)
class Holding:
    """One generation, as one life of a program has it.

    Attributes:
        joined_at: when the program heard that it is in the generation.
        committed_then: what was applied at that time.
        assignment: what the program was told that it owns; None before.
        positions: where it was told that each partition starts.
        starts: where each partition starts by anything that it was told.
        handed: for each partition the end of what was handed out.
        processed: for each partition the end of what the program has processed.
        draining_at: when it was told that the end has begun, if it was.
        ended: the event of its end, if it was told so.
        over: whether it has ended, or its program has.
        stood_still: whether the program was frozen in it.
        refused: whether any commit of it had no success, or an unknown one.
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
    handed: dict[TopicPartition, int] = attrs.field(factory=dict)
    processed: dict[TopicPartition, int] = attrs.field(factory=dict)
    draining_at: float | None = None
    ended: GenerationEnded | None = None
    over: bool = False
    stood_still: bool = False
    refused: bool = False

    def __str__(self) -> str:
        return f"{self.life[0]} in generation {self.generation_id}"

    def position(self, partition: TopicPartition) -> int | None:
        """Up to where a commit may go, or None if it was never told where to start."""
        known = [
            offsets[partition] for offsets in (self.starts, self.handed) if partition in offsets
        ]
        return max(known, default=None)


@final
@attrs.define(eq=False)
class LifeView:
    """One life of a program.

    Attributes:
        over: whether it has ended or crashed.
        frozen: whether it stands still.
        thawed_at: when it went on last, 0 if it never stood still.
        holdings: its last generation in each of its groups.
        member_ids: those that it has had, in each of its groups.
        groups: of which group each partition is to it.
        settings: those of each of its groups.
    """

    group_instance_id: str | None = None
    over: bool = False
    frozen: bool = False
    thawed_at: float = 0.0
    holdings: dict[str, Holding] = attrs.field(factory=dict)
    member_ids: defaultdict[str, set[str]] = attrs.field(factory=lambda: defaultdict(set))
    groups: dict[TopicPartition, Holding] = attrs.field(factory=dict)
    settings: dict[str, GroupOpened] = attrs.field(factory=dict)


@final
class Programs:
    """All lives of all programs."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._lives: defaultdict[Life, LifeView] = defaultdict(LifeView)
        self._by_member: dict[tuple[str, str, int], Holding] = {}
        self._latest: dict[tuple[str, str], Holding] = {}
        self.acknowledged: Final[defaultdict[str, dict[TopicPartition, int]]] = defaultdict(dict)
        """By group, for each partition the highest commit that a program was told of."""
        self.watch_interval = 0.0
        """The longest ``partition_watch_interval`` of any program."""

    def settings(self, held: Holding) -> GroupOpened:
        """The settings of the group that a generation is of."""
        return self._lives[held.life].settings[held.group_id]

    def life(self, process: str, life: int) -> LifeView:
        """One life."""
        return self._lives[process, life]

    def holding(self, fact: Told | HandedOut, group_id: str, epoch: int) -> Holding | None:
        """The generation that a fact is about, if it is the life's last one in the group."""
        held = self._lives[fact.process, fact.life].holdings.get(group_id)
        return held if held is not None and held.epoch == epoch else None

    def of_member(self, group_id: str, member_id: str, generation_id: int) -> Holding | None:
        """The generation that a member has or had."""
        return self._by_member.get((group_id, member_id, generation_id))

    def latest(self, group_id: str, member_id: str) -> Holding | None:
        """The last generation that a member has or had."""
        return self._latest.get((group_id, member_id))

    @property
    def reactions(self) -> Mapping[type[object] | str, Callable[[Any], None]]:
        """What is done with each kind of fact."""
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
            Processed: self._processed,
            TopicChanged: self._topic_changed,
        }

    def _started(self, fact: ProcessStarted) -> None:
        self._lives[fact.process, fact.life].group_instance_id = fact.group_instance_id

    def _opened(self, fact: GroupOpened) -> None:
        self._lives[fact.process, fact.life].settings[fact.group_id] = fact
        self.watch_interval = max(self.watch_interval, fact.partition_watch_interval)

    def _over(self, fact: ProcessEnded | ProcessCrashed) -> None:
        life = self._lives[fact.process, fact.life]
        life.over = True
        for held in life.holdings.values():
            held.over = True

    def _frozen(self, fact: ProcessFrozen) -> None:
        life = self._lives[fact.process, fact.life]
        life.frozen = True
        for held in life.holdings.values():
            held.stood_still = True

    def _thawed(self, fact: ProcessThawed) -> None:
        life = self._lives[fact.process, fact.life]
        life.frozen, life.thawed_at = False, fact.at

    def _joined(self, fact: Told) -> None:
        event = fact.event
        held = Holding(
            (fact.process, fact.life),
            event.group_id,
            event.member_id,
            event.generation_id,
            event.epoch,
            fact.at,
            dict(self._groups[event.group_id].applied),
        )
        life = self._lives[fact.process, fact.life]
        life.holdings[event.group_id] = held
        life.member_ids[event.group_id].add(event.member_id)
        self._by_member[event.group_id, event.member_id, event.generation_id] = held
        self._latest[event.group_id, event.member_id] = held

    def _assigned(self, fact: Told) -> None:
        event = fact.event
        assert isinstance(event, Assigned)
        held = self.holding(fact, event.group_id, event.epoch)
        if held is None:
            return
        held.assignment = frozenset(event.assignment)
        held.positions = event.positions
        held.starts.update(event.positions)
        for partition in held.assignment:
            self._lives[held.life].groups[partition] = held

    def _reset(self, fact: Told) -> None:
        event = fact.event
        assert isinstance(event, OffsetReset)
        held = self.holding(fact, event.group_id, event.epoch)
        if held is not None:
            held.starts[event.partition] = event.offset

    def _draining(self, fact: Told) -> None:
        if held := self.holding(fact, fact.event.group_id, fact.event.epoch):
            held.draining_at = fact.at

    def _ended(self, fact: Told) -> None:
        event = fact.event
        assert isinstance(event, GenerationEnded)
        if held := self.holding(fact, event.group_id, event.epoch):
            held.ended = held.ended or event
            held.over = True

    def _committed(self, fact: Told) -> None:
        event = fact.event
        assert isinstance(event, Committed)
        known = self.acknowledged[event.group_id]
        for partition, offset in event.offsets.items():
            if offset > known.get(partition, -1):
                known[partition] = offset

    def _refused(self, fact: Told) -> None:
        if held := self.holding(fact, fact.event.group_id, fact.event.epoch):
            held.refused = True

    def _failed(self, fact: Told) -> None:
        event = fact.event
        assert isinstance(event, RequestFailed)
        if event.request == Request.COMMIT.value:
            self._refused(fact)

    def _handed_out(self, fact: HandedOut) -> None:
        if held := self.holding(fact, fact.group_id, fact.epoch):
            held.handed[fact.partition] = max(fact.next_offset, held.handed.get(fact.partition, 0))

    def _processed(self, fact: Processed) -> None:
        held = self._lives[fact.process, fact.life].groups.get(fact.partition)
        if held is not None:
            held.processed[fact.partition] = fact.offset + 1

    def _topic_changed(self, fact: TopicChanged) -> None:
        if fact.partitions:
            return
        for known in self.acknowledged.values():
            for partition in [one for one in known if one.topic == fact.topic]:
                del known[partition]
