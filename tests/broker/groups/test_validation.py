"""The checks before a group is looked up."""

from __future__ import annotations

import typing

import pytest

from kgroup.broker.groups.requests import Request
from kgroup.broker.groups.validation import ABSENT_GROUP_RULES, PRECONDITIONS
from kgroup.error_codes import ErrorCode
from tests.broker.groups.harness import Harness


def test_every_request_has_preconditions() -> None:
    """No request gets in without checks, and absent groups are decided for all that name one."""
    assert set(PRECONDITIONS) == set(typing.get_args(Request))
    assert set(ABSENT_GROUP_RULES) < set(PRECONDITIONS)


@pytest.mark.parametrize(
    ("session", "error"),
    [
        (0.099, ErrorCode.INVALID_SESSION_TIMEOUT),
        (0.1, ErrorCode.MEMBER_ID_REQUIRED),
        (1800.0, ErrorCode.MEMBER_ID_REQUIRED),
        (1800.001, ErrorCode.INVALID_SESSION_TIMEOUT),
    ],
)
def test_session_range(session: float, error: ErrorCode) -> None:
    """The limits themselves are allowed; the id that was sent is echoed."""
    response = Harness().client("m", session=session).join_now()
    assert response.error is error


def test_empty_group_id() -> None:
    """24 for members and transactions, before the session range; commits know 69 instead."""
    harness = Harness()
    m1 = harness.client("m1", group_id="", id="x", session=0.001, generation=5)
    response = m1.join_now()
    assert (response.error, response.member_id) == (ErrorCode.INVALID_GROUP_ID, "x")
    assert m1.synced().error is ErrorCode.INVALID_GROUP_ID
    assert m1.heartbeat() is ErrorCode.INVALID_GROUP_ID
    assert m1.leave().error is ErrorCode.INVALID_GROUP_ID
    assert m1.leave().members == ()
    assert m1.commit_in_transaction() is ErrorCode.INVALID_GROUP_ID
    assert m1.commit() is ErrorCode.GROUP_ID_NOT_FOUND
    assert harness.fetch("t1-0", group_id="") == {"t1-0": -1}
    assert m1.like(id="", generation=-1).commit("t1-0", 4) is ErrorCode.NONE
    assert harness.fetch(group_id="") == {"t1-0": 4}


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_sync_v5_must_name_its_protocol(missing: str) -> None:
    """A null protocol type or name is 23 before everything, even before 24; v4 may."""
    m1 = Harness().client("m1", group_id="")
    assert m1.synced(None, **{missing: None}).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    response = m1.synced(None, version=4, protocol_type=None, protocol_name=None)
    assert response.error is ErrorCode.INVALID_GROUP_ID
