"""The log that a coordinator writes groups and offsets to, as far as it can fail.

What is written is in ``records`` and ``store``.

A group's record is written when it is made by a join, when
its leader syncs, when a static member is replaced in Stable, and when it becomes Empty; what
follows where that fails is in the tables. A write of offsets, a deletion of offsets or of
groups fails as a whole: nothing of it happens, a group that a commit was to make is not made,
and a session that it extended stays extended. What has outlived its retention stays until the
next check.

INVARIANT: a failed write changes what a failover would find in no way.

Source: Kafka's ``GroupMetadataManager.appendGroupMetadataErrorToResponseError``,
``CoordinatorOperationExceptionHelper``, ``CoordinatorRuntime``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from kgroup.error_codes import ErrorCode

#: What a write may fail with.
ERRORS: Final[frozenset[ErrorCode]] = frozenset(
    {
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_FETCH_SIZE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
#: The error of a failed write -> what is answered; any other error is answered as it is.
JOIN_AND_SYNC_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
    ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.RECORD_LIST_TOO_LARGE: ErrorCode.UNKNOWN_SERVER_ERROR,
    ErrorCode.INVALID_FETCH_SIZE: ErrorCode.UNKNOWN_SERVER_ERROR,
}
#: The same for all requests but JoinGroup and SyncGroup.
OTHER_REQUEST_ERRORS: Final[Mapping[ErrorCode, ErrorCode]] = {
    **JOIN_AND_SYNC_ERRORS,
    ErrorCode.NETWORK_EXCEPTION: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
}


@final
class WriteFaults:
    """Whether writes succeed. They do, until they are told to fail."""

    def __init__(self) -> None:
        self._error = ErrorCode.NONE
        self._left: int | None = 0

    def fail(self, error: int, times: int | None) -> None:
        """Let the next writes fail, all to come if ``times`` is None, none if it is 0.

        Raises:
            ValueError: no write fails with this error.
        """
        if error not in ERRORS:
            known = ", ".join(f"{one.name} ({one.value})" for one in sorted(ERRORS))
            raise ValueError(f"a write to the log fails with one of {known}, not with {error}")
        self._error, self._left = ErrorCode(error), times

    @property
    def fails(self) -> bool:
        """Whether the next write fails."""
        return self._left is None or self._left > 0

    def append(self) -> ErrorCode:
        """Write: NONE, or the error of a write that failed."""
        if not self.fails:
            return ErrorCode.NONE
        if self._left is not None:
            self._left -= 1
        return self._error


def join_or_sync_error(error: ErrorCode) -> ErrorCode:
    """What a JoinGroup or SyncGroup is answered with whose write failed."""
    return JOIN_AND_SYNC_ERRORS.get(error, error)


def other_request_error(error: ErrorCode) -> ErrorCode:
    """What any other request is answered with whose write failed; NONE if it did not."""
    return OTHER_REQUEST_ERRORS.get(error, error)
