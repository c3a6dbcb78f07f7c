"""The requests to the group coordinator: values independent of API versions, one class each.

The server makes them from what came over the wire. ``version`` is the request's API version,
on the requests whose response depends on it. A field that a version lacks on the wire keeps its
default here. Durations are float seconds. Nothing is validated here: a request that Kafka would
refuse is a value like any other.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import final

import attrs

from kgroup.types import TopicPartition

Ticket = Hashable
"""Identifies one request that the server received; the response carries it back."""


@final
@attrs.frozen
class Protocol:
    """A protocol (for consumers: an assignor) that a member supports, and its metadata for it."""

    name: str
    metadata: bytes


@final
@attrs.frozen(kw_only=True)
class JoinGroup:
    """JoinGroup v0 to v9.

    Attributes:
        rebalance_timeout: None in v0, where the session time-out is used instead.
        member_id: empty for a client that has none yet.
        protocols: by preference.
    """

    group_id: str
    version: int
    client_id: str
    client_host: str
    session_timeout: float
    rebalance_timeout: float | None = None
    member_id: str = ""
    group_instance_id: str | None = None
    protocol_type: str = ""
    protocols: tuple[Protocol, ...] = ()
    reason: str | None = None


@final
@attrs.frozen
class MemberAssignment:
    """The leader's assignment for one member, in bytes that only members understand."""

    member_id: str
    assignment: bytes


@final
@attrs.frozen(kw_only=True)
class SyncGroup:
    """SyncGroup v0 to v5; protocol type and name exist from v5 on."""

    group_id: str
    version: int
    generation_id: int
    member_id: str
    group_instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: tuple[MemberAssignment, ...] = ()


@final
@attrs.frozen(kw_only=True)
class Heartbeat:
    """Heartbeat v0 to v4."""

    group_id: str
    generation_id: int
    member_id: str
    group_instance_id: str | None = None


@final
@attrs.frozen(kw_only=True)
class LeavingMember:
    """One member of a LeaveGroup; if the member id is empty, the instance id names it."""

    member_id: str
    group_instance_id: str | None = None
    reason: str | None = None


@final
@attrs.frozen(kw_only=True)
class LeaveGroup:
    """LeaveGroup v0 to v5; before v3 it names exactly one member, by its id."""

    group_id: str
    version: int
    members: tuple[LeavingMember, ...]


@final
@attrs.frozen(kw_only=True)
class OffsetToCommit:
    """The next offset to read of one partition. -1 is Kafka's "none" for the epoch."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str | None = None


@final
@attrs.frozen(kw_only=True)
class OffsetCommit:
    """OffsetCommit v2 to v9.

    Attributes:
        retention_time: how long the offsets are kept, in v2 to v4; None for the broker's own.
    """

    group_id: str
    version: int
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    retention_time: float | None = None
    offsets: tuple[OffsetToCommit, ...] = ()


@final
@attrs.frozen(kw_only=True)
class TxnOffsetCommit:
    """TxnOffsetCommit v0 to v5; generation, member and instance exist from v3 on (KIP-447).

    The server has checked the transaction itself: the producer's epoch, and that the group was
    added to it. Only observers read the epoch here.
    """

    group_id: str
    version: int
    producer_id: int
    producer_epoch: int = -1
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None
    offsets: tuple[OffsetToCommit, ...] = ()


@final
@attrs.frozen(kw_only=True)
class OffsetFetchGroup:
    """One group of an OffsetFetch; ``partitions`` None requests all that have an offset."""

    group_id: str
    partitions: tuple[TopicPartition, ...] | None = None


@final
@attrs.frozen(kw_only=True)
class OffsetFetch:
    """OffsetFetch v1 to v9; one group before v8."""

    version: int
    groups: tuple[OffsetFetchGroup, ...]
    require_stable: bool = False


@final
@attrs.frozen(kw_only=True)
class OffsetDelete:
    """OffsetDelete v0 (KIP-496)."""

    group_id: str
    partitions: tuple[TopicPartition, ...]


@final
@attrs.frozen(kw_only=True)
class DescribeGroups:
    """DescribeGroups v0 to v6."""

    version: int
    group_ids: tuple[str, ...]


@final
@attrs.frozen(kw_only=True)
class ListGroups:
    """ListGroups v0 to v5; an empty filter matches every group."""

    states: tuple[str, ...] = ()
    types: tuple[str, ...] = ()


@final
@attrs.frozen(kw_only=True)
class DeleteGroups:
    """DeleteGroups v0 to v2."""

    group_ids: tuple[str, ...]


Request = (
    JoinGroup
    | SyncGroup
    | Heartbeat
    | LeaveGroup
    | OffsetCommit
    | TxnOffsetCommit
    | OffsetFetch
    | OffsetDelete
    | DescribeGroups
    | ListGroups
    | DeleteGroups
)
