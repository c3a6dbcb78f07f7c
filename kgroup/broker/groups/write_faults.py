"""Faults of the coordinator's writes to its log, and the errors that clients get.

``records`` and ``offset_store`` have what is written.

A group's record is written when a join creates the group, when its leader syncs, when a static
member is replaced in Stable, and when the group becomes Empty; the rules above say what follows if
such a write fails. A write of offsets, or a deletion of offsets or of groups, fails as a whole: it
changes nothing, and a group that a commit was to create is not created; a session that the commit
extended stays extended. Offsets that are past their retention stay until the next check.

A group's record, or the offsets of one commit, that are larger than `message.max.bytes` fail with
MESSAGE_TOO_LARGE, as in Kafka; all other faults are injected.

INVARIANT: a failed write never changes what a failover would find.

Source: Kafka's ``GroupMetadataManager.appendGroupMetadataErrorToResponseError``,
``CoordinatorOperationExceptionHelper``, ``CoordinatorRuntime``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from kgroup.broker.groups.record_sizes import MAX_BATCH_BYTES
from kgroup.error_codes import ErrorCode, code_name

#: The errors that a write can fail with.
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
#: The error of a failed write -> the error of the response; any other error stays as it is.
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
    """Decides whether writes succeed; they do without a fault, unless they are too large."""

    def __init__(self, max_batch_bytes: int = MAX_BATCH_BYTES) -> None:
        self._max_batch_bytes = max_batch_bytes
        self._error = ErrorCode.NONE
        self._left: int | None = 0

    def fail(self, error: int, times: int | None) -> None:
        """Let the next writes fail: all if ``times`` is None, none if it is 0.

        Raises:
            ValueError: no write fails with this error.
        """
        if error not in ERRORS:
            known = ", ".join(f"{one.name} ({one.value})" for one in sorted(ERRORS))
            raise ValueError(
                f"a write to the log fails with one of {known}, not with {code_name(error)}"
                f" ({error})"
            )
        self._error, self._left = ErrorCode(error), times

    @property
    def fails(self) -> bool:
        """Whether the next write fails, whatever its size."""
        return self._left is None or self._left > 0

    def refuses(self, size: int) -> bool:
        """Whether a write of so many bytes fails now."""
        return self.fails or size > self._max_batch_bytes

    def append(self, size: int = 0) -> ErrorCode:
        """Write; returns NONE, or the error of a failed write.

        Args:
            size: the bytes; 0 for a write that is never too large.
        """
        if not self.fails:
            too_large = size > self._max_batch_bytes
            return ErrorCode.MESSAGE_TOO_LARGE if too_large else ErrorCode.NONE
        if self._left is not None:
            self._left -= 1
        return self._error


def join_or_sync_error(error: ErrorCode) -> ErrorCode:
    """The error of a JoinGroup or SyncGroup whose write failed."""
    return JOIN_AND_SYNC_ERRORS.get(error, error)


def other_request_error(error: ErrorCode) -> ErrorCode:
    """The error of any other request whose write failed; NONE if it did not fail."""
    return OTHER_REQUEST_ERRORS.get(error, error)
