"""What the offsets topic holds of shards that nobody coordinates at the moment.

Topics are deleted and transactions end also while a group's coordinator is away: what they do
to offsets is done here then, as Kafka does it once the shard has a leader again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import final

from kgroup.broker.groups.offset_store import OffsetStore
from kgroup.broker.groups.records import GroupRecord, Snapshot
from kgroup.types import TopicPartition


@final
class UnloadedShards:
    """Records of groups, from when one coordinator gives them up to when the next takes them."""

    def __init__(self) -> None:
        self._groups: dict[str, GroupRecord] = {}
        self._offsets = OffsetStore()

    def put(self, snapshot: Snapshot) -> None:
        """Keep what a coordinator has written."""
        self._groups.update(snapshot.groups)
        self._offsets.load(snapshot.offsets, snapshot.pending)

    def take(self, wanted: Callable[[str], bool]) -> Snapshot:
        """Give out the records of the groups that are wanted by their ids."""
        snapshot = self.peek(wanted)
        group_ids = list(dict.fromkeys((*snapshot.groups, *self._offsets.group_ids())))
        self._offsets.unload([group_id for group_id in group_ids if wanted(group_id)])
        for group_id in snapshot.groups:
            del self._groups[group_id]
        return snapshot

    def peek(self, wanted: Callable[[str], bool]) -> Snapshot:
        """The records of the groups that are wanted by their ids."""
        offsets, pending = self._offsets.snapshot(
            [group_id for group_id in self._offsets.group_ids() if wanted(group_id)]
        )
        groups = {name: record for name, record in self._groups.items() if wanted(name)}
        return Snapshot(groups=groups, offsets=offsets, pending=pending)

    def delete_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Forget the offsets of partitions that no longer exist."""
        self._offsets.delete_partitions(partitions)

    def complete_transaction(self, producer_id: int, *, committed: bool) -> None:
        """End a producer's transaction."""
        self._offsets.complete(producer_id, committed=committed)
