"""The programs, as they told: which generations they had, what they were handed, what they did."""

from __future__ import annotations

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
from kgroup.testing.simulation.checks.groups import Groups
from kgroup.testing.simulation.checks.logs import Logs
from kgroup.testing.simulation.history import (
    GroupOpened,
    HandedOut,
    Judged,
    ProcessCrashed,
    Processed,
    ProcessEnded,
    ProcessFrozen,
    ProcessStarted,
    ProcessThawed,
    Sought,
    Told,
    TopicChanged,
)
from kgroup.types import TopicPartition

Life = tuple[str, int]
"""A program and the number of its start."""
_Log = tuple[str, TopicPartition]
"""A partition, as one group reads it."""
_Taken = tuple[str, int]
"""A commit that a coordinator accepted: of which member, and the offset."""


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
        sought: for each partition that the program sought, the lowest offset.
        placed: when each partition got a position that no commit gave, last.
        carried: partitions that start where a generation of before their topic was created
            again has committed.
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
    sought: dict[TopicPartition, int] = attrs.field(factory=dict)
    placed: dict[TopicPartition, float] = attrs.field(factory=dict)
    carried: set[TopicPartition] = attrs.field(factory=set)

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
class ProgramViews:
    """All lives of all programs."""

    def __init__(self, groups: Groups, logs: Logs) -> None:
        self._groups = groups
        self._logs = logs
        self._lives: defaultdict[Life, LifeView] = defaultdict(LifeView)
        self._by_member: dict[tuple[str, str, int], Holding] = {}
        self._latest: dict[tuple[str, str], Holding] = {}
        self.acknowledged: Final[defaultdict[str, dict[TopicPartition, int]]] = defaultdict(dict)
        """By group, for each partition the last commit that a program was told of, or a lower one
        that was accepted after it (a program may seek back)."""
        self._taken: Final[defaultdict[_Log, list[_Taken]]] = defaultdict(list)
        self._carried: Final[dict[_Log, int]] = {}
        self.watch_interval = 0.0
        """The longest ``partition_watch_interval`` of any program."""

    def settings(self, held: Holding) -> GroupOpened:
        """The settings of the group that a generation is of."""
        return self._lives[held.life].settings[held.group_id]

    def life(self, process: str, life: int) -> LifeView:
        """One life."""
        return self._lives[process, life]

    def holding(self, fact: Told | HandedOut | Sought, group_id: str, epoch: int) -> Holding | None:
        """The generation that a fact is about, if it is the life's last one in the group."""
        held = self._lives[fact.process, fact.life].holdings.get(group_id)
        return held if held is not None and held.epoch == epoch else None

    def of_member(self, group_id: str, member_id: str, generation_id: int) -> Holding | None:
        """The generation that a member has or had."""
        return self._by_member.get((group_id, member_id, generation_id))

    def latest(self, group_id: str, member_id: str) -> Holding | None:
        """The last generation that a member has or had."""
        return self._latest.get((group_id, member_id))

    def reads_on(self, held: Holding, partition: TopicPartition) -> bool:
        """Whether a generation may have its position from before the topic was created again."""
        again = self._logs.created_again_at(partition.topic)
        if held.placed.get(partition, 0.0) >= again:
            return False
        return held.joined_at <= again or partition in held.carried

    def is_carried(self, group_id: str, partition: TopicPartition) -> bool:
        """Whether the last commit that was accepted is by a generation that `reads_on`."""
        return (group_id, partition) in self._carried

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
            Sought: self._sought,
            Processed: self._processed,
            TopicChanged: self._topic_changed,
            "offset_commit": self._accepted,
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
            carried = self._carried.get((event.group_id, partition))
            if carried is not None and carried == event.positions.get(partition):
                held.carried.add(partition)

    def _reset(self, fact: Told) -> None:
        event = fact.event
        assert isinstance(event, OffsetReset)
        held = self.holding(fact, event.group_id, event.epoch)
        if held is not None:
            held.starts[event.partition] = event.offset
            held.placed[event.partition] = fact.at

    def _sought(self, fact: Sought) -> None:
        held = self.holding(fact, fact.group_id, fact.epoch)
        if held is not None:
            lowest = held.sought.get(fact.partition, fact.offset)
            held.sought[fact.partition] = min(lowest, fact.offset)
            held.starts[fact.partition] = fact.offset
            held.processed.pop(fact.partition, None)

    def _draining(self, fact: Told) -> None:
        if held := self.holding(fact, fact.event.group_id, fact.event.epoch):
            held.draining_at = fact.at

    def _ended(self, fact: Told) -> None:
        event = fact.event
        assert isinstance(event, GenerationEnded)
        if held := self.holding(fact, event.group_id, event.epoch):
            held.ended = held.ended or event
            held.over = True

    def _accepted(self, fact: Judged) -> None:
        request = fact.request
        assert isinstance(request, OffsetCommit)
        group_id, member_id = request.group_id, request.member_id
        known = self.acknowledged[group_id]
        held = self.of_member(group_id, member_id, request.generation_id)
        for partition, offset in self._groups.commit.accepted.items():
            key = group_id, partition
            self._taken[key].append((member_id, offset))
            if offset < known.get(partition, -1):
                known[partition] = offset
            if held is not None and self.reads_on(held, partition):
                self._carried[key] = offset
            else:
                self._carried.pop(key, None)

    def _committed(self, fact: Told) -> None:
        event = fact.event
        assert isinstance(event, Committed)
        known = self.acknowledged[event.group_id]
        for partition, offset in event.offsets.items():
            taken = self._taken[event.group_id, partition]
            since = _last(taken, (event.member_id, offset))
            if since is None:
                continue  # of before the topic was deleted, or another commit has been told of
            del taken[:since]
            known[partition] = min(one for _, one in taken)
            del taken[0]

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
        if held is not None and fact.creation == self._logs.creation(fact.partition.topic):
            held.processed[fact.partition] = fact.offset + 1

    def _topic_changed(self, fact: TopicChanged) -> None:
        if fact.partitions:
            return
        for known in self.acknowledged.values():
            _forget(known, fact.topic)
        for life in self._lives.values():
            for held in life.holdings.values():
                _forget(held.processed, fact.topic)
        for group_id, partition in [one for one in self._taken if one[1].topic == fact.topic]:
            del self._taken[group_id, partition]
            self._carried.pop((group_id, partition), None)


def _forget(known: dict[TopicPartition, int], topic: str) -> None:
    """Take all partitions of a topic out."""
    for partition in [one for one in known if one.topic == topic]:
        del known[partition]


def _last(taken: list[_Taken], wanted: _Taken) -> int | None:
    """Where a commit is among those that were accepted, the last one like it, or None."""
    return next((n for n in reversed(range(len(taken))) if taken[n] == wanted), None)
