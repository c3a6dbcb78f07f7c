"""What to grant to a client whose request a broker refused because a permission is missing.

All errors about permissions have their advice from `to_grant`, whichever client got the error.

READ, WRITE, DELETE and ALTER imply DESCRIBE, so one operation is enough unless DESCRIBE is denied.

Source: Kafka's ``KafkaApis``, the table of operations and resources in its documentation, and
``AclAuthorizer`` and ``StandardAuthorizerData`` (``IMPLIES_DESCRIBE``).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kgroup.error_codes import ErrorCode

_NEEDED: Final[Mapping[int, tuple[str, str]]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: ("READ (it implies DESCRIBE)", "the topic"),
    ErrorCode.GROUP_AUTHORIZATION_FAILED: ("READ", "the group"),
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: ("DESCRIBE", "the cluster"),
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ("WRITE", "the transactional id"),
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: ("DESCRIBE", "the delegation token"),
}
"""For each error the operation that a member needs, and on what."""
_EITHER: Final[Mapping[int, str]] = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "topic",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "group",
}
"""The errors that brokers give also for what does not exist, so that names cannot be guessed."""


def to_grant(
    code: int,
    operation: str = "",
    *,
    topic: str = "",
    group: str = "",
    may_be_missing: bool = False,
) -> str:
    """What to grant after an error, such as "grant the user READ on topic 'orders'".

    Args:
        code: Kafka's number of the error.
        operation: what the request needs on the topic or the group; by default what a member needs.
        topic: the topic that the request is about, if the text around this one does not name it.
        group: the group, likewise.
        may_be_missing: whether nothing shows that the topic or the group exists, so that the name
            may be wrong instead.

    Returns:
        a part of a sentence; empty if the error is not about a permission.
    """
    needed = _NEEDED.get(code)
    if needed is None:
        return ""
    usual, resource = needed
    if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        usual, resource = operation or usual, f"topic {topic!r}" if topic else resource
    elif code == ErrorCode.GROUP_AUTHORIZATION_FAILED:
        usual, resource = operation or usual, f"group {group!r}" if group else resource
    elif code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and operation == "WRITE":
        usual = "IDEMPOTENT_WRITE"  # for its id, a producer needs this, or WRITE on any topic
    grant = f"grant the user {usual} on {resource}"
    if may_be_missing and code in _EITHER:
        grant += f", or correct its name: Kafka gives the same error for a {_EITHER[code]} that"
        grant += " does not exist"
    return grant
