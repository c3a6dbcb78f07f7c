"""Kafka's error codes, compared with kio's list of them."""

from __future__ import annotations

from kio.schema import errors

from kgroup.error_codes import ErrorCode, code_name


def test_every_code_of_kafka_is_there() -> None:
    """The names and numbers are exactly those that kio took from Kafka's ``Errors``."""
    theirs = {code.name.upper(): code.value for code in errors.ErrorCode}
    assert {code.name: code.value for code in ErrorCode} == theirs


def test_a_code_is_shown_by_its_name_or_its_number() -> None:
    """A number that Kafka does not define is shown as a number."""
    assert code_name(25) == "UNKNOWN_MEMBER_ID"
    assert code_name(9999) == "ERROR_9999"
    assert code_name(-1) == "UNKNOWN_SERVER_ERROR"
