"""The error policy, row by row: the requests and errors that follow each failure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
import pytest
import trio
from trio.testing import MockClock

from kgroup.client.error_policy import (
    OTHERWISE,
    REACTIONS,
    Action,
    Reaction,
    Request,
    TransportFailure,
)
from kgroup.error_codes import ErrorCode, code_name
from kgroup.errors import (
    CommitFailedError,
    CommitUnknownError,
    FencedInstanceError,
    GroupFullError,
    InconsistentProtocolError,
    StaleGenerationError,
)
from kgroup.events import CommitRefused, GenerationEnded, TopicsMissing
from kgroup.generation.states import State
from kgroup.types import Cause
from tests.group.harness import P0, harness
from tests.recovery.connections import Sent, Trouble
from tests.recovery.expected import (
    ANY,
    AT_ONCE,
    KEPT,
    NONE,
    TO_LEADERS,
    Expect,
    after_wait,
    expected,
    reported,
)
from tests.recovery.observed_member import APIS, TROUBLES, Failure, Outcome, play

UNNAMED = (41, 9999)
"""A code of Kafka's that has nothing to do with groups, and one that no Kafka has yet."""


def rows() -> Iterator[tuple[Request, int | TransportFailure, Reaction]]:
    """Every row of every request, and codes that no row names."""
    for request in Request:
        for failure, reaction in REACTIONS[request].items():
            yield request, failure, reaction
        for code in UNNAMED:
            yield request, code, OTHERWISE[request]


def forms(failure: int | TransportFailure) -> Sequence[Failure]:
    """The ways in which a failure can happen."""
    return TROUBLES[failure] if isinstance(failure, TransportFailure) else (int(failure),)


def name_of(request: Request, form: Failure) -> str:
    """The name of a test."""
    what = form.name if isinstance(form, Trouble) else code_name(form)
    return f"{request.value}-{what}"


ONCE = [
    pytest.param(request, failure, form, reaction, id=name_of(request, form))
    for request, failure, reaction in rows()
    for form in forms(failure)
]
TWICE = [
    pytest.param(request, failure, form, reaction, id=name_of(request, form))
    for request, failure, reaction in rows()
    for form in forms(failure)[:1]
    # After a DescribeGroups that cannot succeed, the group rebalances and sends no other.
    if reaction.action in (Action.RETRY, Action.REJOIN)
    and (request, reaction.action) != (Request.DESCRIBE, Action.REJOIN)
]


@attrs.frozen
class After:
    """What followed the last of the failing requests."""

    failed: Sent
    at: float
    sent: Sequence[Sent]
    id_before: str


def after_failure(outcome: Outcome, request: Request, times: int, *, closing: bool) -> After:
    """Find the failing request, and the requests after it that matter."""
    sent = outcome.sent(closing=closing)
    mine = [n for n, it in enumerate(sent) if it.api == APIS[request]]
    troubled = [n for n in mine if sent[n].troubled]
    last = troubled[-1] if troubled else mine[times - 1]
    failed = sent[last]
    reported_at = [at for at, _ in outcome.observed.failures(request)]
    at = reported_at[times - 1] if troubled and reported_at else failed.at
    ids = [
        it.member_id
        for it in outcome.observed.connections.sent
        if it.at <= failed.at and it.member_id
    ]
    uninteresting = {"api_versions", "heartbeat", "metadata"} - {APIS[request]}
    if request in TO_LEADERS:
        uninteresting.discard("metadata")
    following = [it for it in sent[last + 1 :] if it.api not in uninteresting]
    before = failed.member_id if failed.member_id is not None else (ids[-1] if ids else "")
    return After(failed, at, following, before)


def check(outcome: Outcome, request: Request, expect: Expect, times: int = 1) -> None:
    """Compare what happened with what must happen."""
    ends = request is Request.LEAVE or expect.only
    after = after_failure(outcome, request, times, closing=ends)
    wire = list(expect.wire)
    sent = after.sent
    if request is Request.HEARTBEAT and wire[-1][0] != "heartbeat":
        sent = [it for it in sent if it.api != "heartbeat"]
    assert [it.api for it in sent[: len(wire)]] == [api for api, _ in wire]
    for it, (_, whose) in zip(sent, wire, strict=False):
        if whose == KEPT and it.member_id is not None:
            assert it.member_id == after.id_before
        elif whose == NONE:
            assert it.member_id == ""
    if expect.only or not wire:
        assert len(sent) == len(wire)
    if wire and not expect.only:
        waited = sent[len(wire) - 1].at - after.at
        least, most = expect.wait
        assert least - 1e-9 <= waited <= most + 1e-9
    assert type(outcome.fatal) is (expect.fatal or type(None))
    assert type(outcome.call) is (expect.call or type(None))
    assert (outcome.end and outcome.end.cause) is expect.cause


