"""The table of the error policy: complete, by Kafka's own sources, and sound."""

from __future__ import annotations

import math

import pytest

from kgroup.client.broker_errors import broker_error
from kgroup.client.error_policy import (
    OTHERWISE,
    REACTIONS,
    Action,
    MemberId,
    Request,
    TransportFailure,
    failed_request,
    others_to_ask,
    reaction_to,
    reaction_to_code,
)
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    AuthenticationError,
    BrokerError,
    ConnectionLostError,
    FatalGroupError,
    ProtocolError,
    RequestTimeoutError,
    TransportError,
)
from kgroup.types import Cause

_ALWAYS = {"UNKNOWN_SERVER_ERROR", "UNSUPPORTED_VERSION"}
"""What ``KafkaApis`` answers to any request: a defect, or a version that it does not serve."""
_COORDINATOR = {
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "NOT_COORDINATOR",
    "INVALID_GROUP_ID",
    "GROUP_AUTHORIZATION_FAILED",
}
"""What every request to a coordinator can be answered with (``GroupCoordinatorService`` and
``CoordinatorOperationExceptionHelper``)."""

#: What Kafka's sources can answer to each request of a classic consumer group, by Kafka's names:
#: ``KafkaApis``, ``GroupCoordinatorService``, ``GroupMetadataManager``, ``OffsetMetadataManager``,
#: ``ClassicGroup``, ``ReplicaManager``, ``KRaftMetadataCache``, and the comments of the response
#: classes. Left out is what needs another request than a classic group makes: transactional ids
#: as coordinator keys, offsets by topic id, share groups.
KAFKA_ANSWERS = {
    Request.FIND_COORDINATOR: _ALWAYS
    | {
        "COORDINATOR_LOAD_IN_PROGRESS",
        "COORDINATOR_NOT_AVAILABLE",
        "INVALID_GROUP_ID",
        "GROUP_AUTHORIZATION_FAILED",
        "INVALID_REQUEST",
    },
    Request.JOIN: _ALWAYS
    | _COORDINATOR
    | {
        "INCONSISTENT_GROUP_PROTOCOL",
        "UNKNOWN_MEMBER_ID",
        "INVALID_SESSION_TIMEOUT",
        "REBALANCE_IN_PROGRESS",
        "MEMBER_ID_REQUIRED",
        "GROUP_MAX_SIZE_REACHED",
        "FENCED_INSTANCE_ID",
        "INVALID_REQUEST",
    },
    Request.SYNC: _ALWAYS
    | _COORDINATOR
    | {
        "ILLEGAL_GENERATION",
        "INCONSISTENT_GROUP_PROTOCOL",
        "UNKNOWN_MEMBER_ID",
        "REBALANCE_IN_PROGRESS",
        "FENCED_INSTANCE_ID",
    },
    Request.DESCRIBE: _ALWAYS | _COORDINATOR | {"GROUP_ID_NOT_FOUND"},
    Request.HEARTBEAT: _ALWAYS
    | _COORDINATOR
    | {
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "REBALANCE_IN_PROGRESS",
        "FENCED_INSTANCE_ID",
    },
    Request.COMMIT: _ALWAYS
    | _COORDINATOR
    | {
        "UNKNOWN_TOPIC_OR_PARTITION",
        "REQUEST_TIMED_OUT",
        "OFFSET_METADATA_TOO_LARGE",
        "ILLEGAL_GENERATION",
        "UNKNOWN_MEMBER_ID",
        "REBALANCE_IN_PROGRESS",
        "INVALID_COMMIT_OFFSET_SIZE",
        "TOPIC_AUTHORIZATION_FAILED",
        "INVALID_PRODUCER_ID_MAPPING",
        "INVALID_TXN_STATE",
        "GROUP_ID_NOT_FOUND",
        "STALE_MEMBER_EPOCH",
        "FENCED_INSTANCE_ID",
    },
    Request.FETCH_OFFSETS: _ALWAYS
    | _COORDINATOR
    | {
        "UNKNOWN_TOPIC_OR_PARTITION",
        "TOPIC_AUTHORIZATION_FAILED",
        "UNSTABLE_OFFSET_COMMIT",
        "UNKNOWN_MEMBER_ID",
        "STALE_MEMBER_EPOCH",
    },
    Request.LEAVE: _ALWAYS | _COORDINATOR | {"UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"},
    Request.LIST_OFFSETS: _ALWAYS
    | {
        "UNSUPPORTED_FOR_MESSAGE_FORMAT",
        "TOPIC_AUTHORIZATION_FAILED",
        "REPLICA_NOT_AVAILABLE",
        "NOT_LEADER_OR_FOLLOWER",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "KAFKA_STORAGE_ERROR",
        "LEADER_NOT_AVAILABLE",
        "OFFSET_NOT_AVAILABLE",
        "INVALID_REQUEST",
    },
    Request.EPOCH_ENDS: _ALWAYS
    | {
        "TOPIC_AUTHORIZATION_FAILED",
        "NOT_LEADER_OR_FOLLOWER",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "UNKNOWN_TOPIC_OR_PARTITION",
        "KAFKA_STORAGE_ERROR",
        "OFFSET_NOT_AVAILABLE",
    },
    Request.METADATA: _ALWAYS
    | {
        "UNKNOWN_TOPIC_OR_PARTITION",
        "LEADER_NOT_AVAILABLE",
        "REPLICA_NOT_AVAILABLE",
        "LISTENER_NOT_FOUND",
        "INVALID_TOPIC_EXCEPTION",
        "TOPIC_AUTHORIZATION_FAILED",
        "UNKNOWN_TOPIC_ID",
        "REBOOTSTRAP_REQUIRED",
    },
}


