"""The shards of the group coordinator: which broker has each, and how it moves to another.

A shard is a partition of the offsets topic; its leader coordinates the groups whose ids hash to
it. When its leader changes, the old coordinator unloads the shard and the new one loads it: only
the records that Kafka writes to its log move along.

INVARIANT: the records of a shard are in exactly one place: with its coordinator while it is loaded,
else in ``UnloadedShards``.

Source: Kafka's ``GroupCoordinatorService.onElection``, ``onResignation``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from typing import Final, final

import attrs
import trio

from kgroup.broker.groups.java_hashing import shard_of
from kgroup.broker.groups.offset_store import OffsetStore
from kgroup.broker.groups.records import GroupRecord, OffsetRecord, Snapshot
from kgroup.broker.purgatory import GroupPurgatory
from kgroup.broker.replicas import NO_LEADER, PartitionReplicas
from kgroup.types import TopicPartition


@final
@attrs.frozen
class HandOver:
    """Shards that have a new leader and are not loaded yet: for each its leader epoch."""

    epochs: Mapping[int, int]


@final
class UnloadedShards:
    """The records of shards that no broker has loaded at the moment.

    Topics are deleted and transactions end also while a group has no coordinator. What this does
    to offsets is done here; Kafka does it when the shard has a leader again.
    """

    def __init__(self, shard_of: Callable[[str], int]) -> None:
        self._groups: dict[str, GroupRecord] = {}
        self._offsets = OffsetStore(shard_of)

    def put(self, snapshot: Snapshot) -> None:
        """Add the records of a coordinator."""
        self._groups.update(snapshot.groups)
        self._offsets.load(snapshot.offsets, snapshot.pending)

    def take(self, wanted: Callable[[str], bool]) -> Snapshot:
        """Remove and return the records of the groups whose ids are wanted."""
        snapshot = self.peek(wanted)
        group_ids = list(dict.fromkeys((*snapshot.groups, *self._offsets.group_ids())))
        self._offsets.unload([group_id for group_id in group_ids if wanted(group_id)])
        for group_id in snapshot.groups:
            del self._groups[group_id]
        return snapshot

    def peek(self, wanted: Callable[[str], bool]) -> Snapshot:
        """The records of the groups whose ids are wanted."""
        offsets, pending = self._offsets.snapshot(
            [group_id for group_id in self._offsets.group_ids() if wanted(group_id)]
        )
        groups = {name: record for name, record in self._groups.items() if wanted(name)}
        return Snapshot(groups=groups, offsets=offsets, pending=pending)

    def delete_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Delete the offsets of partitions that no longer exist."""
        self._offsets.delete_partitions(partitions)

    def complete_transaction(self, producer_id: int, *, committed: bool) -> None:
        """End a producer's transaction: its pending offsets are committed or dropped."""
        self._offsets.complete(producer_id, committed=committed)


