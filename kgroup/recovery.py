"""What follows each failure of each request: one table, read by the group and its tasks.

A row is a request and what went wrong with it: an error code in the answer, or a fault of the
way there. Its ``Move`` says everything that kgroup does about it, so that nothing else in
kgroup branches on an error code. A code that no row names falls to its request's ``OTHERWISE``.

Read it beside Kafka's ``AbstractCoordinator`` (join, sync, heartbeat, leave) and
``ConsumerCoordinator`` (commit, fetch of offsets). Where the two differ, the reason is given.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Final, final

import attrs

from kgroup.codes import Code, code_name
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
from kgroup.model import Cause


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
class Fault(enum.Enum):
    """How the way to the broker can fail."""

    LOST = "connection lost"
    TIMED_OUT = "time-out"
    GARBLED = "not Kafka's protocol"


@final
class Then(enum.Enum):
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
class Move:
    """All that follows one failure.

    Attributes:
        then: what comes next.
        member_id: what becomes of the member id.
        wait: whether to back off first.
        find: whether the coordinator (or the leader) has to be looked for again.
        leave: whether to send LeaveGroup for the id before it is dropped, so that the group
            need not wait for a member that will not come.
        cause: how a generation ends by it.
        error: what is raised where the move is FAIL.
    """

    then: Then
    member_id: MemberId = MemberId.KEEP
    wait: Wait = Wait.NO
    find: bool = False
    leave: bool = False
    cause: Cause | None = None
    error: type[FatalGroupError] = FatalGroupError

    def __str__(self) -> str:
        words = [self.then.value]
        if self.then in (Then.RETRY, Then.REJOIN, Then.DRAIN, Then.LOST):
            words.append(self.wait.value)
            if self.find:
                words.append("asking anew where to send it")
        if self.member_id is not MemberId.KEEP:
            words.append(self.member_id.value)
        if self.leave:
            words.append("leaving first")
        return ", ".join(words)


_FENCED: Final = Move(Then.FAIL, cause=Cause.FENCED, error=FencedInstanceError)
_FORBIDDEN: Final = Move(Then.FAIL, cause=Cause.MEMBERSHIP_LOST, error=AuthorizationError)
_IMPOSSIBLE: Final = Move(Then.FAIL, cause=Cause.MEMBERSHIP_LOST)
_START_OVER: Final = Move(Then.REJOIN, MemberId.DROP, Wait.YES, leave=True)
"""What is not understood: leave, back off and begin anew, as kafka-go does."""
_FORGOTTEN: Final = Move(Then.LOST, MemberId.DROP, Wait.IF_REPEATED, cause=Cause.MEMBERSHIP_LOST)
_LEFT_BEHIND: Final = Move(Then.LOST, wait=Wait.IF_REPEATED, cause=Cause.MEMBERSHIP_LOST)
_RETRY: Final = Move(Then.RETRY, wait=Wait.YES)
_RETRY_ELSEWHERE: Final = Move(Then.RETRY, wait=Wait.YES, find=True)
_RETRY_MOVED: Final = Move(Then.RETRY, wait=Wait.IF_REPEATED, find=True)
_REJOIN_ELSEWHERE: Final = Move(Then.REJOIN, wait=Wait.YES, find=True)
_REJOIN_MOVED: Final = Move(Then.REJOIN, wait=Wait.IF_REPEATED, find=True)
_REJOIN: Final = Move(Then.REJOIN, wait=Wait.IF_REPEATED)
_REBALANCE: Final = Move(Then.REJOIN, wait=Wait.IF_REPEATED, cause=Cause.REBALANCE)
"""What the assignment covers cannot be found out: the whole group is assigned again, once."""
_REFUSE: Final = Move(Then.REFUSE)
_IGNORE: Final = Move(Then.IGNORE)

#: The table. INVARIANT: every (request, failure) has exactly one move, here or in OTHERWISE.
MOVES: Final[Mapping[Request, Mapping[Code | Fault, Move]]] = {
    Request.FIND_COORDINATOR: {
        Code.COORDINATOR_NOT_AVAILABLE: _RETRY,
        Code.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
        Code.UNKNOWN_SERVER_ERROR: _RETRY,
        Code.GROUP_AUTHORIZATION_FAILED: _FORBIDDEN,
        Code.CLUSTER_AUTHORIZATION_FAILED: _FORBIDDEN,
        Code.INVALID_GROUP_ID: _IMPOSSIBLE,
        Code.INVALID_REQUEST: _IMPOSSIBLE,
        Code.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        Fault.LOST: _RETRY,
        Fault.TIMED_OUT: _RETRY,
        Fault.GARBLED: _RETRY,
    },
    Request.JOIN: {
        # KIP-394: the id is reserved; the coordinator waits for it.
        Code.MEMBER_ID_REQUIRED: Move(Then.REJOIN, MemberId.TAKE, Wait.IF_REPEATED),
        Code.UNKNOWN_MEMBER_ID: Move(Then.REJOIN, MemberId.DROP, Wait.IF_REPEATED),
        Code.ILLEGAL_GENERATION: _REJOIN,
        Code.REBALANCE_IN_PROGRESS: _REJOIN,
        Code.COORDINATOR_LOAD_IN_PROGRESS: Move(Then.REJOIN, wait=Wait.YES),
        Code.COORDINATOR_NOT_AVAILABLE: _REJOIN_ELSEWHERE,
        Code.NOT_COORDINATOR: _REJOIN_MOVED,
        Code.REQUEST_TIMED_OUT: _REJOIN_ELSEWHERE,
        Code.UNKNOWN_SERVER_ERROR: _START_OVER,
        Code.THROTTLING_QUOTA_EXCEEDED: Move(Then.REJOIN, wait=Wait.YES),
        Code.FENCED_INSTANCE_ID: _FENCED,
        Code.INCONSISTENT_GROUP_PROTOCOL: Move(Then.FAIL, error=InconsistentProtocolError),
        Code.GROUP_MAX_SIZE_REACHED: Move(Then.FAIL, error=GroupFullError),
        Code.INVALID_SESSION_TIMEOUT: _IMPOSSIBLE,
        Code.INVALID_GROUP_ID: _IMPOSSIBLE,
        Code.INVALID_REQUEST: _IMPOSSIBLE,
        Code.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        Code.GROUP_AUTHORIZATION_FAILED: _FORBIDDEN,
        Fault.LOST: _REJOIN_MOVED,
        # The answer may be lost with a frozen broker; another knows the new coordinator.
        Fault.TIMED_OUT: _REJOIN_MOVED,
        Fault.GARBLED: _REJOIN_ELSEWHERE,
    },
    Request.SYNC: {
        # The others wait for this member's Join: no wait for this failure, however often it
        # happens. Joins as such are paced (``Member._pace``), so that it ends in no storm.
        Code.REBALANCE_IN_PROGRESS: Move(Then.REJOIN, cause=Cause.REBALANCE),
        Code.ILLEGAL_GENERATION: _REJOIN,
        Code.UNKNOWN_MEMBER_ID: Move(Then.REJOIN, MemberId.DROP, Wait.IF_REPEATED),
        Code.COORDINATOR_LOAD_IN_PROGRESS: Move(Then.REJOIN, wait=Wait.YES),
        Code.COORDINATOR_NOT_AVAILABLE: _REJOIN_ELSEWHERE,
        Code.NOT_COORDINATOR: _REJOIN_MOVED,
        Code.REQUEST_TIMED_OUT: _REJOIN_ELSEWHERE,
        Code.UNKNOWN_SERVER_ERROR: _START_OVER,
        Code.FENCED_INSTANCE_ID: _FENCED,
        Code.INCONSISTENT_GROUP_PROTOCOL: Move(Then.FAIL, error=InconsistentProtocolError),
        Code.INVALID_GROUP_ID: _IMPOSSIBLE,
        Code.INVALID_REQUEST: _IMPOSSIBLE,
        Code.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        Code.GROUP_AUTHORIZATION_FAILED: _FORBIDDEN,
        Fault.LOST: _REJOIN_MOVED,
        Fault.TIMED_OUT: _REJOIN_MOVED,
        Fault.GARBLED: _REJOIN_ELSEWHERE,
    },
    # Asked only by a member that took over an assignment which it did not see being made. To
    # join again is always safe: the assignment that follows is made from today's topics.
    Request.DESCRIBE: {
        Code.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
        Code.COORDINATOR_NOT_AVAILABLE: _RETRY_ELSEWHERE,
        Code.NOT_COORDINATOR: _RETRY_MOVED,
        Code.GROUP_ID_NOT_FOUND: _REBALANCE,
        Code.GROUP_AUTHORIZATION_FAILED: _REBALANCE,
        Code.INVALID_GROUP_ID: _REBALANCE,
        Code.UNSUPPORTED_VERSION: _REBALANCE,
        Code.UNKNOWN_SERVER_ERROR: _REBALANCE,
        Fault.LOST: _RETRY_MOVED,
        Fault.TIMED_OUT: _REBALANCE,
        Fault.GARBLED: _REBALANCE,
    },
    Request.HEARTBEAT: {
        Code.REBALANCE_IN_PROGRESS: Move(Then.DRAIN, cause=Cause.REBALANCE),
        Code.ILLEGAL_GENERATION: _LEFT_BEHIND,
        Code.UNKNOWN_MEMBER_ID: _FORGOTTEN,
        Code.FENCED_INSTANCE_ID: _FENCED,
        # A coordinator that is away or moving has not given anything away: the lease decides.
        Code.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
        Code.COORDINATOR_NOT_AVAILABLE: _RETRY_ELSEWHERE,
        Code.NOT_COORDINATOR: _RETRY_MOVED,
        Code.REQUEST_TIMED_OUT: _RETRY_ELSEWHERE,
        Code.UNKNOWN_SERVER_ERROR: _RETRY,
        Code.GROUP_AUTHORIZATION_FAILED: _FORBIDDEN,
        Code.INVALID_GROUP_ID: _IMPOSSIBLE,
        Code.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        Fault.LOST: _RETRY_MOVED,
        Fault.TIMED_OUT: _RETRY_MOVED,
        Fault.GARBLED: _RETRY_ELSEWHERE,
    },
    Request.COMMIT: {
        Code.UNKNOWN_MEMBER_ID: _FORGOTTEN,
        Code.ILLEGAL_GENERATION: _LEFT_BEHIND,
        Code.STALE_MEMBER_EPOCH: _FORGOTTEN,
        # From v9 on, what older versions call an illegal generation of a group that is gone.
        Code.GROUP_ID_NOT_FOUND: _FORGOTTEN,
        Code.FENCED_INSTANCE_ID: _FENCED,
        # An assignment is awaited: the state passes, and with it the refusal.
        Code.REBALANCE_IN_PROGRESS: _RETRY,
        Code.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
        Code.COORDINATOR_NOT_AVAILABLE: _RETRY_ELSEWHERE,
        Code.NOT_COORDINATOR: _RETRY_MOVED,
        # Not written by enough replicas in time, or by a coordinator that is none any more.
        Code.REQUEST_TIMED_OUT: _RETRY_ELSEWHERE,
        Code.GROUP_AUTHORIZATION_FAILED: _FORBIDDEN,
        Code.INVALID_GROUP_ID: _IMPOSSIBLE,
        Code.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        Code.UNKNOWN_TOPIC_OR_PARTITION: _REFUSE,
        Code.OFFSET_METADATA_TOO_LARGE: _REFUSE,
        Code.INVALID_COMMIT_OFFSET_SIZE: _REFUSE,
        Code.TOPIC_AUTHORIZATION_FAILED: _REFUSE,
        Code.INVALID_REQUEST: _REFUSE,
        Code.UNKNOWN_SERVER_ERROR: _REFUSE,
        # Of commits in a transaction.
        Code.INVALID_PRODUCER_ID_MAPPING: _REFUSE,
        Code.INVALID_TXN_STATE: _REFUSE,
        # Sent again under the same generation id it does the same or is refused.
        Fault.LOST: _RETRY_MOVED,
        Fault.TIMED_OUT: _REFUSE,
        Fault.GARBLED: _RETRY_ELSEWHERE,
    },
    Request.FETCH_OFFSETS: {
        # A transaction that is about to end decides: never read it as "no offset" (KIP-447).
        Code.UNSTABLE_OFFSET_COMMIT: _RETRY,
        Code.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
        Code.COORDINATOR_NOT_AVAILABLE: _RETRY_ELSEWHERE,
        Code.NOT_COORDINATOR: _RETRY_MOVED,
        Code.REQUEST_TIMED_OUT: _RETRY_ELSEWHERE,
        Code.UNKNOWN_SERVER_ERROR: _RETRY,
        Code.ILLEGAL_GENERATION: _LEFT_BEHIND,
        Code.STALE_MEMBER_EPOCH: _LEFT_BEHIND,
        Code.UNKNOWN_MEMBER_ID: _FORGOTTEN,
        Code.GROUP_ID_NOT_FOUND: _FORGOTTEN,
        Code.UNKNOWN_TOPIC_OR_PARTITION: _RETRY,
        Code.GROUP_AUTHORIZATION_FAILED: _FORBIDDEN,
        Code.TOPIC_AUTHORIZATION_FAILED: _FORBIDDEN,
        Code.INVALID_GROUP_ID: _IMPOSSIBLE,
        Code.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        Fault.LOST: _RETRY_MOVED,
        Fault.TIMED_OUT: _RETRY_MOVED,
        Fault.GARBLED: _RETRY_ELSEWHERE,
    },
    Request.LEAVE: {
        Code.UNKNOWN_MEMBER_ID: _IGNORE,
        Code.FENCED_INSTANCE_ID: _IGNORE,
        Code.COORDINATOR_LOAD_IN_PROGRESS: _RETRY,
        Code.COORDINATOR_NOT_AVAILABLE: _RETRY_ELSEWHERE,
        Code.NOT_COORDINATOR: _RETRY_MOVED,
        # The session ends by itself; that keeps no program from closing.
        Code.GROUP_AUTHORIZATION_FAILED: _IGNORE,
        Code.INVALID_GROUP_ID: _IGNORE,
        Code.UNSUPPORTED_VERSION: _IGNORE,
        Code.UNKNOWN_SERVER_ERROR: _IGNORE,
        Fault.LOST: _RETRY_MOVED,
        Fault.TIMED_OUT: _IGNORE,
        Fault.GARBLED: _IGNORE,
    },
    Request.LIST_OFFSETS: {
        Code.UNKNOWN_TOPIC_OR_PARTITION: _RETRY_ELSEWHERE,
        Code.UNKNOWN_TOPIC_ID: _RETRY_ELSEWHERE,
        Code.LEADER_NOT_AVAILABLE: _RETRY_ELSEWHERE,
        Code.NOT_LEADER_OR_FOLLOWER: _RETRY_ELSEWHERE,
        Code.REPLICA_NOT_AVAILABLE: _RETRY_ELSEWHERE,
        Code.FENCED_LEADER_EPOCH: _RETRY_ELSEWHERE,
        Code.UNKNOWN_LEADER_EPOCH: _RETRY,
        Code.OFFSET_NOT_AVAILABLE: _RETRY,
        Code.KAFKA_STORAGE_ERROR: _RETRY_ELSEWHERE,
        Code.REQUEST_TIMED_OUT: _RETRY,
        Code.BROKER_NOT_AVAILABLE: _RETRY_ELSEWHERE,
        Code.UNKNOWN_SERVER_ERROR: _RETRY_ELSEWHERE,
        Code.TOPIC_AUTHORIZATION_FAILED: _FORBIDDEN,
        Code.UNSUPPORTED_FOR_MESSAGE_FORMAT: _IMPOSSIBLE,
        Code.INVALID_REQUEST: _IMPOSSIBLE,
        Code.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        Fault.LOST: _RETRY_ELSEWHERE,
        Fault.TIMED_OUT: _RETRY_ELSEWHERE,
        Fault.GARBLED: _RETRY_ELSEWHERE,
    },
    Request.METADATA: {
        # A topic that does not exist yet is watched until it does.
        Code.UNKNOWN_TOPIC_OR_PARTITION: _IGNORE,
        Code.UNKNOWN_TOPIC_ID: _IGNORE,
        Code.LEADER_NOT_AVAILABLE: _IGNORE,
        Code.REPLICA_NOT_AVAILABLE: _IGNORE,
        Code.LISTENER_NOT_FOUND: _IGNORE,
        Code.UNKNOWN_SERVER_ERROR: _RETRY,
        Code.TOPIC_AUTHORIZATION_FAILED: _FORBIDDEN,
        # KIP-1102: the brokers known so far are forgotten, and the first ones asked again.
        Code.REBOOTSTRAP_REQUIRED: _RETRY_ELSEWHERE,
        Code.CLUSTER_AUTHORIZATION_FAILED: _FORBIDDEN,
        Code.INVALID_TOPIC_EXCEPTION: _IMPOSSIBLE,
        Code.UNSUPPORTED_VERSION: _IMPOSSIBLE,
        Fault.LOST: _RETRY,
        Fault.TIMED_OUT: _RETRY,
        Fault.GARBLED: _RETRY,
    },
}

#: What follows a code that the request's rows do not name: a newer broker may send any.
OTHERWISE: Final[Mapping[Request, Move]] = {
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

LOOK_AGAIN: Final = Move(Then.RETRY, wait=Wait.YES)
"""What a watcher does about any failure of its look: it looks again an interval later. Rights to
a topic that are taken away while it is read end nothing: the data plane tells who reads it."""

_FAULTS: Final[Mapping[type[TransportError], Fault]] = {
    ConnectionLostError: Fault.LOST,
    RequestTimeoutError: Fault.TIMED_OUT,
    ProtocolError: Fault.GARBLED,
}


def move_for(request: Request, failure: int | Fault) -> Move:
    """The table's move for an error code or a fault."""
    if isinstance(failure, Fault):
        return MOVES[request].get(failure, OTHERWISE[request])
    if failure not in _NAMED:
        return OTHERWISE[request]
    return MOVES[request].get(Code(failure), OTHERWISE[request])


