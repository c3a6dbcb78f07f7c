"""Committed offsets, and the pending ones of open transactions.

Every write is a record at once: a failover loses nothing of it. A group that has a record stays
known until it is deleted, even without offsets: a coordinator that loads the records creates the
group again.

Source: Kafka's ``OffsetMetadataManager`` (``replay``, ``replayEndTransactionMarker``).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import final

from kgroup.broker.groups.records import OffsetRecord
from kgroup.types import TopicPartition

_Offsets = dict[TopicPartition, OffsetRecord]


@final
class OffsetStore:
    """Offsets by group and partition, and pending ones also by producer."""

    def __init__(self, shard_of: Callable[[str], int]) -> None:
        """An empty store; ``shard_of`` says which shard has a group."""
        self._shard_of = shard_of
        self._offsets: dict[str, _Offsets] = {}
        self._pending: dict[int, dict[str, _Offsets]] = {}
        self._pending_of: dict[str, frozenset[TopicPartition]] = {}
        """What ``pending_of`` has found since the last change of pending offsets."""
        self._pending_shards: dict[int, set[int]] = {}
        """The shards of each producer's groups in ``_pending``. To hash many ids takes seconds."""
        self._sequence = 0

    def next_sequence(self) -> int:
        """The sequence number of the next commit."""
        self._sequence += 1
        return self._sequence

    # Reading

    def of_group(self, group_id: str) -> Mapping[TopicPartition, OffsetRecord]:
        """The committed offsets of a group, in the order of their first commits."""
        return self._offsets.get(group_id, {})

    def has_record(self, group_id: str, partitions: Iterable[TopicPartition]) -> bool:
        """Whether any of these partitions has an offset, committed or pending."""
        known, pending = self.of_group(group_id), self.pending_of(group_id)
        return any(partition in known or partition in pending for partition in partitions)

    def pending_of(self, group_id: str) -> Collection[TopicPartition]:
        """The partitions for which open transactions have offsets.

        There can be tens of thousands, and one request can name a group as often. So they are
        collected once, until pending offsets change.
        """
        found = self._pending_of.get(group_id)
        if found is None:
            pending = self._pending.values()
            found = frozenset(one for groups in pending for one in groups.get(group_id, ()))
            if found:  # clients can name any number of groups that have none
                self._pending_of[group_id] = found
        return found

    def has_transaction(self, group_id: str) -> bool:
        """Whether an open transaction has offsets of a group."""
        return any(groups.get(group_id) for groups in self._pending.values())

    def has_written(self, producer_id: int, shard: int) -> bool:
        """Whether a producer's open transaction has written offsets of groups of a shard."""
        return shard in self._pending_shards.get(producer_id, ())

    def group_ids(self) -> list[str]:
        """The groups that have records."""
        return list(self._offsets)

    # Writing

    def commit(self, group_id: str, partition: TopicPartition, record: OffsetRecord) -> None:
        """Commit an offset."""
        self._offsets.setdefault(group_id, {})[partition] = record

    def commit_pending(
        self, producer_id: int, group_id: str, partition: TopicPartition, record: OffsetRecord
    ) -> None:
        """Store an offset that counts when the producer's transaction is committed."""
        self._pending_of.clear()
        self._offsets.setdefault(group_id, {})
        groups = self._pending.setdefault(producer_id, {})
        if group_id not in groups:
            groups[group_id] = {}
            self._note_shards(producer_id, [group_id])
        groups[group_id][partition] = record

    def _note_shards(self, producer_id: int, group_ids: Iterable[str]) -> None:
        self._pending_shards.setdefault(producer_id, set()).update(map(self._shard_of, group_ids))

    def complete(self, producer_id: int, *, committed: bool) -> None:
        """End a producer's transaction. A commit made after the pending one is kept."""
        self._pending_of.clear()
        self._pending_shards.pop(producer_id, None)
        groups = self._pending.pop(producer_id, {})
        if not committed:
            return
        for group_id, offsets in groups.items():
            for partition, record in offsets.items():
                known = self.of_group(group_id).get(partition)
                if known is None or record.sequence > known.sequence:
                    self.commit(group_id, partition, record)

    def delete(self, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        """Delete the offsets of some partitions, pending ones too."""
        self._pending_of.clear()
        gone = set(partitions)
        pending = [groups[group_id] for groups in self._pending.values() if group_id in groups]
        _delete([self._offsets.get(group_id, {}), *pending], gone)

    def delete_group(self, group_id: str) -> None:
        """Delete all offsets of a group."""
        self._pending_of.clear()
        self._offsets.pop(group_id, None)
        for groups in self._pending.values():
            if group_id in groups:
                groups[group_id].clear()

    def delete_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Delete the offsets of some partitions in all groups."""
        self._pending_of.clear()
        gone = set(partitions)
        pending = [offsets for groups in self._pending.values() for offsets in groups.values()]
        _delete([*self._offsets.values(), *pending], gone)

    # Moving between coordinators

    def snapshot(
        self, group_ids: Collection[str]
    ) -> tuple[dict[str, _Offsets], dict[int, dict[str, _Offsets]]]:
        """Copies of some groups' offsets and pending offsets."""
        offsets = {name: dict(self._offsets[name]) for name in group_ids if name in self._offsets}
        pending = {
            producer_id: {name: dict(groups[name]) for name in group_ids if name in groups}
            for producer_id, groups in self._pending.items()
        }
        return offsets, {producer: groups for producer, groups in pending.items() if groups}

    def load(
        self,
        offsets: Mapping[str, Mapping[TopicPartition, OffsetRecord]],
        pending: Mapping[int, Mapping[str, Mapping[TopicPartition, OffsetRecord]]],
    ) -> None:
        """Add the offsets of a ``snapshot``."""
        self._pending_of.clear()
        for group_id, known in offsets.items():
            self._offsets[group_id] = dict(known)
        for producer_id, groups in pending.items():
            mine = self._pending.setdefault(producer_id, {})
            mine.update({group_id: dict(known) for group_id, known in groups.items()})
            self._note_shards(producer_id, groups)
        everything = (
            *(record for known in offsets.values() for record in known.values()),
            *(
                record
                for groups in pending.values()
                for known in groups.values()
                for record in known.values()
            ),
        )
        self._sequence = max(self._sequence, *(record.sequence for record in everything), 0)

    def unload(self, group_ids: Collection[str]) -> None:
        """Remove all groups of some shards, which another coordinator has now."""
        self._pending_of.clear()
        gone = set(map(self._shard_of, group_ids))
        for shards in self._pending_shards.values():
            shards.difference_update(gone)
        for group_id in group_ids:
            self._offsets.pop(group_id, None)
            for groups in self._pending.values():
                groups.pop(group_id, None)
        for producer_id in [one for one, groups in self._pending.items() if not groups]:
            del self._pending[producer_id]
            del self._pending_shards[producer_id]


def _delete(some: Iterable[_Offsets], gone: set[TopicPartition]) -> None:
    for offsets in some:
        for partition in offsets.keys() & gone:
            del offsets[partition]