def check_events(
    outcome: Outcome,
    request: Request,
    failure: int | TransportFailure,
    form: Failure,
    reaction: Reaction,
    times: int = 1,
) -> None:
    """Each failure is reported once, with its reaction."""
    failed, refused = reported(request, failure, reaction)
    events = outcome.observed.failures(request)
    if form in (Trouble.CUT_AFTER, Trouble.SILENT_AFTER):
        events = events[:times]  # sent again, it may meet what it did the first time
    assert [event.next_action for _, event in events] == [str(reaction)] * (times if failed else 0)
    assert len(outcome.observed.events(CommitRefused)) == (1 if refused else 0)


@pytest.mark.parametrize(("request_", "failure", "form", "reaction"), ONCE)
async def test_a_row(
    autojump_clock: MockClock,
    request_: Request,
    failure: int | TransportFailure,
    form: Failure,
    reaction: Reaction,
) -> None:
    """The failure is followed by the row's requests, wait, end and errors, and nothing else."""
    outcome = await play(request_, form)
    check(outcome, request_, expected(request_, failure, reaction))
    check_events(outcome, request_, failure, form, reaction)
    if (
        reaction.action is Action.RETRY
        and outcome.generation is not None
        and request_
        in (
            Request.HEARTBEAT,
            Request.COMMIT,
        )
    ):
        ended = outcome.observed.events(GenerationEnded)
        assert [event.end.cause for event in ended] == [Cause.CLOSED]
    if outcome.again is not None:
        assert outcome.again.state is State.ENDED  # by now it is closed


@pytest.mark.parametrize(("request_", "failure", "form", "reaction"), TWICE)
async def test_a_row_twice(
    autojump_clock: MockClock,
    request_: Request,
    failure: int | TransportFailure,
    form: Failure,
    reaction: Reaction,
) -> None:
    """After the second failure in a row, the wait is the row's wait for repeated failures."""
    outcome = await play(request_, form, times=2)
    check(outcome, request_, expected(request_, failure, reaction, 2), times=2)
    check_events(outcome, request_, failure, form, reaction, 2)


JOIN_AGAIN = ("join_group", KEPT)
JOIN_WITHOUT_ID = ("join_group", NONE)
FIND = ("find_coordinator", ANY)
LEAVE = ("leave_group", KEPT)

