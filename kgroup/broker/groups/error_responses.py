"""The coordinator's response to each request when one error applies to all of it.

These are values of the coordinator. For errors from outside it (an injected one, a version that is
not offered), ``kgroup.broker.error_responses`` has the responses of every API, as they are encoded.

Source: ``getErrorResponse`` of Kafka's requests.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kgroup.broker.groups.requests import (
    DeleteGroups,
    DescribeGroups,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListGroups,
    OffsetCommit,
    OffsetDelete,
    OffsetFetch,
    OffsetFetchGroup,
    OffsetToCommit,
    Request,
    SyncGroup,
    TxnOffsetCommit,
)
from kgroup.broker.groups.responses import (
    DeletedGroup,
    DescribedGroup,
    FetchedGroup,
    FetchedOffset,
    GroupsDeleted,
    GroupsDescribed,
    GroupsListed,
    HeartbeatCompleted,
    JoinCompleted,
    LeaveCompleted,
    OffsetsCommitted,
    OffsetsDeleted,
    OffsetsFetched,
    PartitionResult,
    Response,
    SyncCompleted,
)
from kgroup.error_codes import ErrorCode

_WITHOUT_ECHO: Final = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    }
)
"""Errors of a JoinGroup whose response does not repeat the member id of the request."""
_FIRST_WITH_LOADING: Final = 2
"""Producers before this TxnOffsetCommit version cannot handle COORDINATOR_LOAD_IN_PROGRESS."""
_NOT_LOADING: Final = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: ErrorCode.COORDINATOR_NOT_AVAILABLE}
_FIRST_FETCH_WITH_ERROR: Final = 2
"""The OffsetFetch version from which a group has an error of its own."""


def error_response(request: Request, error: ErrorCode) -> Response:
    """The response to a request that has failed as a whole."""
    return _ERROR_RESPONSES[type(request)](request, error)


def fetch_error_response(version: int, group: OffsetFetchGroup, error: ErrorCode) -> FetchedGroup:
    """The response for one group of an OffsetFetch that has failed."""
    if version >= _FIRST_FETCH_WITH_ERROR:
        return FetchedGroup(group_id=group.group_id, error=error)
    return FetchedGroup(
        group_id=group.group_id,
        partitions=tuple(
            FetchedOffset(topic=one.topic, partition=one.partition, error=error)
            for one in group.partitions or ()
        ),
    )


def commit_errors(
    request: OffsetCommit | TxnOffsetCommit, offsets: tuple[OffsetToCommit, ...], error: ErrorCode
) -> tuple[PartitionResult, ...]:
    """The same error for each of these partitions of a commit."""
    if isinstance(request, TxnOffsetCommit) and request.version < _FIRST_WITH_LOADING:
        error = _NOT_LOADING.get(error, error)
    return tuple(
        PartitionResult(topic=one.topic, partition=one.partition, error=error) for one in offsets
    )


def _join(request: JoinGroup, error: ErrorCode) -> JoinCompleted:
    echo = "" if error in _WITHOUT_ECHO else request.member_id
    return JoinCompleted(error=error, member_id=echo)


def _commit(request: OffsetCommit | TxnOffsetCommit, error: ErrorCode) -> OffsetsCommitted:
    return OffsetsCommitted(partitions=commit_errors(request, request.offsets, error))


def _fetch(request: OffsetFetch, error: ErrorCode) -> OffsetsFetched:
    return OffsetsFetched(
        groups=tuple(
            fetch_error_response(request.version, group, error) for group in request.groups
        )
    )


def _describe(request: DescribeGroups, error: ErrorCode) -> GroupsDescribed:
    return GroupsDescribed(
        groups=tuple(DescribedGroup(group_id=name, error=error) for name in request.group_ids)
    )


def _delete(request: DeleteGroups, error: ErrorCode) -> GroupsDeleted:
    return GroupsDeleted(
        groups=tuple(DeletedGroup(group_id=name, error=error) for name in request.group_ids)
    )


_ERROR_RESPONSES: Final[Mapping[type, Callable[[Any, ErrorCode], Response]]] = {
    JoinGroup: _join,
    SyncGroup: lambda _, error: SyncCompleted(error=error),
    Heartbeat: lambda _, error: HeartbeatCompleted(error=error),
    LeaveGroup: lambda _, error: LeaveCompleted(error=error),
    OffsetCommit: _commit,
    TxnOffsetCommit: _commit,
    OffsetFetch: _fetch,
    OffsetDelete: lambda _, error: OffsetsDeleted(error=error),
    DescribeGroups: _describe,
    ListGroups: lambda _, error: GroupsListed(error=error),
    DeleteGroups: _delete,
}
