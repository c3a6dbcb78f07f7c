"""What to grant, for each error about a permission."""

from __future__ import annotations

import pytest

from kgroup.error_codes import ErrorCode
from kgroup.permissions import to_grant


def test_every_error_about_a_permission_has_advice() -> None:
    """Every such error of Kafka's says what to grant, and no other error does."""
    for code in ErrorCode:
        assert bool(to_grant(code)) is code.name.endswith("_AUTHORIZATION_FAILED")
    assert not to_grant(9999)


@pytest.mark.parametrize(
    ("code", "advice"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, "grant the user WRITE on topic 't'"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "grant the user WRITE on group 'g'"),
        (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "grant the user IDEMPOTENT_WRITE on the cluster"),
        (
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "grant the user WRITE on the transactional id",
        ),
    ],
)
def test_the_error_decides_on_what(code: ErrorCode, advice: str) -> None:
    """The advice names the topic or the group, whichever the broker refused."""
    assert to_grant(code, "WRITE", topic="t", group="g") == advice


def test_a_member_needs_more_than_to_describe() -> None:
    """Without an operation the advice is what a member of a group needs."""
    assert to_grant(ErrorCode.TOPIC_AUTHORIZATION_FAILED) == (
        "grant the user READ (it implies DESCRIBE) on the topic"
    )
    assert to_grant(ErrorCode.GROUP_AUTHORIZATION_FAILED) == "grant the user READ on the group"


def test_a_name_may_be_wrong_instead() -> None:
    """Kafka tells a user without rights neither of a topic nor of a group that does not exist."""
    topic = to_grant(ErrorCode.TOPIC_AUTHORIZATION_FAILED, may_be_missing=True)
    assert topic.endswith(
        ", or correct its name: Kafka gives the same error for a topic that does not exist"
    )
    group = to_grant(ErrorCode.GROUP_AUTHORIZATION_FAILED, may_be_missing=True)
    assert group.endswith("the same error for a group that does not exist")
    cluster = to_grant(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, may_be_missing=True)
    assert cluster == "grant the user DESCRIBE on the cluster"
