"""The exception for an error code in a response: its class, its text, and what its reader can do.

The class is that of the error policy (``kgroup.client.error_policy``), which decides what kgroup
does. This module decides what the reader of the error learns.

To add an error code: see there first, then add to ``_HINTS`` what the reader of the error can do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kgroup.client.error_policy import Action, Request, reaction_to_code
from kgroup.error_codes import ErrorCode, code_name
from kgroup.errors import BrokerError
from kgroup.permissions import to_grant


def broker_error(request: Request, code: int, about: str = "", hint: str = "") -> BrokerError:
    """The exception for an error code in a request's response.

    Where the reaction is FAIL, it is of the class that the reaction names, so that callers can
    raise it as it is.
    """
    name = code_name(code)
    message = f"{request.value}{f' for {about}' if about else ''} was answered with {name} ({code})"
    if detail := hint or advice(request, code):
        message = f"{message}: {detail}"
    reaction = reaction_to_code(request, code)
    kind: type[BrokerError] = reaction.error if reaction.action is Action.FAIL else BrokerError
    return kind(code, name, request.value, message)


def advice(request: Request, code: int, topic: str = "") -> str:
    """What the reader of an error can do, as part of a sentence; empty if nothing is known.

    Args:
        request: the request that was answered.
        code: Kafka's number of the error.
        topic: the topic that the error is about, if the text around this one does not name it.
    """
    # Whichever topic another request is about, metadata has shown that it exists.
    grant = to_grant(code, topic=topic, may_be_missing=request is Request.METADATA)
    return _HINTS.get((request, code), "") or grant


_HINTS: Final[Mapping[tuple[Request, int], str]] = {
    (Request.COMMIT, ErrorCode.OFFSET_METADATA_TOO_LARGE): (
        "commit less metadata, or raise offset.metadata.max.bytes on the broker"
    ),
    (Request.COMMIT, ErrorCode.INVALID_COMMIT_OFFSET_SIZE): (
        "commit fewer partitions in one call, or raise max.message.bytes of __consumer_offsets"
    ),
    (Request.COMMIT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION): (
        "the topic was deleted, or the coordinator does not know it yet"
    ),
    (Request.FETCH_OFFSETS, ErrorCode.UNSTABLE_OFFSET_COMMIT): (
        "a transaction that is still open has added offsets of this partition. Its producer ends"
        " it, or else the brokers do, up to 10 s after its transaction.timeout.ms. If it lasts"
        " longer, it hangs in the brokers: `kafka-transactions` can find and end it"
    ),
    (Request.JOIN, ErrorCode.GROUP_MAX_SIZE_REACHED): (
        "the group has as many members as the broker's group.max.size allows; stop a member, or"
        " raise the limit on the broker"
    ),
    (Request.JOIN, ErrorCode.INCONSISTENT_GROUP_PROTOCOL): (
        "the members have no assignor in common, or another kind of client uses this group id; give"
        " all members a common assignor"
    ),
    (Request.JOIN, ErrorCode.INVALID_SESSION_TIMEOUT): (
        "session_timeout must lie between the broker's group.min.session.timeout.ms and"
        " group.max.session.timeout.ms (by default 6 s and 30 min); it is in seconds, not"
        " milliseconds"
    ),
    (Request.SYNC, ErrorCode.INCONSISTENT_GROUP_PROTOCOL): (
        "the coordinator chose another assignor than its JoinGroup response says"
    ),
    **{
        (request, ErrorCode.FENCED_INSTANCE_ID): (
            "another process joined with the same group_instance_id and replaced this member. If a"
            " supervisor started it in place of this process, after a freeze for example, all is"
            " well, and this process should end; otherwise give each process its own"
            " group_instance_id. If there is no other one, a JoinGroup of this process that had got"
            " no answer arrived late: start it again"
        )
        for request in (Request.JOIN, Request.SYNC, Request.HEARTBEAT, Request.COMMIT)
    },
}
