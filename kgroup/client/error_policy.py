"""The error policy: one table that says how kgroup reacts to each failure of each request.

A row of ``REACTIONS`` is a request and its failure: an error code in the response, or a
``TransportFailure`` if there is no valid response. A timeout before the request was sent counts as
a lost connection: the broker cannot act on it later. The ``Reaction`` says everything that kgroup
does about it, so that no other code branches on error codes. A code that has no row gets the
request's reaction in ``OTHERWISE``.

To add an error code, which ``kgroup.error_codes`` gets from kio: add its row here, add to
``_HINTS`` in ``kgroup.client.broker_errors`` what the reader of the error can do, and regenerate
docs/recovery.md. Errors of Fetch are not here: librdkafka fetches, and ``ERROR_ACTIONS`` in
``kgroup.records.librdkafka_messages`` is the table of its errors.

Read the table beside Kafka's ``AbstractCoordinator`` (join, sync, heartbeat, leave) and
``ConsumerCoordinator`` (commit, offset fetch). Comments give the reason where kgroup reacts in
another way.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Mapping
from typing import Final, final

import attrs

from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    ConnectionLostError,
    FatalGroupError,
    FencedInstanceError,
    GroupFullError,
    InconsistentProtocolError,
    ProtocolError,
    RequestTimeoutError,
    TransportError,
)
from kgroup.types import Cause


@final
class Request(enum.Enum):
    """The requests that have rows in the table, by Kafka's names."""

    FIND_COORDINATOR = "FindCoordinator"
    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    DESCRIBE = "DescribeGroups"
    HEARTBEAT = "Heartbeat"
    COMMIT = "OffsetCommit"
    FETCH_OFFSETS = "OffsetFetch"
    LEAVE = "LeaveGroup"
    LIST_OFFSETS = "ListOffsets"
    EPOCH_ENDS = "OffsetForLeaderEpoch"
    METADATA = "Metadata"


@final
class TransportFailure(enum.Enum):
    """Why a request has no valid response."""

    LOST = "connection lost"
    TIMED_OUT = "timeout"
    INVALID = "invalid response"


@final
class Action(enum.Enum):
    """What kgroup does after a failure."""

    RETRY = "send the request again"
    REJOIN = "join the group again"
    DRAIN = "finish and commit the current work, then join the group again"
    LOST = "give up the partitions immediately, then join the group again"
    FAIL = "close the group with an error"
    REFUSE = "raise the error in the call that sent the request"
    IGNORE = "continue without it"


@final
class MemberId(enum.Enum):
    """With which member id the member joins next."""

    KEEP = "with the same member id"
    TAKE = "with the member id from the response"
    DROP = "as a new member"


@final
class Wait(enum.Enum):
    """Whether to back off first."""

    NO = "no backoff"
    IF_REPEATED = "a backoff from the second failure on"
    YES = "a backoff"


@final
@attrs.frozen
class Reaction:
    """Everything that kgroup does about one failure.

    Attributes:
        action: what kgroup does.
        member_id: with which member id the member joins next.
        wait: whether to back off first.
        find: whether to look up the receiver first, since it may be another broker now: the
            group's coordinator, or a partition's leader.
        leave: whether to send LeaveGroup for the member id before it is dropped, so that the
            group does not wait for a member that no longer exists.
        retry_for: the seconds after the first failure for which the action is RETRY; after them it
            is REFUSE. Only that of a commit may be limited.
        cause: the cause with which the failure ends a generation.
        error: the exception class if the action is FAIL.
    """

    action: Action
    member_id: MemberId = MemberId.KEEP
    wait: Wait = Wait.NO
    find: bool = False
    leave: bool = False
    retry_for: float = math.inf
    cause: Cause | None = None
    error: type[FatalGroupError] = FatalGroupError

    @property
    def loses_generation(self) -> bool:
        """Whether the generation is lost at once, so that nothing of it can be committed."""
        return self.action in (Action.LOST, Action.FAIL)

    def __str__(self) -> str:
        text = self.action.value
        if self.retry_for < math.inf:
            text += f" for {self.retry_for:g} s"
        if self.member_id is not MemberId.KEEP:
            text += f" {self.member_id.value}"
        steps = []
        if self.leave:
            steps.append("a LeaveGroup for the old member id")
        if self.find:
            steps.append("a new lookup of the broker")
        if self.wait is not Wait.NO:
            steps.append(self.wait.value)
        *most, last = steps or [""]
        after = f"{', '.join(most)} and {last}" if most else last
        return f"{text}, after {after}" if after else text


