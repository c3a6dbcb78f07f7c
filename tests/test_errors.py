"""The tree of exceptions: what is caught as what, and what each carries."""

from __future__ import annotations

import inspect
import pickle

import pytest

from kgroup import errors
from kgroup.errors import (
    ArgumentError,
    AssignorTimeoutError,
    AuthorizationError,
    BrokerError,
    CommitFailedError,
    CommitUnknownError,
    ConfigError,
    ConnectionLostError,
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
    OffsetBehindFloorError,
    OffsetBeyondReadError,
    OffsetOutOfRangeError,
    ProtocolError,
    RequestTimeoutError,
    StaleGenerationError,
    TransportError,
    UnsupportedVersionError,
    UsageError,
)
from kgroup.types import Cause, End, TopicPartition

P = TopicPartition("orders", 3)

#: Whom each exception is caught with, as their docstrings tell it.
PARENTS = {
    KgroupError: Exception,
    UsageError: KgroupError,
    ConfigError: UsageError,
    ArgumentError: UsageError,
    NotOwnedError: UsageError,
    OffsetBeyondReadError: UsageError,
    OffsetBehindFloorError: UsageError,
    InvalidAssignmentError: UsageError,
    AssignorTimeoutError: UsageError,
    GroupClosedError: UsageError,
    StaleGenerationError: KgroupError,
    LeaseExpiredError: StaleGenerationError,
    CommitFailedError: KgroupError,
    CommitUnknownError: KgroupError,
    BrokerError: KgroupError,
    MemberIdRequiredError: BrokerError,
    FatalGroupError: BrokerError,
    FencedInstanceError: FatalGroupError,
    AuthorizationError: FatalGroupError,
    InconsistentProtocolError: FatalGroupError,
    GroupFullError: FatalGroupError,
    OffsetOutOfRangeError: KgroupError,
    NoOffsetError: KgroupError,
    FetchError: KgroupError,
    TransportError: KgroupError,
    ConnectionLostError: TransportError,
    RequestTimeoutError: TransportError,
    ProtocolError: TransportError,
    UnsupportedVersionError: KgroupError,
}


def test_the_tree_is_whole() -> None:
    """Every exception of the module has its place, and there is no other."""
    defined = {
        kind
        for _, kind in inspect.getmembers(errors, inspect.isclass)
        if issubclass(kind, Exception) and kind.__module__ == errors.__name__
    }
    assert defined == set(PARENTS)
    assert {kind: kind.__bases__[0] for kind in PARENTS} == PARENTS


def test_a_stale_commit_knows_the_end() -> None:
    """What ended the generation is there to look at, where it is known."""
    end = End(Cause.REBALANCE)
    assert StaleGenerationError("gone", end).end is end
    assert LeaseExpiredError("too late").end is None


def test_a_failed_commit_knows_its_partitions() -> None:
    """Each refused partition has its error; later changes to what was given do not matter."""
    refused = {P: BrokerError(12, "OFFSET_METADATA_TOO_LARGE", "OffsetCommit")}
    error = CommitFailedError("some", refused)
    refused.clear()
    assert [str(why) for why in error.partitions.values()] == [
        "OffsetCommit was answered with OFFSET_METADATA_TOO_LARGE (12)"
    ]


def test_a_broker_s_error_says_which_and_of_what() -> None:
    """Number, name and request are there, and in the words unless others are given."""
    error = BrokerError(25, "UNKNOWN_MEMBER_ID", "Heartbeat")
    assert (error.code, error.name, error.request) == (25, "UNKNOWN_MEMBER_ID", "Heartbeat")
    assert str(error) == "Heartbeat was answered with UNKNOWN_MEMBER_ID (25)"
    assert str(BrokerError(25, "UNKNOWN_MEMBER_ID", "Heartbeat", "other words")) == "other words"


def test_a_given_member_id_is_carried() -> None:
    """It is what to join again with (KIP-394)."""
    error = MemberIdRequiredError("m-1", "orders")
    assert error.member_id == "m-1"
    assert error.code == 79
    assert "'m-1'" in str(error)
    assert "'orders'" in str(error)


def test_what_an_unreadable_position_tells() -> None:
    """The partition, and the position where the source knows it."""
    assert OffsetOutOfRangeError("no", P).offset == -1
    assert OffsetOutOfRangeError("no", P, 7).offset == 7
    assert FetchError("no").partition is None
    assert FetchError("no", P).partition == P


@pytest.mark.parametrize("kind", [TransportError, RequestTimeoutError, ProtocolError])
def test_a_fault_of_the_way_says_whether_it_was_sent(kind: type[TransportError]) -> None:
    """Unless told, nothing was."""
    assert not kind("broken").sent
    assert kind("broken", sent=True).sent


def test_a_lost_connection_knows_of_an_answer_begun() -> None:
    """Only then the broker has certainly acted."""
    assert not ConnectionLostError("gone", sent=True).answer_begun
    assert ConnectionLostError("gone", sent=True, answer_begun=True).answer_begun


def test_plain_ones_go_between_processes() -> None:
    """A worker process can hand its error on."""
    error = pickle.loads(pickle.dumps(GroupClosedError("closed")))  # noqa: S301 # our own bytes
    assert type(error) is GroupClosedError
    assert str(error) == "closed"
