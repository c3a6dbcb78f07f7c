"""Which offsets have outlived their use.

Source: Kafka's ``OffsetMetadataManager.cleanupExpiredOffsets``,
``ClassicGroup.offsetExpirationCondition``, ``OffsetExpirationConditionImpl``.
"""

from __future__ import annotations

from kgroup.broker.groups.group import Group
from kgroup.broker.groups.records import OffsetRecord
from kgroup.broker.groups.states import EMPTY, STABLE
from kgroup.broker.groups.store import OffsetStore


def unused_since(group: Group, record: OffsetRecord) -> float | None:
    """Since when an offset's retention counts, or None while its group may need it."""
    if group.protocol_type is None:
        return record.committed_at
    if group.state is EMPTY:
        return record.committed_at if group.since is None else group.since
    if group.state is STABLE and group.is_of_consumers and group.topics is not None:
        return record.committed_at
    return None


def drop_expired(now: float, retention: float, group: Group, store: OffsetStore) -> bool:
    """Drop a group's expired offsets; True if the group has nothing left to be kept for."""
    for partition, record in list(store.of_group(group.group_id).items()):
        used = group.protects(partition.topic) or store.is_pending(group.group_id, partition)
        if not used and _is_expired(now, retention, unused_since(group, record), record):
            store.delete(group.group_id, partition)
    return not store.of_group(group.group_id) and not store.has_transaction(group.group_id)


def _is_expired(now: float, retention: float, since: float | None, record: OffsetRecord) -> bool:
    if since is None:
        return False
    if record.expires_at is not None:
        return now >= record.expires_at
    return now - since >= retention
