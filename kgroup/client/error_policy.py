"""What follows each failure of each request: one table, read by the group and its tasks.

A row is a request and what went wrong with it: an error code in the answer, or a fault of the
way there. Its ``Reaction`` says everything that kgroup does about it, so that nothing else in
kgroup branches on an error code. A code that no row names falls to its request's ``OTHERWISE``.

Read it beside Kafka's ``AbstractCoordinator`` (join, sync, heartbeat, leave) and
``ConsumerCoordinator`` (commit, fetch of offsets). Where the two differ, the reason is given.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, final

import attrs

from kgroup.error_codes import ErrorCode, code_name
from kgroup.errors import (
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
    """The requests whose failures the table knows."""

    FIND_COORDINATOR = "FindCoordinator"
    JOIN = "JoinGroup"
    SYNC = "SyncGroup"
    DESCRIBE = "DescribeGroups"
    HEARTBEAT = "Heartbeat"
    COMMIT = "OffsetCommit"
    FETCH_OFFSETS = "OffsetFetch"
    LEAVE = "LeaveGroup"
    LIST_OFFSETS = "ListOffsets"
    METADATA = "Metadata"


@final
class TransportFailure(enum.Enum):
    """How the way to the broker can fail."""

    LOST = "connection lost"
    TIMED_OUT = "time-out"
    GARBLED = "not Kafka's protocol"


@final
class Action(enum.Enum):
    """What comes next."""

    RETRY = "send it again, within the same generation"
    REJOIN = "join again"
    DRAIN = "finish and commit what is in hand, then join again"
    LOST = "give the partitions up at once, then join again"
    FAIL = "give up: the group is over"
    REFUSE = "tell the caller"
    IGNORE = "nothing: it does not matter any more"


@final
class MemberId(enum.Enum):
    """What becomes of the member id."""

    KEEP = "keep the member id"
    TAKE = "take the member id that was given"
    DROP = "drop the member id"


@final
class Wait(enum.Enum):
    """Whether to back off first."""

    NO = "at once"
    IF_REPEATED = "at once, and after a wait if it fails again"
    YES = "after a wait"


@final
@attrs.frozen
class Reaction:
    """All that follows one failure.

    Attributes:
        action: what comes next.
        member_id: what becomes of the member id.
        wait: whether to back off first.
        find: whether the coordinator (or the leader) has to be looked for again.
        leave: whether to send LeaveGroup for the id before it is dropped, so that the group
            need not wait for a member that will not come.
        cause: how a generation ends by it.
        error: what is raised where the reaction is FAIL.
    """

    action: Action
    member_id: MemberId = MemberId.KEEP
    wait: Wait = Wait.NO
    find: bool = False
    leave: bool = False
    cause: Cause | None = None
    error: type[FatalGroupError] = FatalGroupError

    def __str__(self) -> str:
        words = [self.action.value]
        if self.action in (Action.RETRY, Action.REJOIN, Action.DRAIN, Action.LOST):
            words.append(self.wait.value)
            if self.find:
                words.append("asking anew where to send it")
        if self.member_id is not MemberId.KEEP:
            words.append(self.member_id.value)
        if self.leave:
            words.append("leaving first")
        return ", ".join(words)


_FENCED: Final = Reaction(Action.FAIL, cause=Cause.FENCED, error=FencedInstanceError)
_FORBIDDEN: Final = Reaction(Action.FAIL, cause=Cause.MEMBERSHIP_LOST, error=AuthorizationError)
_IMPOSSIBLE: Final = Reaction(Action.FAIL, cause=Cause.MEMBERSHIP_LOST)
_START_OVER: Final = Reaction(Action.REJOIN, MemberId.DROP, Wait.YES, leave=True)
"""What is not understood: leave, back off and begin anew, as kafka-go does."""
_FORGOTTEN: Final = Reaction(
    Action.LOST, MemberId.DROP, Wait.IF_REPEATED, cause=Cause.MEMBERSHIP_LOST
)
_LEFT_BEHIND: Final = Reaction(Action.LOST, wait=Wait.IF_REPEATED, cause=Cause.MEMBERSHIP_LOST)
_RETRY: Final = Reaction(Action.RETRY, wait=Wait.YES)
_RETRY_ELSEWHERE: Final = Reaction(Action.RETRY, wait=Wait.YES, find=True)
_RETRY_MOVED: Final = Reaction(Action.RETRY, wait=Wait.IF_REPEATED, find=True)
_REJOIN_ELSEWHERE: Final = Reaction(Action.REJOIN, wait=Wait.YES, find=True)
_REJOIN_MOVED: Final = Reaction(Action.REJOIN, wait=Wait.IF_REPEATED, find=True)
_REJOIN: Final = Reaction(Action.REJOIN, wait=Wait.IF_REPEATED)
_REBALANCE: Final = Reaction(Action.REJOIN, wait=Wait.IF_REPEATED, cause=Cause.REBALANCE)
"""What the assignment covers cannot be found out: the whole group is assigned again, once."""
_REFUSE: Final = Reaction(Action.REFUSE)
_IGNORE: Final = Reaction(Action.IGNORE)

#: The table. INVARIANT: every (request, failure) has exactly one reaction, here or in OTHERWISE.
MOVES: Final[Mapping[Request, Mapping[ErrorCode | TransportFailure, Reaction]]] = {
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
        TransportFailure.GARBLED: _RETRY,
    },
    Request.JOIN: {
        # KIP-394: the id is reserved; the coordinator waits for it.
        ErrorCode.MEMBER_ID_REQUIRED: Reaction(Action.REJOIN, MemberId.TAKE, Wait.IF_REPEATED),
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction(Action.REJOIN, MemberId.DROP, Wait.IF_REPEATED),
        ErrorCode.ILLEGAL_GENERATION: _REJOIN,
        ErrorCode.REBALANCE_IN_PROGRESS: _REJOIN,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction(Action.REJOIN, wait=Wait.YES),
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _REJOIN_ELSEWHERE,
        ErrorCode.NOT_COORDINATOR: _REJOIN_MOVED,
        ErrorCode.REQUEST_TIMED_OUT: _REJOIN_ELSEWHERE,
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
        # The answer may be lost with a frozen broker; another knows the new coordinator.
        TransportFailure.TIMED_OUT: _REJOIN_MOVED,
        TransportFailure.GARBLED: _REJOIN_ELSEWHERE,
    },
    Request.SYNC: {
        # The others wait for this member's Join: no wait for this failure, however often it
        # happens. Joins as such are paced (``Member._pace``), so that it ends in no storm.
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction(Action.REJOIN, cause=Cause.REBALANCE),
        ErrorCode.ILLEGAL_GENERATION: _REJOIN,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction(Action.REJOIN, MemberId.DROP, Wait.IF_REPEATED),
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction(Action.REJOIN, wait=Wait.YES),
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _REJOIN_ELSEWHERE,
        ErrorCode.NOT_COORDINATOR: _REJOIN_MOVED,
        ErrorCode.REQUEST_TIMED_OUT: _REJOIN_ELSEWHERE,
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
        TransportFailure.GARBLED: _REJOIN_ELSEWHERE,
    },
    # Asked only by a member that took over an assignment which it did not see being made. To
    # join again is always safe: the assignment that follows is made from today's topics.
    Request.DESCRIBE: {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _RETRY_ELSEWHERE,
        ErrorCode.NOT_COORDINATOR: _RETRY_MOVED,
        ErrorCode.GROUP_ID_NOT_FOUND: _REBALANCE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _REBALANCE,
        ErrorCode.INVALID_GROUP_ID: _REBALANCE,
        ErrorCode.UNSUPPORTED_VERSION: _REBALANCE,
        ErrorCode.UNKNOWN_SERVER_ERROR: _REBALANCE,
        TransportFailure.LOST: _RETRY_MOVED,
        TransportFailure.TIMED_OUT: _REBALANCE,
        TransportFailure.GARBLED: _REBALANCE,
    },
    Request.HEARTBEAT: {
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction(Action.DRAIN, cause=Cause.REBALANCE),
        ErrorCode.ILLEGAL_GENERATION: _LEFT_BEHIND,
        ErrorCode.UNKNOWN_MEMBER_ID: _FORGOTTEN,
        ErrorCode.FENCED_INSTANCE_ID: _FENCED,
        # A coordinator that is away or moving has not given anything away: the lease decides.
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _RETRY_ELSEWHERE,
        ErrorCode.NOT_COORDINATOR: _RETRY_MOVED,
        ErrorCode.REQUEST_TIMED_OUT: _RETRY_ELSEWHERE,
        ErrorCode.UNKNOWN_SERVER_ERROR: _RETRY,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _FORBIDDEN,
        ErrorCode.INVALID_GROUP_ID: _IMPOSSIBLE,
        ErrorCode.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        TransportFailure.LOST: _RETRY_MOVED,
        TransportFailure.TIMED_OUT: _RETRY_MOVED,
        TransportFailure.GARBLED: _RETRY_ELSEWHERE,
    },
    Request.COMMIT: {
        ErrorCode.UNKNOWN_MEMBER_ID: _FORGOTTEN,
        ErrorCode.ILLEGAL_GENERATION: _LEFT_BEHIND,
        ErrorCode.STALE_MEMBER_EPOCH: _FORGOTTEN,
        # From v9 on, what older versions call an illegal generation of a group that is gone.
        ErrorCode.GROUP_ID_NOT_FOUND: _FORGOTTEN,
        ErrorCode.FENCED_INSTANCE_ID: _FENCED,
        # An assignment is awaited: the state passes, and with it the refusal.
        ErrorCode.REBALANCE_IN_PROGRESS: _RETRY,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _RETRY_ELSEWHERE,
        ErrorCode.NOT_COORDINATOR: _RETRY_MOVED,
        # Not written by enough replicas in time, or by a coordinator that is none any more.
        ErrorCode.REQUEST_TIMED_OUT: _RETRY_ELSEWHERE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _FORBIDDEN,
        ErrorCode.INVALID_GROUP_ID: _IMPOSSIBLE,
        ErrorCode.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _REFUSE,
        ErrorCode.OFFSET_METADATA_TOO_LARGE: _REFUSE,
        ErrorCode.INVALID_COMMIT_OFFSET_SIZE: _REFUSE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: _REFUSE,
        ErrorCode.INVALID_REQUEST: _REFUSE,
        ErrorCode.UNKNOWN_SERVER_ERROR: _REFUSE,
        # Of commits in a transaction.
        ErrorCode.INVALID_PRODUCER_ID_MAPPING: _REFUSE,
        ErrorCode.INVALID_TXN_STATE: _REFUSE,
        # Sent again under the same generation id it does the same or is refused.
        TransportFailure.LOST: _RETRY_MOVED,
        TransportFailure.TIMED_OUT: _REFUSE,
        TransportFailure.GARBLED: _RETRY_ELSEWHERE,
    },
    Request.FETCH_OFFSETS: {
        # A transaction that is about to end decides: never read it as "no offset" (KIP-447).
        ErrorCode.UNSTABLE_OFFSET_COMMIT: _RETRY,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _RETRY_ELSEWHERE,
        ErrorCode.NOT_COORDINATOR: _RETRY_MOVED,
        ErrorCode.REQUEST_TIMED_OUT: _RETRY_ELSEWHERE,
        ErrorCode.UNKNOWN_SERVER_ERROR: _RETRY,
        ErrorCode.ILLEGAL_GENERATION: _LEFT_BEHIND,
        ErrorCode.STALE_MEMBER_EPOCH: _LEFT_BEHIND,
        ErrorCode.UNKNOWN_MEMBER_ID: _FORGOTTEN,
        ErrorCode.GROUP_ID_NOT_FOUND: _FORGOTTEN,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _RETRY,
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _FORBIDDEN,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: _FORBIDDEN,
        ErrorCode.INVALID_GROUP_ID: _IMPOSSIBLE,
        ErrorCode.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        TransportFailure.LOST: _RETRY_MOVED,
        TransportFailure.TIMED_OUT: _RETRY_MOVED,
        TransportFailure.GARBLED: _RETRY_ELSEWHERE,
    },
    Request.LEAVE: {
        ErrorCode.UNKNOWN_MEMBER_ID: _IGNORE,
        ErrorCode.FENCED_INSTANCE_ID: _IGNORE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: _RETRY_ELSEWHERE,
        ErrorCode.NOT_COORDINATOR: _RETRY_MOVED,
        # The session ends by itself; that keeps no program from closing.
        ErrorCode.GROUP_AUTHORIZATION_FAILED: _IGNORE,
        ErrorCode.INVALID_GROUP_ID: _IGNORE,
        ErrorCode.UNSUPPORTED_VERSION: _IGNORE,
        ErrorCode.UNKNOWN_SERVER_ERROR: _IGNORE,
        TransportFailure.LOST: _RETRY_MOVED,
        TransportFailure.TIMED_OUT: _IGNORE,
        TransportFailure.GARBLED: _IGNORE,
    },
    Request.LIST_OFFSETS: {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _RETRY_ELSEWHERE,
        ErrorCode.UNKNOWN_TOPIC_ID: _RETRY_ELSEWHERE,
        ErrorCode.LEADER_NOT_AVAILABLE: _RETRY_ELSEWHERE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER: _RETRY_ELSEWHERE,
        ErrorCode.REPLICA_NOT_AVAILABLE: _RETRY_ELSEWHERE,
        ErrorCode.FENCED_LEADER_EPOCH: _RETRY_ELSEWHERE,
        ErrorCode.UNKNOWN_LEADER_EPOCH: _RETRY,
        ErrorCode.OFFSET_NOT_AVAILABLE: _RETRY,
        ErrorCode.KAFKA_STORAGE_ERROR: _RETRY_ELSEWHERE,
        ErrorCode.REQUEST_TIMED_OUT: _RETRY,
        ErrorCode.BROKER_NOT_AVAILABLE: _RETRY_ELSEWHERE,
        ErrorCode.UNKNOWN_SERVER_ERROR: _RETRY_ELSEWHERE,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: _FORBIDDEN,
        ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: _IMPOSSIBLE,
        ErrorCode.INVALID_REQUEST: _IMPOSSIBLE,
        ErrorCode.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        TransportFailure.LOST: _RETRY_ELSEWHERE,
        TransportFailure.TIMED_OUT: _RETRY_ELSEWHERE,
        TransportFailure.GARBLED: _RETRY_ELSEWHERE,
    },
    Request.METADATA: {
        # A topic that does not exist yet is watched until it does.
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: _IGNORE,
        ErrorCode.UNKNOWN_TOPIC_ID: _IGNORE,
        ErrorCode.LEADER_NOT_AVAILABLE: _IGNORE,
        ErrorCode.REPLICA_NOT_AVAILABLE: _IGNORE,
        ErrorCode.LISTENER_NOT_FOUND: _IGNORE,
        ErrorCode.UNKNOWN_SERVER_ERROR: _RETRY,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED: _FORBIDDEN,
        # KIP-1102: the brokers known so far are forgotten, and the first ones asked again.
        ErrorCode.REBOOTSTRAP_REQUIRED: _RETRY_ELSEWHERE,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED: _FORBIDDEN,
        ErrorCode.INVALID_TOPIC_EXCEPTION: _IMPOSSIBLE,
        ErrorCode.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        TransportFailure.LOST: _RETRY,
        TransportFailure.TIMED_OUT: _RETRY,
        TransportFailure.GARBLED: _RETRY,
    },
}

#: What follows a code that the request's rows do not name: a newer broker may send any.
OTHERWISE: Final[Mapping[Request, Reaction]] = {
    Request.FIND_COORDINATOR: _RETRY,
    Request.JOIN: _START_OVER,
    Request.SYNC: _START_OVER,
    Request.DESCRIBE: _REBALANCE,
    Request.HEARTBEAT: _RETRY,
    Request.COMMIT: _REFUSE,
    Request.FETCH_OFFSETS: _RETRY,
    Request.LEAVE: _IGNORE,
    Request.LIST_OFFSETS: _RETRY_ELSEWHERE,
    Request.METADATA: _RETRY,
}

LOOK_AGAIN: Final = Reaction(Action.RETRY, wait=Wait.YES)
"""What a watcher does about any failure of its look: it looks again an interval later. Rights to
a topic that are taken away while it is read end nothing: the data plane tells who reads it."""

_FAULTS: Final[Mapping[type[TransportError], TransportFailure]] = {
    ConnectionLostError: TransportFailure.LOST,
    RequestTimeoutError: TransportFailure.TIMED_OUT,
    ProtocolError: TransportFailure.GARBLED,
}


def reaction_for(request: Request, failure: int | TransportFailure) -> Reaction:
    """The table's reaction for an error code or a fault."""
    if isinstance(failure, TransportFailure):
        return MOVES[request].get(failure, OTHERWISE[request])
    if failure not in _NAMED:
        return OTHERWISE[request]
    return MOVES[request].get(ErrorCode(failure), OTHERWISE[request])


