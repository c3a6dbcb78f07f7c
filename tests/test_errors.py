"""The exceptions: their base classes and their attributes."""

from __future__ import annotations

import inspect
import pickle

import pytest

from kgroup import errors
from kgroup.errors import (
    ArgumentError,
    AssignorTimeoutError,
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    CommitFailedError,
    CommitUnknownError,
    ConfigError,
    ConnectionLostError,
    DeadLetterError,
    FatalGroupError,
    FencedInstanceError,
    FetchError,
    GroupClosedError,
    GroupFullError,
    InconsistentProtocolError,
    InvalidAssignmentError,
    KgroupError,
    LeaseExpiredError,
    MemberIdRequiredError,
    NoOffsetError,
    NotOwnedError,
    NotSentError,
    OffsetBehindCommitError,
    OffsetBeyondReadError,
    OffsetOutOfRangeError,
    ProtocolError,
    RequestTimeoutError,
    StaleGenerationError,
    StartupTimeoutError,
    TransportError,
    UnsupportedVersionError,
    UsageError,
)
from kgroup.types import Cause, End, TopicPartition

P = TopicPartition("orders", 3)

#: The parent of each exception, which a handler may catch in its place.
PARENTS = {
    KgroupError: Exception,
    UsageError: KgroupError,
    ConfigError: UsageError,
    ArgumentError: UsageError,
    NotOwnedError: UsageError,
    OffsetBeyondReadError: UsageError,
    OffsetBehindCommitError: UsageError,
    InvalidAssignmentError: UsageError,
    AssignorTimeoutError: UsageError,
    GroupClosedError: UsageError,
    StaleGenerationError: KgroupError,
    LeaseExpiredError: StaleGenerationError,
    CommitFailedError: KgroupError,
    CommitUnknownError: KgroupError,
    StartupTimeoutError: KgroupError,
    BrokerError: KgroupError,
    MemberIdRequiredError: BrokerError,
    NotSentError: BrokerError,
    FatalGroupError: BrokerError,
    FencedInstanceError: FatalGroupError,
    AuthenticationError: FatalGroupError,
    AuthorizationError: FatalGroupError,
    InconsistentProtocolError: FatalGroupError,
    GroupFullError: FatalGroupError,
    UnsupportedVersionError: FatalGroupError,
    OffsetOutOfRangeError: KgroupError,
    NoOffsetError: KgroupError,
    FetchError: KgroupError,
    TransportError: KgroupError,
    ConnectionLostError: TransportError,
    RequestTimeoutError: TransportError,
    ProtocolError: TransportError,
    DeadLetterError: KgroupError,
}


def test_the_table_is_complete() -> None:
    """The table above has every exception of the module, with its first base class."""
    defined = {
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, Exception) and kind.__module__ == errors.__name__
    }
    assert defined == set(PARENTS)
    assert {kind: kind.__bases__[0] for kind in PARENTS} == PARENTS


def test_a_stale_generation_error_has_the_end() -> None:
    """A StaleGenerationError has the end of the generation, if it is known."""
    end = End(Cause.REBALANCE)
    assert StaleGenerationError("gone", end).end is end
    assert LeaseExpiredError("too late").end is None


def test_a_commit_failed_error_has_its_partitions() -> None:
    """Each refused partition has its error; the mapping is a copy."""
    refused = {P: BrokerError(12, "OFFSET_METADATA_TOO_LARGE", "OffsetCommit")}
    error = CommitFailedError("some", refused)
    refused.clear()
    assert [str(why) for why in error.partitions.values()] == [
        "OffsetCommit was answered with OFFSET_METADATA_TOO_LARGE (12)"
    ]


def test_a_broker_error_has_code_and_request() -> None:
    """Number, name and request are attributes; the default message has all three."""
    error = BrokerError(25, "UNKNOWN_MEMBER_ID", "Heartbeat")
    assert (error.code, error.name, error.request) == (25, "UNKNOWN_MEMBER_ID", "Heartbeat")
    assert str(error) == "Heartbeat was answered with UNKNOWN_MEMBER_ID (25)"
    assert str(BrokerError(25, "UNKNOWN_MEMBER_ID", "Heartbeat", "other words")) == "other words"


def test_the_error_has_the_given_member_id() -> None:
    """MEMBER_ID_REQUIRED has the member id with which to join again (KIP-394)."""
    error = MemberIdRequiredError("m-1", "orders")
    assert error.member_id == "m-1"
    assert error.code == 79
    assert "'m-1'" in str(error)
    assert "'orders'" in str(error)


def test_an_unreadable_position_is_named() -> None:
    """The error has the partition, and the position if the source knows it."""
    assert OffsetOutOfRangeError("no", P).offset == -1
    assert OffsetOutOfRangeError("no", P, 7).offset == 7
    assert FetchError("no").partition is None
    assert FetchError("no", P).partition == P


@pytest.mark.parametrize("kind", [TransportError, RequestTimeoutError, ProtocolError])
def test_a_transport_error_says_whether_the_request_was_sent(kind: type[TransportError]) -> None:
    """By default, nothing was sent."""
    assert not kind("broken").sent
    assert kind("broken", sent=True).sent


def test_a_lost_connection_says_whether_the_response_had_begun() -> None:
    """``answer_begun`` is False unless it is given."""
    assert not ConnectionLostError("gone", sent=True).answer_begun
    assert ConnectionLostError("gone", sent=True, answer_begun=True).answer_begun


def test_plain_errors_can_be_pickled() -> None:
    """A worker process can pass such errors on."""
    error = pickle.loads(pickle.dumps(GroupClosedError("closed")))  # noqa: S301 # our own bytes
    assert type(error) is GroupClosedError
    assert str(error) == "closed"


def test_a_long_list_is_shortened() -> None:
    """The first twenty items are shown, and how many there are besides."""
    assert errors.short_list([1, 2]) == "1, 2"
    assert errors.short_list(range(20), between="; ").count("; ") == 19
    assert errors.short_list(range(1021)).endswith("18, 19 and 1,001 more")
    group = ExceptionGroup("several", [ValueError("bad")] * 22)
    assert errors.in_one_line(group).endswith("; ValueError: bad; and 2 more errors)")
