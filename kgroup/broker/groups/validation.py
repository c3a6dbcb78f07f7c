"""The checks before a group is looked up, and the rules for groups that do not exist.

PRECONDITIONS: for each request the checks in order, with the error of each.
ABSENT_GROUP_RULES: for each request to an absent group the error, or that the group is created.

Source: Kafka's ``GroupCoordinatorService`` and ``KafkaApis``; the catch clauses for
``GroupIdNotFoundException`` in ``GroupMetadataManager`` and ``OffsetMetadataManager``.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from typing import Any, Final, final

import attrs

from kgroup.broker.groups.coordinator_settings import CoordinatorSettings
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
    SyncGroup,
    TxnOffsetCommit,
)
from kgroup.error_codes import ErrorCode

_FIRST_WITH_PROTOCOL: Final = 5
"""The SyncGroup version from which protocol type and name are required (KIP-559)."""
_FIRST_COMMIT_WITH_NOT_FOUND: Final = 9
"""The OffsetCommit version from which an absent group has an error of its own (KIP-848)."""


@final
class Shard(enum.Enum):
    """Whether this broker coordinates a shard, a partition of the offsets topic."""

    ELSEWHERE = "elsewhere"
    LOADING = "loading"
    ACTIVE = "active"


@final
@attrs.frozen(kw_only=True)
class IncomingRequest:
    """A request before its group is looked up, or the part of it that concerns one group."""

    request: Any
    group_id: str
    shard: Shard
    shut_down: bool
    settings: CoordinatorSettings


Precondition = tuple[Callable[[IncomingRequest], bool], ErrorCode]


def is_shut_down(incoming: IncomingRequest) -> bool:
    """The coordinator has been shut down."""
    return incoming.shut_down


def has_no_group_id(incoming: IncomingRequest) -> bool:
    """The group id is empty."""
    return not incoming.group_id


def session_out_of_range(incoming: IncomingRequest) -> bool:
    """The session time-out is below the broker's minimum or above its maximum."""
    limits = incoming.settings
    timeout: float = incoming.request.session_timeout
    return not limits.min_session_timeout <= timeout <= limits.max_session_timeout


def lacks_the_protocol(incoming: IncomingRequest) -> bool:
    """Protocol type or name is missing in a version of SyncGroup that requires them."""
    request: SyncGroup = incoming.request
    return request.version >= _FIRST_WITH_PROTOCOL and (
        request.protocol_type is None or request.protocol_name is None
    )


def is_elsewhere(incoming: IncomingRequest) -> bool:
    """Another broker leads the group's shard."""
    return incoming.shard is Shard.ELSEWHERE


def is_loading(incoming: IncomingRequest) -> bool:
    """The group's shard is being loaded."""
    return incoming.shard is Shard.LOADING


_SHUT_DOWN: Final[Precondition] = (is_shut_down, ErrorCode.COORDINATOR_NOT_AVAILABLE)  # 15
_NO_GROUP: Final[Precondition] = (has_no_group_id, ErrorCode.INVALID_GROUP_ID)  # 24
_ELSEWHERE: Final[Precondition] = (is_elsewhere, ErrorCode.NOT_COORDINATOR)  # 16
_LOADING: Final[Precondition] = (is_loading, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)  # 14

#: For each request the checks in order; the first that holds decides the response.
PRECONDITIONS: Final[Mapping[type, tuple[Precondition, ...]]] = {
    JoinGroup: (
        _SHUT_DOWN,
        _NO_GROUP,
        (session_out_of_range, ErrorCode.INVALID_SESSION_TIMEOUT),  # 26
        _ELSEWHERE,
        _LOADING,
    ),
    SyncGroup: (
        (lacks_the_protocol, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),  # 23
        _SHUT_DOWN,
        _NO_GROUP,
        _ELSEWHERE,
        _LOADING,
    ),
    # A heartbeat only shows that the member lives: a loading shard answers it without an error.
    Heartbeat: (_SHUT_DOWN, _NO_GROUP, _ELSEWHERE, (is_loading, ErrorCode.NONE)),
    LeaveGroup: (_SHUT_DOWN, _NO_GROUP, _ELSEWHERE, _LOADING),
    # Kafka allows the empty group id for offsets, because it once was a valid id there.
    OffsetCommit: (_SHUT_DOWN, _ELSEWHERE, _LOADING),
    TxnOffsetCommit: (_SHUT_DOWN, _NO_GROUP, _ELSEWHERE, _LOADING),
    OffsetFetch: (_SHUT_DOWN, _ELSEWHERE, _LOADING),
    OffsetDelete: (_SHUT_DOWN, _NO_GROUP, _ELSEWHERE, _LOADING),
    DescribeGroups: (_SHUT_DOWN, _ELSEWHERE, _LOADING),
    DeleteGroups: (_SHUT_DOWN, _ELSEWHERE, _LOADING),
    # Groups of other brokers are left out of the list.
    ListGroups: (_SHUT_DOWN, _LOADING),
}


def precondition_error(incoming: IncomingRequest) -> ErrorCode | None:
    """The error of the first check that holds (NONE for a response without error), or None."""
    for holds, error in PRECONDITIONS[type(incoming.request)]:
        if holds(incoming):
            return error
    return None


# Absent groups


def _brings_no_id(request: Any) -> bool:
    """The request has no member id."""
    return not request.member_id


def _brings_no_generation(request: Any) -> bool:
    """The request has no generation."""
    return bool(request.generation_id < 0)


def _knows_not_found(request: Any) -> bool:
    """The version is 9 or later."""
    return bool(request.version >= _FIRST_COMMIT_WITH_NOT_FOUND)


def _always(_: Any) -> bool:
    """In any other case."""
    return True


#: The first condition that holds gives the error, or None if the group is created.
ABSENT_GROUP_RULES: Final[
    Mapping[type, tuple[tuple[Callable[[Any], bool], ErrorCode | None], ...]]
] = {
    JoinGroup: ((_brings_no_id, None), (_always, ErrorCode.UNKNOWN_MEMBER_ID)),
    SyncGroup: ((_always, ErrorCode.UNKNOWN_MEMBER_ID),),
    Heartbeat: ((_always, ErrorCode.UNKNOWN_MEMBER_ID),),
    LeaveGroup: ((_always, ErrorCode.UNKNOWN_MEMBER_ID),),
    OffsetCommit: (
        (_brings_no_generation, None),
        (_knows_not_found, ErrorCode.GROUP_ID_NOT_FOUND),
        (_always, ErrorCode.ILLEGAL_GENERATION),
    ),
    TxnOffsetCommit: (
        (_brings_no_generation, None),
        (_always, ErrorCode.ILLEGAL_GENERATION),
    ),
    OffsetDelete: ((_always, ErrorCode.GROUP_ID_NOT_FOUND),),
    DeleteGroups: ((_always, ErrorCode.GROUP_ID_NOT_FOUND),),
}


def absent_group_error(request: Any) -> ErrorCode | None:
    """The error for a request to an absent group, or None if the request creates the group."""
    return next(error for holds, error in ABSENT_GROUP_RULES[type(request)] if holds(request))