_NAMED: Final = frozenset(int(code) for code in ErrorCode)


def row_of(error: BrokerError | TransportError, asked: Request) -> Request:
    """Whose row an error belongs to.

    An answer says itself which request it answers: a look for the coordinator, or for a leader,
    may have failed on the way to what was asked.
    """
    if isinstance(error, BrokerError) and error.request in _SPELLED:
        return _SPELLED[error.request]
    return asked


_SPELLED: Final[Mapping[str, Request]] = {request.value: request for request in Request}


def decide(request: Request, error: BrokerError | TransportError) -> Reaction:
    """The table's reaction for an exception of a request."""
    if isinstance(error, BrokerError):
        return reaction_for(request, error.code)
    return reaction_for(request, _FAULTS[type(error)])


def broker_error(request: Request, code: int, about: str = "", hint: str = "") -> BrokerError:
    """The exception for an error code in a request's answer.

    It is the one that the table names where the table says FAIL, so that it can be raised as
    it is.
    """
    name = code_name(code)
    message = f"{request.value}{f' for {about}' if about else ''} was answered with {name} ({code})"
    detail = hint or _HINTS.get((request, code), "")
    if detail:
        message = f"{message}: {detail}"
    reaction = reaction_for(request, code)
    kind: type[BrokerError] = reaction.error if reaction.action is Action.FAIL else BrokerError
    return kind(code, name, request.value, message)


