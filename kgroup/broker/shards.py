"""The shards of the group coordinator: which broker has each, and how it goes to another.

A shard is a partition of the offsets topic; its leader coordinates the groups whose ids hash to
it. A shard that changes hands is given up by the old coordinator, rests, and is loaded by the
new one: only what Kafka writes down comes along.

INVARIANT: a shard's records are in exactly one place: its coordinator's memory if it is loaded,
else at rest.

Source: Kafka's ``GroupCoordinatorService.onElection``, ``onResignation``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, final

import attrs
import trio

from kgroup.broker.groups.java_hashing import shard_of
from kgroup.broker.groups.records import OffsetRecord
from kgroup.broker.purgatory import GroupPurgatory
from kgroup.broker.replicas import NO_LEADER, PartitionReplicas
from kgroup.broker.unloaded_shards import UnloadedShards
from kgroup.types import TopicPartition


@final
@attrs.frozen
class HandOver:
    """Shards that have a new leader and are not loaded yet: for each its leader epoch."""

    epochs: Mapping[int, int]


@final
class GroupShards:
    """All shards, and the desks of all brokers by node id."""

    def __init__(
        self, replicas: Sequence[PartitionReplicas], purgatories: Mapping[int, GroupPurgatory]
    ) -> None:
        self.replicas: Final = tuple(replicas)
        self._purgatories = purgatories
        self._unloaded = UnloadedShards()

    def shard_of(self, group_id: str) -> int:
        """The shard of a group."""
        return shard_of(group_id, len(self.replicas))

    def replicas_of(self, group_id: str) -> PartitionReplicas:
        """Where a group's shard is."""
        return self.replicas[self.shard_of(group_id)]

    # A change of leaders: give up, change the places, then load.

    def change(
        self,
        shards: Iterable[int],
        elect: Callable[[PartitionReplicas], bool],
        *,
        answer: bool = True,
    ) -> HandOver:
        """Let shards elect their leaders anew; those that changed hands are to be loaded.

        Args:
            shards: which.
            elect: changes a place and says whether its leader has changed.
            answer: whether those who wait at the old coordinator are told NOT_COORDINATOR. One
                that was killed tells nobody.
        """
        left: dict[int, list[int]] = {}
        epochs: dict[int, int] = {}
        for shard in shards:
            replicas = self.replicas[shard]
            old = replicas.leader
            if elect(replicas):
                epochs[shard] = replicas.epoch
                left.setdefault(old, []).append(shard)
        for node_id, given_up in left.items():
            if node_id != NO_LEADER:
                self._unload(self._purgatories[node_id], given_up, answer=answer)
        return HandOver(epochs)

    def move(self, shards: Iterable[int], elect: Callable[[PartitionReplicas], bool]) -> HandOver:
        """As ``change``, and where the leader stays it fails over to itself."""

        def anew(replicas: PartitionReplicas) -> bool:
            if not elect(replicas):
                replicas.epoch += 1
            return True

        return self.change(shards, anew)

    def restart(self) -> HandOver:
        """Let the leader of every shard fail over to itself."""
        return self.move(range(len(self.replicas)), lambda _: False)

    def begin_loading(self, hand_over: HandOver) -> None:
        """The new coordinators have begun to read; requests are told to come again."""
        for node_id, shards in self._led(hand_over).items():
            self._purgatories[node_id].coordinator.begin_loading(shards)

    def load(self, hand_over: HandOver) -> None:
        """The new coordinators have read all records; every session starts anew."""
        for node_id, shards in self._led(hand_over).items():
            wanted = frozenset(shards)
            snapshot = self._unloaded.take(lambda name, w=wanted: self.shard_of(name) in w)  # type: ignore[misc]
            purgatory = self._purgatories[node_id]
            purgatory.coordinator.load(trio.current_time(), snapshot, shards)
            if purgatory.observer is not None:
                purgatory.observer.loaded(shards)
            purgatory.deliver(())

    async def load_after(
        self, hand_over: HandOver, *, away: float = 0.0, loading: float = 0.0
    ) -> None:
        """Load shards once the new coordinators have noticed and read; see ``Broker``.

        Cancellation: they are loaded at once.
        """
        try:
            await trio.sleep(away)
            self.begin_loading(hand_over)
            await trio.sleep(loading)
        finally:
            self.load(hand_over)

    def load_soon(
        self, nursery: trio.Nursery, hand_over: HandOver, *, loading: float = 0.0
    ) -> None:
        """Load shards after a while, at once without one."""
        if loading <= 0:
            self.load(hand_over)
            return
        self.begin_loading(hand_over)
        nursery.start_soon(partial(self._load_later, hand_over, loading))

    async def _load_later(self, hand_over: HandOver, loading: float) -> None:
        await trio.sleep(loading)
        self.load(hand_over)

    def _unload(self, purgatory: GroupPurgatory, shards: Collection[int], *, answer: bool) -> None:
        self._unloaded.put(purgatory.coordinator.snapshot(shards))
        answers = purgatory.coordinator.unload(trio.current_time(), shards)
        told = answers if answer else []
        if purgatory.observer is not None:
            purgatory.observer.unloaded(shards, told)
        purgatory.deliver(told)

    def _led(self, hand_over: HandOver) -> dict[int, list[int]]:
        """Those shards that still have the leader they were handed over to, by leader."""
        led: dict[int, list[int]] = {}
        for shard, epoch in hand_over.epochs.items():
            replicas = self.replicas[shard]
            if replicas.epoch == epoch and replicas.leader != NO_LEADER:
                led.setdefault(replicas.leader, []).append(shard)
        return led

    # What happens to all groups, wherever they are.

    def delete_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Forget the offsets of partitions that no longer exist."""
        self._unloaded.delete_partitions(partitions)
        for purgatory in self._purgatories.values():
            purgatory.coordinator.delete_partitions(partitions)

    def complete_transaction(self, producer_id: int, *, committed: bool) -> None:
        """End a producer's transaction: its pending offsets become committed or vanish."""
        self._unloaded.complete_transaction(producer_id, committed=committed)
        for purgatory in self._purgatories.values():
            purgatory.coordinator.complete_transaction(producer_id, committed=committed)

    def committed(self, group_id: str) -> Mapping[TopicPartition, OffsetRecord]:
        """What a group has committed, whether or not somebody coordinates it now."""
        shard = self.shard_of(group_id)
        leader = self.replicas[shard].leader
        if leader != NO_LEADER:
            offsets = self._purgatories[leader].coordinator.snapshot([shard]).offsets
            if group_id in offsets:
                return offsets[group_id]
        return self._unloaded.peek(lambda name: name == group_id).offsets.get(group_id, {})