_NAMED: Final = frozenset(int(code) for code in Code)


def row_of(error: BrokerError | TransportError, asked: Request) -> Request:
    """Whose row an error belongs to.

    An answer says itself which request it answers: a look for the coordinator, or for a leader,
    may have failed on the way to what was asked.
    """
    if isinstance(error, BrokerError) and error.request in _SPELLED:
        return _SPELLED[error.request]
    return asked


_SPELLED: Final[Mapping[str, Request]] = {request.value: request for request in Request}


def decide(request: Request, error: BrokerError | TransportError) -> Move:
    """The table's move for an exception of a request."""
    if isinstance(error, BrokerError):
        return move_for(request, error.code)
    return move_for(request, _FAULTS[type(error)])


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
    move = move_for(request, code)
    kind: type[BrokerError] = move.error if move.then is Then.FAIL else BrokerError
    return kind(code, name, request.value, message)


_HINTS: Final[Mapping[tuple[Request, int], str]] = {
    (Request.JOIN, Code.GROUP_MAX_SIZE_REACHED): (
        "the group has as many members as the broker's group.max.size admits; stop a member or"
        " raise it there"
    ),
    (Request.JOIN, Code.INCONSISTENT_GROUP_PROTOCOL): (
        "no assignor of this member is known to all others, or the group id is used by another"
        " kind of client; give all members an assignor in common"
    ),
    (Request.JOIN, Code.INVALID_SESSION_TIMEOUT): (
        "session_timeout is outside of the broker's group.min.session.timeout.ms and"
        " group.max.session.timeout.ms"
    ),
    (Request.SYNC, Code.INCONSISTENT_GROUP_PROTOCOL): (
        "the coordinator took another assignor than it told this member"
    ),
    **{
        (request, Code.FENCED_INSTANCE_ID): (
            "another process has joined with this group_instance_id and taken this member's"
            " place; give each process its own"
        )
        for request in (Request.JOIN, Request.SYNC, Request.HEARTBEAT, Request.COMMIT)
    },
    **{
        (request, Code.GROUP_AUTHORIZATION_FAILED): (
            "the principal needs READ on the group; grant it on the cluster"
        )
        for request in Request
    },
    **{
        (request, Code.TOPIC_AUTHORIZATION_FAILED): (
            "the principal needs READ and DESCRIBE on the topic; grant it on the cluster"
        )
        for request in Request
    },
}