_HINTS: Final[Mapping[tuple[Request, int], str]] = {
    (Request.JOIN, ErrorCode.GROUP_MAX_SIZE_REACHED): (
        "the group has as many members as the broker's group.max.size admits; stop a member or"
        " raise it there"
    ),
    (Request.JOIN, ErrorCode.INCONSISTENT_GROUP_PROTOCOL): (
        "no assignor of this member is known to all others, or the group id is used by another"
        " kind of client; give all members an assignor in common"
    ),
    (Request.JOIN, ErrorCode.INVALID_SESSION_TIMEOUT): (
        "session_timeout is outside of the broker's group.min.session.timeout.ms and"
        " group.max.session.timeout.ms"
    ),
    (Request.SYNC, ErrorCode.INCONSISTENT_GROUP_PROTOCOL): (
        "the coordinator took another assignor than it told this member"
    ),
    **{
        (request, ErrorCode.FENCED_INSTANCE_ID): (
            "another process has joined with this group_instance_id and taken this member's"
            " place; give each process its own"
        )
        for request in (Request.JOIN, Request.SYNC, Request.HEARTBEAT, Request.COMMIT)
    },
    **{
        (request, ErrorCode.GROUP_AUTHORIZATION_FAILED): (
            "the principal needs READ on the group; grant it on the cluster"
        )
        for request in Request
    },
    **{
        (request, ErrorCode.TOPIC_AUTHORIZATION_FAILED): (
            "the principal needs READ and DESCRIBE on the topic; grant it on the cluster"
        )
        for request in Request
    },
}
