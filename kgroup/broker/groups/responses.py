"""The responses of the group coordinator: values independent of API versions, one class each.

The server sends the fields that the request's version has on the wire, and an empty text where a
version has no null. Every error is an ``ErrorCode``, whose value is the number on the wire.
"""

from __future__ import annotations

from typing import final

import attrs

from kgroup.broker.groups.requests import Ticket
from kgroup.error_codes import ErrorCode


@final
@attrs.frozen(kw_only=True)
class JoinedMember:
    """A member, as the response to the leader lists it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@final
@attrs.frozen(kw_only=True)
class JoinCompleted:
    """The response to a JoinGroup. ``members`` is filled for the leader only.

    ``protocol_type`` is on the wire from v7 on, ``skip_assignment`` from v9 on.
    """

    error: ErrorCode = ErrorCode.NONE
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    member_id: str = ""
    members: tuple[JoinedMember, ...] = ()


@final
@attrs.frozen(kw_only=True)
class SyncCompleted:
    """The response to a SyncGroup. Protocol type and name are on the wire from v5 on."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@final
@attrs.frozen(kw_only=True)
class HeartbeatCompleted:
    """The response to a Heartbeat."""

    error: ErrorCode = ErrorCode.NONE


@final
@attrs.frozen(kw_only=True)
class LeftMember:
    """The result for one member of a LeaveGroup; the ids are those of the request."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode = ErrorCode.NONE


@final
@attrs.frozen(kw_only=True)
class LeaveCompleted:
    """The response to a LeaveGroup; before v3 the error is that of the one member."""

    error: ErrorCode = ErrorCode.NONE
    members: tuple[LeftMember, ...] = ()


@final
@attrs.frozen(kw_only=True)
class PartitionResult:
    """The result for one partition of a commit or an offset delete."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE


@final
@attrs.frozen(kw_only=True)
class OffsetsCommitted:
    """The response to an OffsetCommit and to a TxnOffsetCommit."""

    partitions: tuple[PartitionResult, ...] = ()


@final
@attrs.frozen(kw_only=True)
class FetchedOffset:
    """The committed offset of a partition, -1 for none. The epoch is on the wire from v5 on."""

    topic: str
    partition: int
    offset: int = -1
    leader_epoch: int = -1
    metadata: str = ""
    error: ErrorCode = ErrorCode.NONE


@final
@attrs.frozen(kw_only=True)
class FetchedGroup:
    """The committed offsets of one group; its error is on the wire from v2 on."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[FetchedOffset, ...] = ()


@final
@attrs.frozen(kw_only=True)
class OffsetsFetched:
    """The response to an OffsetFetch: the groups in the order of the request."""

    groups: tuple[FetchedGroup, ...] = ()


@final
@attrs.frozen(kw_only=True)
class OffsetsDeleted:
    """The response to an OffsetDelete."""

    error: ErrorCode = ErrorCode.NONE
    partitions: tuple[PartitionResult, ...] = ()


@final
@attrs.frozen(kw_only=True)
class DescribedMember:
    """A member in a description; the instance id is on the wire from v4 on."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    metadata: bytes = b""
    assignment: bytes = b""


@final
@attrs.frozen(kw_only=True)
class DescribedGroup:
    """A group's description; ``error_message`` is on the wire from v6 on."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE
    error_message: str | None = None
    state: str = ""
    protocol_type: str = ""
    protocol_name: str = ""
    members: tuple[DescribedMember, ...] = ()


@final
@attrs.frozen(kw_only=True)
class GroupsDescribed:
    """The response to a DescribeGroups."""

    groups: tuple[DescribedGroup, ...] = ()


@final
@attrs.frozen(kw_only=True)
class ListedGroup:
    """A group in a list; ``state`` is on the wire from v4 on, ``type`` from v5 on."""

    group_id: str
    protocol_type: str
    state: str
    type: str


@final
@attrs.frozen(kw_only=True)
class GroupsListed:
    """The response to a ListGroups."""

    error: ErrorCode = ErrorCode.NONE
    groups: tuple[ListedGroup, ...] = ()


@final
@attrs.frozen(kw_only=True)
class DeletedGroup:
    """The result for one group of a DeleteGroups."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE


@final
@attrs.frozen(kw_only=True)
class GroupsDeleted:
    """The response to a DeleteGroups."""

    groups: tuple[DeletedGroup, ...] = ()


Response = (
    JoinCompleted
    | SyncCompleted
    | HeartbeatCompleted
    | LeaveCompleted
    | OffsetsCommitted
    | OffsetsFetched
    | OffsetsDeleted
    | GroupsDescribed
    | GroupsListed
    | GroupsDeleted
)


@final
@attrs.frozen
class CoordinatorResponse:
    """The response to one request.

    ``response`` None: Kafka never answers this request (an older copy of a repeated parked Join or
    Sync, the parked Sync of a member that left). The server forgets the ticket.
    """

    ticket: Ticket
    response: Response | None