@pytest.mark.parametrize("request_", Request, ids=lambda request: request.value)
def test_every_answer_of_kafka_has_a_row(request_: Request) -> None:
    """Every error with which Kafka's sources can respond has a row."""
    named = {row.name for row in REACTIONS[request_] if isinstance(row, ErrorCode)}
    assert KAFKA_ANSWERS[request_] <= named


@pytest.mark.parametrize("request_", Request, ids=lambda request: request.value)
def test_every_request_has_a_reaction_to_every_transport_failure(request_: Request) -> None:
    """A lost connection, a timeout and an invalid response have rows; so has any other code."""
    assert set(TransportFailure) <= set(REACTIONS[request_])
    assert request_ in OTHERWISE


ROWS = [
    pytest.param(request, failure, reaction, id=f"{request.value}-{failure.name}")
    for request, rows in REACTIONS.items()
    for failure, reaction in rows.items()
]


@pytest.mark.parametrize(("request_", "failure", "reaction"), ROWS)
def test_rows_are_sound(
    request_: Request, failure: ErrorCode | TransportFailure, reaction: object
) -> None:
    """No row has an action that its request does not support, or an error that is not raised."""
    row = reaction_to_code(request_, failure)
    assert row is reaction
    if row.action is not Action.FAIL:
        assert row.error is FatalGroupError
    if row.action is Action.LOST:
        assert row.cause in (Cause.MEMBERSHIP_LOST, Cause.FENCED)
    if row.action is Action.DRAIN:
        assert request_ is Request.HEARTBEAT
    if row.action is Action.REFUSE:
        assert request_ is Request.COMMIT
    if row.retry_for < math.inf:
        assert (request_, row.action) == (Request.COMMIT, Action.RETRY)
    if row.action is Action.REJOIN:
        assert request_ in (Request.JOIN, Request.SYNC, Request.DESCRIBE)
    if row.member_id is MemberId.TAKE:
        assert failure is ErrorCode.MEMBER_ID_REQUIRED
    if row.leave:
        assert row.member_id is MemberId.DROP
    if request_ in (Request.HEARTBEAT, Request.COMMIT) and row.action in (Action.LOST, Action.FAIL):
        assert row.cause is not None
        assert not row.cause.can_commit
    assert str(row).startswith(row.action.value)


def test_a_code_that_no_row_names_follows_otherwise() -> None:
    """Codes of Kafka without a row, and numbers that no Kafka has yet, have a reaction."""
    for request in Request:
        for code in (41, 9999, -5):
            assert reaction_to_code(request, code) is OTHERWISE[request]
    assert reaction_to_code(Request.SYNC, ErrorCode.OFFSET_OUT_OF_RANGE) is OTHERWISE[Request.SYNC]


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (ConnectionLostError("gone"), TransportFailure.LOST),
        (RequestTimeoutError("late", sent=True), TransportFailure.TIMED_OUT),
        (RequestTimeoutError("not connected in time"), TransportFailure.LOST),
        (ProtocolError("what?"), TransportFailure.INVALID),
    ],
)
def test_transport_errors_have_their_rows(error: TransportError, fault: TransportFailure) -> None:
    """A transport error has its failure's reaction; an unsent timeout is a lost connection."""
    for request in Request:
        assert reaction_to(request, error) is REACTIONS[request][fault]


def test_an_error_belongs_to_the_request_that_it_answers() -> None:
    """A failed lookup before another request has the reaction of its own row."""
    found = broker_error(Request.FIND_COORDINATOR, ErrorCode.INVALID_GROUP_ID)
    assert failed_request(found, Request.JOIN) is Request.FIND_COORDINATOR
    versions = BrokerError(-1, "UNKNOWN_SERVER_ERROR", "ApiVersions")
    assert failed_request(versions, Request.HEARTBEAT) is Request.HEARTBEAT
    assert failed_request(ConnectionLostError("gone"), Request.SYNC) is Request.SYNC


def test_how_many_other_addresses_are_tried_after_a_refused_connection() -> None:
    """Only what may be a wrong password, or the program's own failure, is limited."""
    code = int(ErrorCode.SASL_AUTHENTICATION_FAILED)
    for request, number, others in (
        ("SASL login", code, 1),
        (AuthenticationError.LOOKUP, code, 0),
        ("SASL login", int(ErrorCode.UNSUPPORTED_SASL_MECHANISM), math.inf),
    ):
        error = AuthenticationError(number, "NAME", request, "as scripted")
        assert others_to_ask(error) == others
    assert others_to_ask(AuthenticationError.in_tls("as scripted")) == math.inf