#: The rows that matter most, written down from Kafka's ``AbstractCoordinator`` and
#: ``ConsumerCoordinator`` and not from kgroup's table.
BY_KAFKA = [
    # JoinGroupResponseHandler.
    (Request.JOIN, ErrorCode.MEMBER_ID_REQUIRED, Expect(wire=[JOIN_AGAIN])),
    (Request.JOIN, ErrorCode.UNKNOWN_MEMBER_ID, Expect(wire=[JOIN_WITHOUT_ID])),
    (
        Request.JOIN,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        Expect(wire=[JOIN_AGAIN], wait=after_wait()),
    ),
    (Request.JOIN, ErrorCode.NOT_COORDINATOR, Expect(wire=[FIND, JOIN_AGAIN])),
    (
        Request.JOIN,
        ErrorCode.FENCED_INSTANCE_ID,
        Expect(wire=[LEAVE], fatal=FencedInstanceError, only=True),
    ),
    (
        Request.JOIN,
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        Expect(wire=[LEAVE], fatal=InconsistentProtocolError, only=True),
    ),
    (
        Request.JOIN,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        Expect(wire=[LEAVE], fatal=GroupFullError, only=True),
    ),
    # SyncGroupResponseHandler: an illegal generation keeps the id, an unknown member loses it.
    (Request.SYNC, ErrorCode.REBALANCE_IN_PROGRESS, Expect(wire=[JOIN_AGAIN])),
    (Request.SYNC, ErrorCode.ILLEGAL_GENERATION, Expect(wire=[JOIN_AGAIN])),
    (Request.SYNC, ErrorCode.UNKNOWN_MEMBER_ID, Expect(wire=[JOIN_WITHOUT_ID])),
    (Request.SYNC, ErrorCode.NOT_COORDINATOR, Expect(wire=[FIND, JOIN_AGAIN])),
    # HeartbeatResponseHandler.
    (
        Request.HEARTBEAT,
        ErrorCode.REBALANCE_IN_PROGRESS,
        Expect(wire=[("offset_commit", KEPT), JOIN_AGAIN], cause=Cause.REBALANCE),
    ),
    (
        Request.HEARTBEAT,
        ErrorCode.ILLEGAL_GENERATION,
        Expect(wire=[JOIN_AGAIN], cause=Cause.MEMBERSHIP_LOST),
    ),
    (
        Request.HEARTBEAT,
        ErrorCode.UNKNOWN_MEMBER_ID,
        Expect(wire=[JOIN_WITHOUT_ID], cause=Cause.MEMBERSHIP_LOST),
    ),
    (
        Request.HEARTBEAT,
        ErrorCode.FENCED_INSTANCE_ID,
        Expect(wire=[LEAVE], fatal=FencedInstanceError, cause=Cause.FENCED, only=True),
    ),
    (Request.HEARTBEAT, ErrorCode.NOT_COORDINATOR, Expect(wire=[FIND, ("heartbeat", KEPT)])),
    # OffsetCommitResponseHandler.
    (
        Request.COMMIT,
        ErrorCode.ILLEGAL_GENERATION,
        Expect(wire=[JOIN_AGAIN], call=StaleGenerationError, cause=Cause.MEMBERSHIP_LOST),
    ),
    (
        Request.COMMIT,
        ErrorCode.UNKNOWN_MEMBER_ID,
        Expect(wire=[JOIN_WITHOUT_ID], call=StaleGenerationError, cause=Cause.MEMBERSHIP_LOST),
    ),
    (
        Request.COMMIT,
        ErrorCode.FENCED_INSTANCE_ID,
        Expect(
            wire=[LEAVE],
            fatal=FencedInstanceError,
            call=StaleGenerationError,
            cause=Cause.FENCED,
            only=True,
        ),
    ),
    (Request.COMMIT, ErrorCode.NOT_COORDINATOR, Expect(wire=[FIND, ("offset_commit", KEPT)])),
    (Request.COMMIT, ErrorCode.OFFSET_METADATA_TOO_LARGE, Expect(wire=[], call=CommitFailedError)),
    (Request.COMMIT, TransportFailure.TIMED_OUT, Expect(wire=[], call=CommitUnknownError)),
    # OffsetFetchResponseHandler, and KIP-447.
    (
        Request.FETCH_OFFSETS,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        Expect(wire=[("offset_fetch", KEPT)], wait=after_wait()),
    ),
    (Request.FETCH_OFFSETS, ErrorCode.NOT_COORDINATOR, Expect(wire=[FIND, ("offset_fetch", KEPT)])),
    # FindCoordinatorResponseHandler: sent again after the backoff.
    (
        Request.FIND_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        Expect(wire=[FIND], wait=after_wait()),
    ),
    # LeaveGroupResponseHandler: an unknown member has left.
    (Request.LEAVE, ErrorCode.UNKNOWN_MEMBER_ID, Expect(wire=[], wait=AT_ONCE)),
]


@pytest.mark.parametrize(
    ("request_", "failure", "expect"),
    [
        pytest.param(request, failure, expect, id=f"{request.value}-{failure.name}")
        for request, failure, expect in BY_KAFKA
    ],
)
async def test_what_kafka_s_own_client_does(
    autojump_clock: MockClock,
    request_: Request,
    failure: ErrorCode | TransportFailure,
    expect: Expect,
) -> None:
    """In the rows that matter most, the table says what Kafka's own client does."""
    for form in forms(failure):
        check(await play(request_, form), request_, expect)


async def test_a_missing_topic_is_reported_and_empties_no_other(
    autojump_clock: MockClock,
) -> None:
    """A topic that the brokers do not know is reported; the group reads the others."""
    async with harness() as here:
        here.broker.inject("metadata", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        async with here.group(topics=["topic", "absent"]) as group:
            await group.next()
            await trio.sleep(1)
            assert list((await group.next()).assignment) == [P0]
            await trio.sleep(1)
        first, second = here.events_of(TopicsMissing)
    assert (first.topics, second.topics) == (("absent", "topic"), ("absent",))