_FENCED: Final = Reaction(Action.FAIL, cause=Cause.FENCED, error=FencedInstanceError)
_FORBIDDEN: Final = Reaction(Action.FAIL, cause=Cause.MEMBERSHIP_LOST, error=AuthorizationError)
_UNAUTHENTICATED: Final = Reaction(
    Action.FAIL, cause=Cause.MEMBERSHIP_LOST, error=AuthenticationError
)
_IMPOSSIBLE: Final = Reaction(Action.FAIL, cause=Cause.MEMBERSHIP_LOST)
_START_OVER: Final = Reaction(Action.REJOIN, MemberId.DROP, Wait.YES, find=True, leave=True)
"""For failures that kgroup does not understand: leave, back off and start over, as kafka-go, with
the broker that is the coordinator by then."""
_UNKNOWN_MEMBER: Final = Reaction(
    Action.LOST, MemberId.DROP, Wait.IF_REPEATED, cause=Cause.MEMBERSHIP_LOST
)
_STALE: Final = Reaction(Action.LOST, wait=Wait.IF_REPEATED, cause=Cause.MEMBERSHIP_LOST)
_RETRY: Final = Reaction(Action.RETRY, wait=Wait.YES)
_RETRY_AFTER_LOOKUP: Final = Reaction(Action.RETRY, wait=Wait.YES, find=True)
_RETRY_MOVED: Final = Reaction(Action.RETRY, wait=Wait.IF_REPEATED, find=True)
_REJOIN_AFTER_LOOKUP: Final = Reaction(Action.REJOIN, wait=Wait.YES, find=True)
_REJOIN_MOVED: Final = Reaction(Action.REJOIN, wait=Wait.IF_REPEATED, find=True)
_REJOIN: Final = Reaction(Action.REJOIN, wait=Wait.IF_REPEATED)
_REBALANCE: Final = Reaction(Action.REJOIN, wait=Wait.IF_REPEATED, cause=Cause.REBALANCE)
"""The leader cannot learn which topics the assignment covers: it lets the group rebalance once."""
UNKNOWN_FOR: Final = 5.0
"""Seconds for which a topic may be unknown to a coordinator before it counts as deleted, as it does
for the partition watcher."""
_REFUSE: Final = Reaction(Action.REFUSE)
_IGNORE: Final = Reaction(Action.IGNORE)