@final
class GroupShards:
    """All shards, and the purgatories of all brokers by node id."""

    def __init__(
        self, replicas: Sequence[PartitionReplicas], purgatories: Mapping[int, GroupPurgatory]
    ) -> None:
        self.replicas: Final = tuple(replicas)
        self._purgatories = purgatories
        self._unloaded = UnloadedShards(self.shard_of)

    def shard_of(self, group_id: str) -> int:
        """The shard of a group."""
        return shard_of(group_id, len(self.replicas))

    def replicas_of(self, group_id: str) -> PartitionReplicas:
        """The replicas of a group's shard."""
        return self.replicas[self.shard_of(group_id)]

    # A change of leaders: elect, unload, then load.

    def change(
        self,
        shards: Iterable[int],
        elect: Callable[[PartitionReplicas], bool],
        *,
        answer: bool = True,
    ) -> HandOver:
        """Elect the leaders of shards again, and unload the shards whose leader has changed.

        Args:
            shards: which.
            elect: changes the replicas of a shard and returns whether its leader has changed.
            answer: whether requests parked at the old coordinator are answered NOT_COORDINATOR. A
                broker that was killed answers none.

        Returns:
            the shards that their new leaders must load.
        """
        unloaded: dict[int, list[int]] = {}
        epochs: dict[int, int] = {}
        for shard in shards:
            replicas = self.replicas[shard]
            old = replicas.leader
            if elect(replicas):
                epochs[shard] = replicas.epoch
                unloaded.setdefault(old, []).append(shard)
        for node_id, its_shards in unloaded.items():
            if node_id != NO_LEADER:
                self._unload(self._purgatories[node_id], its_shards, answer=answer)
        return HandOver(epochs)

    def move(self, shards: Iterable[int], elect: Callable[[PartitionReplicas], bool]) -> HandOver:
        """As ``change``; a leader that stays fails over to itself."""

        def elect_or_raise_epoch(replicas: PartitionReplicas) -> bool:
            if not elect(replicas):
                replicas.epoch += 1
            return True

        return self.change(shards, elect_or_raise_epoch)

    def restart(self) -> HandOver:
        """Let the leader of every shard fail over to itself."""
        return self.move(range(len(self.replicas)), lambda _: False)

    def begin_loading(self, hand_over: HandOver) -> None:
        """Begin to load: the new coordinators answer COORDINATOR_LOAD_IN_PROGRESS."""
        for node_id, shards in self._led(hand_over).items():
            self._purgatories[node_id].coordinator.begin_loading(shards)

    def load(self, hand_over: HandOver) -> None:
        """Load all records into the new coordinators; every member's session starts again."""
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
        """Load shards after two waits; see ``BrokerAdmin.restart_coordinator``.

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
        """Load shards after ``loading`` seconds, at once if that is 0."""
        if loading <= 0:
            self.load(hand_over)
            return
        self.begin_loading(hand_over)
        nursery.start_soon(partial(self._load_later, hand_over, loading))

    @trio.lowlevel.enable_ki_protection
    async def _load_later(self, hand_over: HandOver, loading: float) -> None:
        await trio.sleep(loading)
        self.load(hand_over)

    def _unload(self, purgatory: GroupPurgatory, shards: Collection[int], *, answer: bool) -> None:
        self._unloaded.put(purgatory.coordinator.snapshot(shards))
        responses = purgatory.coordinator.unload(trio.current_time(), shards)
        delivered = responses if answer else []
        if purgatory.observer is not None:
            purgatory.observer.unloaded(shards, delivered)
        purgatory.deliver(delivered)

    def _led(self, hand_over: HandOver) -> dict[int, list[int]]:
        """The shards whose leader has not changed again since the hand-over, by leader."""
        led: dict[int, list[int]] = {}
        for shard, epoch in hand_over.epochs.items():
            replicas = self.replicas[shard]
            if replicas.epoch == epoch and replicas.leader != NO_LEADER:
                led.setdefault(replicas.leader, []).append(shard)
        return led

    # Changes to all groups, loaded or not.

    def delete_partitions(self, partitions: Collection[TopicPartition]) -> None:
        """Delete the offsets of partitions that no longer exist."""
        self._unloaded.delete_partitions(partitions)
        for purgatory in self._purgatories.values():
            purgatory.coordinator.delete_partitions(partitions)

    def complete_transaction(self, producer_id: int, *, committed: bool) -> None:
        """End a producer's transaction: its pending offsets become committed or vanish."""
        self._unloaded.complete_transaction(producer_id, committed=committed)
        for purgatory in self._purgatories.values():
            purgatory.coordinator.complete_transaction(producer_id, committed=committed)

    def committed(self, group_id: str) -> Mapping[TopicPartition, OffsetRecord]:
        """The offsets that a group has committed, whether or not a broker coordinates it now."""
        shard = self.shard_of(group_id)
        leader = self.replicas[shard].leader
        if leader != NO_LEADER:
            offsets = self._purgatories[leader].coordinator.snapshot([shard]).offsets
            if group_id in offsets:
                return offsets[group_id]
        return self._unloaded.peek(lambda name: name == group_id).offsets.get(group_id, {})
