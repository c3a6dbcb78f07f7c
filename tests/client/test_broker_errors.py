"""The exceptions of error codes: their classes and texts."""

from __future__ import annotations

from kgroup.client.broker_errors import broker_error
from kgroup.client.error_policy import Request
from kgroup.error_codes import ErrorCode
from kgroup.errors import AuthorizationError, BrokerError, FencedInstanceError


def test_an_error_says_what_failed_and_what_to_do() -> None:
    """The exception is that of the row, with code, request and a hint."""
    error = broker_error(Request.HEARTBEAT, ErrorCode.FENCED_INSTANCE_ID, "member 'm'")
    assert isinstance(error, FencedInstanceError)
    assert (error.code, error.name, error.request) == (82, "FENCED_INSTANCE_ID", "Heartbeat")
    assert "member 'm'" in str(error)
    assert "give each process its own" in str(error)
    session = broker_error(Request.JOIN, ErrorCode.INVALID_SESSION_TIMEOUT)
    assert "session_timeout must lie between" in str(session)
    assert "in seconds, not milliseconds" in str(session)
    denied = broker_error(Request.METADATA, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    assert isinstance(denied, AuthorizationError)
    assert "grant the user READ (it implies DESCRIBE) on the topic, or correct its name" in str(
        denied
    )
    unstable = broker_error(Request.FETCH_OFFSETS, ErrorCode.UNSTABLE_OFFSET_COMMIT, "t-0")
    assert "a transaction that is still open" in str(unstable)
    assert "`kafka-transactions` can find and end it" in str(unstable)
    plain = broker_error(Request.JOIN, 9999, hint="odd")
    assert type(plain) is BrokerError
    assert str(plain) == "JoinGroup was answered with ERROR_9999 (9999): odd"