#: The table. INVARIANT: every failure of a request has exactly one reaction, here or in OTHERWISE.
REACTIONS: Final[Mapping[Request, Mapping[ErrorCode | TransportFailure, Reaction]]] = {
    Request.FIND_COORDINATOR: {
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _RETRY,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
        ErrorCode.UNKNOWN_SERVER_ERROR: _RETRY,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _FORBIDDEN,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _FORBIDDEN,
        ErrorCode.INVALID_GROUP_ID: _IMPOSSIBLE,
        ErrorCode.INVALID_REQUEST: _IMPOSSIBLE,
        ErrorCode.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        TransportFailure.LOST: _RETRY,
        TransportFailure.TIMED_OUT: _RETRY,
        TransportFailure.INVALID: _RETRY,
    },
    Request.JOIN: {
        # KIP-394: the coordinator has reserved the id and waits for the second join.
        ErrorCode.MEMBER_ID_REQUIRED: Reaction(Action.REJOIN, MemberId.TAKE, Wait.IF_REPEATED),
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction(Action.REJOIN, MemberId.DROP, Wait.IF_REPEATED),
        ErrorCode.ILLEGAL_GENERATION: _REJOIN,
        ErrorCode.REBALANCE_IN_PROGRESS: _REJOIN,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction(Action.REJOIN, wait=Wait.YES),
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _REJOIN_AFTER_LOOKUP,
        ErrorCode.NOT_COORDINATOR: _REJOIN_MOVED,
        ErrorCode.REQUEST_TIMED_OUT: _REJOIN_AFTER_LOOKUP,
        ErrorCode.UNKNOWN_SERVER_ERROR: _START_OVER,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED: Reaction(Action.REJOIN, wait=Wait.YES),
        ErrorCode.FENCED_INSTANCE_ID: _FENCED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: Reaction(
            Action.FAIL, error=InconsistentProtocolError
        ),
        ErrorCode.GROUP_MAX_SIZE_REACHED: Reaction(Action.FAIL, error=GroupFullError),
        ErrorCode.INVALID_SESSION_TIMEOUT: _IMPOSSIBLE,
        ErrorCode.INVALID_GROUP_ID: _IMPOSSIBLE,
        ErrorCode.INVALID_REQUEST: _IMPOSSIBLE,
        ErrorCode.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _FORBIDDEN,
        TransportFailure.LOST: _REJOIN_MOVED,
        # The coordinator may be a frozen broker; other brokers know the new coordinator.
        TransportFailure.TIMED_OUT: _REJOIN_MOVED,
        TransportFailure.INVALID: _REJOIN_AFTER_LOOKUP,
    },
    Request.SYNC: {
        # The other members wait for this member's JoinGroup, so there is never a backoff here.
        # ``Member._pace`` limits the rate of joins, so that they cannot become a storm.
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction(Action.REJOIN, cause=Cause.REBALANCE),
        ErrorCode.ILLEGAL_GENERATION: _REJOIN,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction(Action.REJOIN, MemberId.DROP, Wait.IF_REPEATED),
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction(Action.REJOIN, wait=Wait.YES),
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _REJOIN_AFTER_LOOKUP,
        ErrorCode.NOT_COORDINATOR: _REJOIN_MOVED,
        ErrorCode.REQUEST_TIMED_OUT: _REJOIN_AFTER_LOOKUP,
        ErrorCode.UNKNOWN_SERVER_ERROR: _START_OVER,
        ErrorCode.FENCED_INSTANCE_ID: _FENCED,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL: Reaction(
            Action.FAIL, error=InconsistentProtocolError
        ),
        ErrorCode.INVALID_GROUP_ID: _IMPOSSIBLE,
        ErrorCode.INVALID_REQUEST: _IMPOSSIBLE,
        ErrorCode.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _FORBIDDEN,
        TransportFailure.LOST: _REJOIN_MOVED,
        TransportFailure.TIMED_OUT: _REJOIN_MOVED,
        TransportFailure.INVALID: _REJOIN_AFTER_LOOKUP,
    },
    # Only a leader that takes over an existing assignment sends it. Joining again is always safe:
    # the next assignment is computed from the current topics.
    Request.DESCRIBE: {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _RETRY_AFTER_LOOKUP,
        ErrorCode.NOT_COORDINATOR: _RETRY_MOVED,
        ErrorCode.GROUP_ID_NOT_FOUND: _REBALANCE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _REBALANCE,
        ErrorCode.INVALID_GROUP_ID: _REBALANCE,
        ErrorCode.UNSUPPORTED_VERSION: _REBALANCE,
        ErrorCode.UNKNOWN_SERVER_ERROR: _REBALANCE,
        TransportFailure.LOST: _RETRY_MOVED,
        TransportFailure.TIMED_OUT: _REBALANCE,
        TransportFailure.INVALID: _REBALANCE,
    },
    Request.HEARTBEAT: {
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction(Action.DRAIN, cause=Cause.REBALANCE),
        ErrorCode.ILLEGAL_GENERATION: _STALE,
        ErrorCode.UNKNOWN_MEMBER_ID: _UNKNOWN_MEMBER,
        ErrorCode.FENCED_INSTANCE_ID: _FENCED,
        # A coordinator that is away or moving cannot have reassigned the partitions: the generation
        # continues until its lease expires.
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _RETRY_AFTER_LOOKUP,
        ErrorCode.NOT_COORDINATOR: _RETRY_MOVED,
        ErrorCode.REQUEST_TIMED_OUT: _RETRY_AFTER_LOOKUP,
        # An error without a meaning may come from a broker that is no longer the coordinator.
        ErrorCode.UNKNOWN_SERVER_ERROR: _RETRY_AFTER_LOOKUP,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _FORBIDDEN,
        ErrorCode.INVALID_GROUP_ID: _IMPOSSIBLE,
        ErrorCode.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        TransportFailure.LOST: _RETRY_MOVED,
        TransportFailure.TIMED_OUT: _RETRY_MOVED,
        TransportFailure.INVALID: _RETRY_AFTER_LOOKUP,
    },
    Request.COMMIT: {
        ErrorCode.UNKNOWN_MEMBER_ID: _UNKNOWN_MEMBER,
        ErrorCode.ILLEGAL_GENERATION: _STALE,
        ErrorCode.STALE_MEMBER_EPOCH: _UNKNOWN_MEMBER,
        # Since v9, the code for a group that does not exist; it was ILLEGAL_GENERATION before.
        ErrorCode.GROUP_ID_NOT_FOUND: _UNKNOWN_MEMBER,
        ErrorCode.FENCED_INSTANCE_ID: _FENCED,
        # The coordinator waits for the leader's assignment and accepts the commit after it.
        ErrorCode.REBALANCE_IN_PROGRESS: _RETRY,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _RETRY_AFTER_LOOKUP,
        ErrorCode.NOT_COORDINATOR: _RETRY_MOVED,
        # Too few replicas wrote it in time, or the broker is no longer the coordinator.
        ErrorCode.REQUEST_TIMED_OUT: _RETRY_AFTER_LOOKUP,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _FORBIDDEN,
        ErrorCode.INVALID_GROUP_ID: _IMPOSSIBLE,
        ErrorCode.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        # A coordinator that has just started may not know the topic, or the new partition, yet.
        # Kafka's client retries for longer (KAFKA-6829), which a deleted topic would wait for.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Reaction(
            Action.RETRY, wait=Wait.YES, retry_for=UNKNOWN_FOR
        ),
        ErrorCode.OFFSET_METADATA_TOO_LARGE: _REFUSE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE: _REFUSE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: _REFUSE,
        ErrorCode.INVALID_REQUEST: _REFUSE,
        ErrorCode.UNKNOWN_SERVER_ERROR: _REFUSE,
        # Commits within a transaction. TRANSACTION_ABORTABLE (KIP-890) means that the program has
        # to abort the transaction: only its caller can.
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: _REFUSE,
        ErrorCode.INVALID_TXN_STATE: _REFUSE,
        ErrorCode.TRANSACTION_ABORTABLE: _REFUSE,
        # A second request with the same generation id has the same effect, or is refused.
        TransportFailure.LOST: _RETRY_MOVED,
        # But it may arrive after later commits. Whether to send one is for the caller to decide.
        TransportFailure.TIMED_OUT: _REFUSE,
        TransportFailure.INVALID: _RETRY_AFTER_LOOKUP,
    },
    Request.FETCH_OFFSETS: {
        # An open transaction decides the offset: this code never means "no offset" (KIP-447).
        ErrorCode.UNSTABLE_OFFSET_COMMIT: _RETRY,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _RETRY_AFTER_LOOKUP,
        ErrorCode.NOT_COORDINATOR: _RETRY_MOVED,
        ErrorCode.REQUEST_TIMED_OUT: _RETRY_AFTER_LOOKUP,
        ErrorCode.UNKNOWN_SERVER_ERROR: _RETRY_AFTER_LOOKUP,
        ErrorCode.ILLEGAL_GENERATION: _STALE,
        ErrorCode.STALE_MEMBER_EPOCH: _STALE,
        ErrorCode.UNKNOWN_MEMBER_ID: _UNKNOWN_MEMBER,
        ErrorCode.GROUP_ID_NOT_FOUND: _UNKNOWN_MEMBER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _RETRY,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _FORBIDDEN,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: _FORBIDDEN,
        ErrorCode.INVALID_GROUP_ID: _IMPOSSIBLE,
        ErrorCode.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        TransportFailure.LOST: _RETRY_MOVED,
        TransportFailure.TIMED_OUT: _RETRY_MOVED,
        TransportFailure.INVALID: _RETRY_AFTER_LOOKUP,
    },
    Request.LEAVE: {
        ErrorCode.UNKNOWN_MEMBER_ID: _IGNORE,
        ErrorCode.FENCED_INSTANCE_ID: _IGNORE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _RETRY_AFTER_LOOKUP,
        ErrorCode.NOT_COORDINATOR: _RETRY_MOVED,
        # The session expires by itself; a failure here must not keep a program from closing.
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _IGNORE,
        ErrorCode.INVALID_GROUP_ID: _IGNORE,
        ErrorCode.UNSUPPORTED_VERSION: _IGNORE,
        ErrorCode.UNKNOWN_SERVER_ERROR: _IGNORE,
        TransportFailure.LOST: _RETRY_MOVED,
        TransportFailure.TIMED_OUT: _IGNORE,
        TransportFailure.INVALID: _IGNORE,
    },
    Request.LIST_OFFSETS: {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _RETRY_AFTER_LOOKUP,
        ErrorCode.UNKNOWN_TOPIC_ID: _RETRY_AFTER_LOOKUP,
        ErrorCode.LEADER_NOT_AVAILABLE: _RETRY_AFTER_LOOKUP,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: _RETRY_AFTER_LOOKUP,
        ErrorCode.REPLICA_NOT_AVAILABLE: _RETRY_AFTER_LOOKUP,
        ErrorCode.FENCED_LEADER_EPOCH: _RETRY_AFTER_LOOKUP,
        ErrorCode.UNKNOWN_LEADER_EPOCH: _RETRY,
        ErrorCode.OFFSET_NOT_AVAILABLE: _RETRY,
        ErrorCode.KAFKA_STORAGE_ERROR: _RETRY_AFTER_LOOKUP,
        ErrorCode.REQUEST_TIMED_OUT: _RETRY,
        ErrorCode.BROKER_NOT_AVAILABLE: _RETRY_AFTER_LOOKUP,
        ErrorCode.UNKNOWN_SERVER_ERROR: _RETRY_AFTER_LOOKUP,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: _FORBIDDEN,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: _IMPOSSIBLE,
        ErrorCode.INVALID_REQUEST: _IMPOSSIBLE,
        ErrorCode.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        TransportFailure.LOST: _RETRY_AFTER_LOOKUP,
        TransportFailure.TIMED_OUT: _RETRY_AFTER_LOOKUP,
        TransportFailure.INVALID: _RETRY_AFTER_LOOKUP,
    },
    # It verifies a committed offset. If that fails, reading begins there without it, and the
    # fetches report what is wrong with the leader, or what is not permitted.
    Request.EPOCH_ENDS: {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _RETRY_AFTER_LOOKUP,
        ErrorCode.LEADER_NOT_AVAILABLE: _IGNORE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: _RETRY_AFTER_LOOKUP,
        ErrorCode.REPLICA_NOT_AVAILABLE: _RETRY_AFTER_LOOKUP,
        ErrorCode.FENCED_LEADER_EPOCH: _RETRY_AFTER_LOOKUP,
        ErrorCode.UNKNOWN_LEADER_EPOCH: _RETRY,
        ErrorCode.OFFSET_NOT_AVAILABLE: _RETRY,
        ErrorCode.KAFKA_STORAGE_ERROR: _RETRY_AFTER_LOOKUP,
        ErrorCode.REQUEST_TIMED_OUT: _RETRY,
        ErrorCode.BROKER_NOT_AVAILABLE: _RETRY_AFTER_LOOKUP,
        ErrorCode.UNKNOWN_SERVER_ERROR: _RETRY_AFTER_LOOKUP,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: _IGNORE,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _IGNORE,
        ErrorCode.INVALID_REQUEST: _IGNORE,
        ErrorCode.UNSUPPORTED_VERSION: _IGNORE,
        TransportFailure.LOST: _RETRY_AFTER_LOOKUP,
        TransportFailure.TIMED_OUT: _IGNORE,
        TransportFailure.INVALID: _RETRY_AFTER_LOOKUP,
    },
    Request.METADATA: {
        # The watchers wait for topics that do not exist yet.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _IGNORE,
        ErrorCode.UNKNOWN_TOPIC_ID: _IGNORE,
        ErrorCode.LEADER_NOT_AVAILABLE: _IGNORE,
        ErrorCode.REPLICA_NOT_AVAILABLE: _IGNORE,
        ErrorCode.LISTENER_NOT_FOUND: _IGNORE,
        ErrorCode.UNKNOWN_SERVER_ERROR: _RETRY,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: _FORBIDDEN,
        # KIP-1102: forget the known brokers and start again from the bootstrap servers.
        ErrorCode.REBOOTSTRAP_REQUIRED: _RETRY_AFTER_LOOKUP,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _FORBIDDEN,
        ErrorCode.INVALID_TOPIC_EXCEPTION: _IMPOSSIBLE,
        ErrorCode.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        TransportFailure.LOST: _RETRY,
        TransportFailure.TIMED_OUT: _RETRY,
        TransportFailure.INVALID: _RETRY,
    },
}

