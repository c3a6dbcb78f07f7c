"""The error codes that kgroup names, held against kio's list of Kafka's."""

from __future__ import annotations

from kio.schema import errors

from kgroup.error_codes import ErrorCode, code_name

_OTHERWISE_SPELLED = {"INVALID_TOPIC_EXCEPTION", "NOT_LEADER_OR_FOLLOWER"}


def test_every_code_has_kafka_s_number() -> None:
    """Name and number of each are those that kio took from Kafka's ``Errors``."""
    theirs = {code.name.upper(): code.value for code in errors.ErrorCode}
    for code in ErrorCode:
        if code.name in theirs:
            assert theirs[code.name] == code.value
        else:
            assert code.name in _OTHERWISE_SPELLED | {"REBOOTSTRAP_REQUIRED"}


def test_a_code_is_called_by_its_name_or_its_number() -> None:
    """Codes without a name are still told apart."""
    assert code_name(25) == "UNKNOWN_MEMBER_ID"
    assert code_name(9999) == "ERROR_9999"
    assert code_name(-1) == "UNKNOWN_SERVER_ERROR"
