"""Commits, fetches and deletes of offsets that the group has allowed.

Source: Kafka's ``OffsetMetadataManager`` (``commitOffset``, ``commitTransactionalOffset``,
``fetchOffsets``, ``fetchAllOffsets``, ``deleteOffsets``).
"""

from __future__ import annotations

from kgroup.broker.groups.coordinator_settings import CoordinatorSettings
from kgroup.broker.groups.group import ClassicGroup
from kgroup.broker.groups.java_hashing import utf16_length
from kgroup.broker.groups.offset_store import OffsetStore
from kgroup.broker.groups.records import OffsetRecord
from kgroup.broker.groups.requests import (
    OffsetCommit,
    OffsetFetchGroup,
    OffsetToCommit,
    TxnOffsetCommit,
)
from kgroup.broker.groups.responses import FetchedGroup, FetchedOffset, PartitionResult
from kgroup.error_codes import ErrorCode
from kgroup.types import TopicPartition


def is_too_large(one: OffsetToCommit, settings: CoordinatorSettings) -> bool:
    """Whether an offset's metadata is longer than allowed."""
    return utf16_length(one.metadata or "") > settings.offset_metadata_max_bytes


def commit(
    now: float,
    request: OffsetCommit | TxnOffsetCommit,
    offsets: tuple[OffsetToCommit, ...],
    store: OffsetStore,
    settings: CoordinatorSettings,
) -> tuple[PartitionResult, ...]:
    """Write the offsets of a commit; an offset with too long metadata fails alone."""
    results = []
    for one in offsets:
        error = ErrorCode.NONE
        if is_too_large(one, settings):
            error = ErrorCode.OFFSET_METADATA_TOO_LARGE
        else:
            _write(now, request, one, store)
        results.append(PartitionResult(topic=one.topic, partition=one.partition, error=error))
    return tuple(results)


def _write(
    now: float,
    request: OffsetCommit | TxnOffsetCommit,
    one: OffsetToCommit,
    store: OffsetStore,
) -> None:
    partition = TopicPartition(one.topic, one.partition)
    kept = request.retention_time if isinstance(request, OffsetCommit) else None
    record = OffsetRecord(
        offset=one.offset,
        leader_epoch=one.leader_epoch,
        metadata=one.metadata or "",
        sequence=store.next_sequence(),
        committed_at=now,
        expires_at=None if kept is None else now + kept,
    )
    if isinstance(request, TxnOffsetCommit):
        store.commit_pending(request.producer_id, request.group_id, partition, record)
    else:
        store.commit(request.group_id, partition, record)


def fetch(
    requested: OffsetFetchGroup, group: ClassicGroup | None, store: OffsetStore, *, stable: bool
) -> FetchedGroup:
    """The committed offsets of a group; an absent group has none.

    With ``stable``, offsets that an open transaction may change are answered
    UNSTABLE_OFFSET_COMMIT.
    """
    known = {} if group is None else store.of_group(requested.group_id)
    wanted = known if requested.partitions is None else requested.partitions
    unstable = store.pending_of(requested.group_id) if stable else ()

    def fetched(partition: TopicPartition) -> FetchedOffset:
        topic, number = partition.topic, partition.partition
        if partition in unstable:
            error = ErrorCode.UNSTABLE_OFFSET_COMMIT
            return FetchedOffset(topic=topic, partition=number, error=error)
        record = known.get(partition)
        if record is None:
            return FetchedOffset(topic=topic, partition=number)
        return FetchedOffset(
            topic=topic,
            partition=number,
            offset=record.offset,
            leader_epoch=record.leader_epoch,
            metadata=record.metadata,
        )

    return FetchedGroup(
        group_id=requested.group_id, partitions=tuple(fetched(partition) for partition in wanted)
    )


def deletable(
    group: ClassicGroup, partitions: tuple[TopicPartition, ...], store: OffsetStore
) -> bool:
    """Whether a delete of these partitions would delete any offset."""
    free = [one for one in partitions if not group.protects(one.topic)]
    return store.has_record(group.group_id, free)


def delete(
    group: ClassicGroup, partitions: tuple[TopicPartition, ...], store: OffsetStore
) -> tuple[PartitionResult, ...]:
    """Delete these offsets, except those of topics that members subscribe to (KIP-496)."""
    store.delete(group.group_id, [one for one in partitions if not group.protects(one.topic)])
    results = []
    for partition in partitions:
        protected = group.protects(partition.topic)
        error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if protected else ErrorCode.NONE
        results.append(
            PartitionResult(topic=partition.topic, partition=partition.partition, error=error)
        )
    return tuple(results)