#: The reaction to a code that has no row for the request: newer brokers may send any code.
OTHERWISE: Final[Mapping[Request, Reaction]] = {
    Request.FIND_COORDINATOR: _RETRY,
    Request.JOIN: _START_OVER,
    Request.SYNC: _START_OVER,
    Request.DESCRIBE: _REBALANCE,
    Request.HEARTBEAT: _RETRY_AFTER_LOOKUP,
    Request.COMMIT: _REFUSE,
    Request.FETCH_OFFSETS: _RETRY_AFTER_LOOKUP,
    Request.LEAVE: _IGNORE,
    Request.LIST_OFFSETS: _RETRY_AFTER_LOOKUP,
    Request.EPOCH_ENDS: _RETRY_AFTER_LOOKUP,
    Request.METADATA: _RETRY,
}

#: The reaction where the connection for a request could not be opened, or its session renewed,
#: because one side did not accept the other's certificate or login.
LOGIN_REFUSED: Final[Mapping[Request, Reaction]] = {
    **dict.fromkeys(Request, _UNAUTHENTICATED),
    # The heartbeats have a connection of their own, and say whether the member is still known.
    Request.COMMIT: _REFUSE,
    Request.LEAVE: _IGNORE,
    Request.EPOCH_ENDS: _IGNORE,
}

