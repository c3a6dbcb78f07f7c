"""The records of groups and offsets that Kafka writes to its offsets topic.

They outlive a coordinator. A failover loses everything else: pending member ids, parked requests,
generations that are not synced yet.

Source: Kafka's ``GroupMetadataValue`` and ``OffsetCommitValue``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import final

import attrs

from kgroup.types import TopicPartition


@final
@attrs.frozen(kw_only=True)
class MemberRecord:
    """A member in a group's record, with the metadata of the selected protocol only."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout: float
    session_timeout: float
    metadata: bytes
    assignment: bytes


@final
@attrs.frozen(kw_only=True)
class GroupRecord:
    """A group at its last write: its leader synced, it became empty, a static member was replaced.

    Attributes:
        since: when the group entered the state it was in.
    """

    group_id: str
    generation_id: int = 0
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str | None = None
    since: float
    members: tuple[MemberRecord, ...] = ()


@final
@attrs.frozen(kw_only=True)
class OffsetRecord:
    """A committed offset.

    Attributes:
        sequence: the number of the commit among all commits; of two, the later one counts.
        committed_at: when, in the coordinator's time.
        expires_at: when it is deleted, if the commit said so (OffsetCommit v2 to v4).
    """

    offset: int
    leader_epoch: int
    metadata: str
    sequence: int
    committed_at: float
    expires_at: float | None = None


@final
@attrs.frozen(kw_only=True)
class Snapshot:
    """The records of some shards.

    Attributes:
        groups: by group id.
        offsets: by group id and partition, of every group that has had an offset here.
        pending: by producer id, then group id and partition: offsets of open transactions.
    """

    groups: Mapping[str, GroupRecord]
    offsets: Mapping[str, Mapping[TopicPartition, OffsetRecord]]
    pending: Mapping[int, Mapping[str, Mapping[TopicPartition, OffsetRecord]]]
