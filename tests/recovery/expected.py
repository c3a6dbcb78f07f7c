"""The expected effect of each row of the error policy, by an interpreter that is not kgroup's.

`expected` returns an `Expect`: the next requests, the wait, what the program sees, how the
generation ends. It uses none of kgroup's code that follows the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, final

import attrs

from kgroup.client.error_policy import Action, MemberId, Reaction, Request, TransportFailure, Wait
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    CommitFailedError,
    CommitUnknownError,
    KgroupError,
    StaleGenerationError,
)
from kgroup.types import Cause
from tests.recovery.observed_member import APIS

KEPT, NONE, ANY = "the same id", "no id", "whatever id"
FIRST_BACKOFF: Final = 0.1
JITTER: Final = 0.2
AT_ONCE: Final = (0.0, 0.0)
_RUNNING: Final = {Request.HEARTBEAT, Request.COMMIT}
"""The requests that fail while a generation runs."""
TO_LEADERS: Final = {Request.LIST_OFFSETS, Request.EPOCH_ENDS}
"""The requests to partition leaders, which are looked up before each further attempt."""
_WITHOUT_ID: Final = {Request.FIND_COORDINATOR}
"""The requests that are sent before the member has an id."""


@final
@attrs.frozen(kw_only=True)
class Expect:
    """What must follow a failure.

    Attributes:
        wire: the next requests, and which member id each has.
        wait: seconds between the failure and the last of them, at least and at most.
        fatal: the exact class that `next()` raises; None if it returns a generation.
        call: the class that the commit raises.
        cause: how the running generation ends; None if it continues.
        only: whether nothing but ``wire`` is sent until the end.
    """

    wire: Sequence[tuple[str, str]]
    wait: tuple[float, float] = AT_ONCE
    fatal: type[KgroupError] | None = None
    call: type[KgroupError] | None = None
    cause: Cause | None = None
    only: bool = False


def after_wait(nth: int = 1) -> tuple[float, float]:
    """The bounds of the nth wait of a series."""
    wait = FIRST_BACKOFF * 2 ** (nth - 1)
    return (wait * (1 - JITTER), wait * (1 + JITTER))


def expected(
    request: Request, failure: int | TransportFailure, reaction: Reaction, times: int = 1
) -> Expect:
    """What must follow after so many failures in a row."""
    wire: list[tuple[str, str]] = []
    join_id = NONE if reaction.member_id is MemberId.DROP else KEPT
    if reaction.leave and not (request is Request.JOIN and times > 1):
        wire.append(("leave_group", KEPT))
    if reaction.find and request not in {*TO_LEADERS, Request.METADATA}:
        wire.append(("find_coordinator", ANY))
    call: type[KgroupError] | None = None
    cause = reaction.cause if request in _RUNNING else None
    if request is Request.COMMIT:
        call = _raised_by_commit(failure, reaction)
    match reaction.action:
        case Action.RETRY:
            again = [("metadata", ANY)] if request in TO_LEADERS else []
            wire += [*again, (APIS[request], KEPT)]
        case Action.REJOIN | Action.LOST:
            wire.append(("join_group", join_id))
        case Action.DRAIN:
            wire += [("offset_commit", KEPT), ("join_group", join_id)]
        case Action.FAIL:
            left = [] if request in _WITHOUT_ID else [("leave_group", KEPT)]
            return Expect(wire=left, fatal=reaction.error, call=call, cause=cause, only=True)
        case Action.IGNORE:
            wire += [("sync_group", KEPT)] if request is Request.METADATA else []
        case Action.REFUSE:
            pass
    return Expect(wire=wire, wait=_wait(reaction, times), call=call, cause=cause)


def _wait(reaction: Reaction, times: int) -> tuple[float, float]:
    if reaction.wait is Wait.YES:
        return after_wait(times)
    if reaction.wait is Wait.IF_REPEATED and times > 1:
        return after_wait(times - 1)
    return AT_ONCE


def _raised_by_commit(
    failure: int | TransportFailure, reaction: Reaction
) -> type[KgroupError] | None:
    if reaction.action in (Action.LOST, Action.FAIL):
        return StaleGenerationError
    if reaction.action is Action.REFUSE:
        return CommitUnknownError if failure is TransportFailure.TIMED_OUT else CommitFailedError
    return None


def reported(
    request: Request, failure: int | TransportFailure, reaction: Reaction
) -> tuple[bool, bool]:
    """Whether the failure is reported by RequestFailed, and whether by CommitRefused."""
    planned = {
        (Request.JOIN, ErrorCode.MEMBER_ID_REQUIRED),
        (Request.SYNC, ErrorCode.REBALANCE_IN_PROGRESS),
        (Request.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS),
    }
    ignored_topic = request is Request.METADATA and reaction.action is Action.IGNORE
    if (request, failure) in planned or ignored_topic:
        return False, False
    if request is Request.COMMIT and not isinstance(failure, TransportFailure):
        return reaction.action is Action.RETRY, reaction.action is not Action.RETRY
    if request is Request.COMMIT and failure is TransportFailure.TIMED_OUT:
        return False, True  # its outcome is unknown
    return True, False