#: To how many other addresses a request that any broker can answer is still sent, once the
#: connection to one was refused in this step with this code; in other cases to all. The refusal
#: may concern that one only: another program has its port by now, its certificate has expired.
_MOST_OTHERS: Final[Mapping[tuple[str, int], int]] = {
    # Some services lock an account after a few logins with a wrong password.
    ("SASL login", ErrorCode.SASL_AUTHENTICATION_FAILED): 1,
    (AuthenticationError.LOOKUP, ErrorCode.SASL_AUTHENTICATION_FAILED): 0,
}

LOGIN_INTERVAL: Final = 300.0
"""Seconds after which a watcher, which would request each second, logs in again with what a broker
has refused: an account may be locked after a few logins with a wrong password."""

POLL_AGAIN: Final = Reaction(Action.RETRY, wait=Wait.YES)
"""What a watcher does after any failure: it polls again an interval later. Even an authorization
error does not end the generation: those who read the topic get the error from the fetches."""

_TRANSPORT_FAILURES: Final[Mapping[type[TransportError], TransportFailure]] = {
    ConnectionLostError: TransportFailure.LOST,
    RequestTimeoutError: TransportFailure.TIMED_OUT,
    ProtocolError: TransportFailure.INVALID,
}


def reaction_to_code(request: Request, failure: int | TransportFailure) -> Reaction:
    """The reaction to an error code or a transport failure."""
    if isinstance(failure, TransportFailure):
        return REACTIONS[request].get(failure, OTHERWISE[request])
    if failure not in _KNOWN_CODES:
        return OTHERWISE[request]
    return REACTIONS[request].get(ErrorCode(failure), OTHERWISE[request])


