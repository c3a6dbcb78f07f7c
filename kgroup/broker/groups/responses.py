"""What the group coordinator answers: version-neutral values, one class per response.

The server writes of each what the request's version has on the wire, and an empty text where a
version knows no null. Every error is an ``ErrorCode``, whose value is the number on the wire.
"""

from __future__ import annotations

from typing import final

import attrs

from kgroup.broker.groups.requests import Ticket
from kgroup.error_codes import ErrorCode


@final
@attrs.frozen(kw_only=True)
class JoinedMember:
    """A member, as the leader is told of it."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@final
@attrs.frozen(kw_only=True)
class JoinCompleted:
    """The answer to a JoinGroup. ``members`` is filled for the leader only.

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
    """The answer to a SyncGroup. Protocol type and name are on the wire from v5 on."""

    error: ErrorCode = ErrorCode.NONE
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@final
@attrs.frozen(kw_only=True)
class HeartbeatCompleted:
    """The answer to a Heartbeat."""

    error: ErrorCode = ErrorCode.NONE


@final
@attrs.frozen(kw_only=True)
class LeftMember:
    """What became of one member of a LeaveGroup; the ids are those that were sent."""

    member_id: str
    group_instance_id: str | None
    error: ErrorCode = ErrorCode.NONE


@final
@attrs.frozen(kw_only=True)
class LeaveCompleted:
    """The answer to a LeaveGroup; before v3 the one member's error is the answer's."""

    error: ErrorCode = ErrorCode.NONE
    members: tuple[LeftMember, ...] = ()


@final
@attrs.frozen(kw_only=True)
class PartitionResult:
    """What became of one partition of a commit or an offset delete."""

    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE


@final
@attrs.frozen(kw_only=True)
class OffsetsCommitted:
    """The answer to an OffsetCommit and to a TxnOffsetCommit."""

    partitions: tuple[PartitionResult, ...] = ()


@final
@attrs.frozen(kw_only=True)
class FetchedOffset:
    """The committed offset of a partition; offset -1 is none. The epoch is sent from v5 on."""

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
    """The answer to an OffsetFetch: the groups in the order asked for."""

    groups: tuple[FetchedGroup, ...] = ()


@final
@attrs.frozen(kw_only=True)
class OffsetsDeleted:
    """The answer to an OffsetDelete."""

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
    """The answer to a DescribeGroups."""

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
    """The answer to a ListGroups."""

    error: ErrorCode = ErrorCode.NONE
    groups: tuple[ListedGroup, ...] = ()


@final
@attrs.frozen(kw_only=True)
class DeletedGroup:
    """What became of one group of a DeleteGroups."""

    group_id: str
    error: ErrorCode = ErrorCode.NONE


@final
@attrs.frozen(kw_only=True)
class GroupsDeleted:
    """The answer to a DeleteGroups."""

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

    ``response`` None: Kafka never answers this request (an older copy of a repeated parked
    Join or Sync, a leaver's parked Sync, ...). The server forgets the ticket.
    """

    ticket: Ticket
    response: Response | None
