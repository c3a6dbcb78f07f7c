"""Which offsets are past their retention.

Source: Kafka's ``OffsetMetadataManager.cleanupExpiredOffsets``,
``ClassicGroup.offsetExpirationCondition``, ``OffsetExpirationConditionImpl``.
"""

from __future__ import annotations

from kgroup.broker.groups.group import ClassicGroup
from kgroup.broker.groups.offset_store import OffsetStore
from kgroup.broker.groups.records import OffsetRecord
from kgroup.broker.groups.states import EMPTY, STABLE
from kgroup.types import TopicPartition


def unused_since(group: ClassicGroup, record: OffsetRecord) -> float | None:
    """The time from which an offset's retention counts, or None while its group may need it."""
    if group.protocol_type is None:
        return record.committed_at
    if group.state is EMPTY:
        return record.committed_at if group.since is None else group.since
    if group.state is STABLE and group.is_of_consumers and group.topics is not None:
        return record.committed_at
    return None


def expired(
    now: float, retention: float, group: ClassicGroup, store: OffsetStore
) -> tuple[TopicPartition, ...]:
    """The partitions of a group whose offsets have expired."""
    pending = store.pending_of(group.group_id)
    return tuple(
        partition
        for partition, record in store.of_group(group.group_id).items()
        if not group.protects(partition.topic)
        and partition not in pending
        and _is_expired(now, retention, unused_since(group, record), record)
    )


def _is_expired(now: float, retention: float, since: float | None, record: OffsetRecord) -> bool:
    if since is None:
        return False
    if record.expires_at is not None:
        return now >= record.expires_at
    return now - since >= retention