def is_coordinator_away(code: int) -> bool:
    """Whether a commit that gets this code is sent again for as long as there is time for it."""
    reaction = reaction_to_code(Request.COMMIT, code)
    return reaction.action is Action.RETRY and reaction.retry_for == math.inf


_KNOWN_CODES: Final = frozenset(int(code) for code in ErrorCode)


def failed_request(error: BrokerError | TransportError, sent: Request) -> Request:
    """The request whose rows apply to an error.

    A BrokerError names its request. It can differ from the request that was to be sent: the lookup
    of the coordinator, or of a leader, before it may have failed.
    """
    if isinstance(error, BrokerError) and error.request in _BY_NAME:
        return _BY_NAME[error.request]
    return sent


_BY_NAME: Final[Mapping[str, Request]] = {request.value: request for request in Request}


def reaction_to(request: Request, error: BrokerError | TransportError) -> Reaction:
    """The reaction to an exception that a request raised."""
    if isinstance(error, AuthenticationError):
        return LOGIN_REFUSED[request]
    if isinstance(error, BrokerError):
        return reaction_to_code(request, error.code)
    return reaction_to_code(request, _transport_failure(error))


def _transport_failure(error: TransportError) -> TransportFailure:
    failure = _TRANSPORT_FAILURES[type(error)]
    if failure is TransportFailure.TIMED_OUT and not error.sent:
        return TransportFailure.LOST
    return failure


def others_to_ask(error: AuthenticationError) -> float:
    """To how many other addresses a request that any broker can answer is sent after this error."""
    return _MOST_OTHERS.get((error.request, error.code), math.inf)


def until_next_login(error: BrokerError | TransportError) -> float:
    """For how many seconds a watcher waits after this error, besides its interval."""
    refused = isinstance(error, AuthenticationError) and 0 < others_to_ask(error) < math.inf
    return LOGIN_INTERVAL if refused else 0.0
