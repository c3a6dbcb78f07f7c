"""A response is fitted to the fields of a version."""

from __future__ import annotations

from datetime import timedelta

import pytest

from kgroup.broker.response_versions import fit_response
from kgroup.error_codes import ErrorCode

JOINED = {
    "error_code": ErrorCode.NONE,
    "generation_id": 3,
    "protocol_type": None,
    "protocol_name": None,
    "leader": "m",
    "skip_assignment": True,
    "member_id": "m",
    "members": [{"member_id": "m", "group_instance_id": "i", "metadata": b""}],
}


def test_a_version_gets_the_fields_it_has() -> None:
    """Fields of later versions are left out, nested ones too; the throttle time is zero."""
    old, new = fit_response("join_group", 0, JOINED), fit_response("join_group", 9, JOINED)
    assert not hasattr(old, "skip_assignment")
    assert not hasattr(old.members[0], "group_instance_id")
    assert new.skip_assignment
    assert new.members[0].group_instance_id == "i"
    assert new.throttle_time == timedelta(0)


def test_null_is_empty_where_there_is_no_null() -> None:
    """A text that the version cannot send as null becomes empty."""
    assert fit_response("join_group", 6, JOINED).protocol_name == ""
    assert fit_response("join_group", 9, JOINED).protocol_name is None


def test_an_array_may_be_null_only_where_kafka_says() -> None:
    """None becomes an empty array where null is not allowed."""
    assert fit_response("join_group", 9, {**JOINED, "members": None}).members == ()
    fetched = {
        "partition_index": 0,
        "error_code": 0,
        "high_watermark": 0,
        "aborted_transactions": None,
        "records": b"",
    }
    topics = [{"topic": "t", "partitions": [fetched]}]
    answer = fit_response("fetch", 4, {"error_code": 0, "responses": topics})
    assert answer.responses[0].partitions[0].aborted_transactions is None


def test_error_codes_of_any_making_fit() -> None:
    """The coordinator's codes, kio's, and unknown numbers are sent as numbers."""
    for code in (ErrorCode.UNKNOWN_MEMBER_ID, 25, 999):
        assert int(fit_response("heartbeat", 4, {"error_code": code}).error_code) == int(code)


def test_a_misspelt_field_is_a_defect() -> None:
    """A name that no version has raises; it is not ignored."""
    with pytest.raises(ValueError, match="no version of HeartbeatResponse has a field eror"):
        fit_response("heartbeat", 4, {"error_code": 0, "eror": 1})


def test_a_missing_field_is_a_defect() -> None:
    """A field without a default must be set."""
    with pytest.raises(ValueError, match="HeartbeatResponse v4 needs error_code"):
        fit_response("heartbeat", 4, {})
