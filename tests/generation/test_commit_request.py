"""One commit request: the outcome after each response, and after a missing one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from kgroup.client.broker_errors import broker_error
from kgroup.client.error_policy import REACTIONS, UNKNOWN_FOR, Action, Request, reaction_to_code
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    AuthenticationError,
    AuthorizationError,
    BrokerError,
    CommitFailedError,
    CommitUnknownError,
    ConnectionLostError,
    RequestTimeoutError,
    StaleGenerationError,
    UnsupportedVersionError,
    UsageError,
)
from kgroup.generation.commit_request import CommitRequest
from kgroup.types import Cause, End
from tests.generation.fakes import P0, P1, P2, FakeGeneration, Reply, at

LOST = ConnectionLostError("gone", sent=True)
NOT_SENT = ConnectionLostError("connection refused")


def attempt(fake: FakeGeneration, offsets: Mapping[Any, Any]) -> CommitRequest:
    """A commit request for these offsets."""
    return CommitRequest(
        fake.member,
        fake.lifecycle,
        fake.positions,
        fake.committer.late,
        offsets,
        fake.positions.moves(offsets),
    )


async def test_all_applied(autojump_clock: MockClock) -> None:
    """No caller gets an error; committed positions and lease advance; one event reports it."""
    fake = FakeGeneration()
    await trio.sleep(10)
    made = attempt(fake, at(p0=3, p1=4))
    await made.run()
    assert made.outcome(at(p0=3)) is None
    assert made.outcome(at(p0=3, p1=4)) is None
    assert (fake.positions.lower_bound(P0), fake.positions.lower_bound(P1)) == (3, 4)
    assert fake.committed == [{P0: 3, P1: 4}]
    assert fake.lease.left == pytest.approx(30)
    assert fake.refused == []


async def test_a_refused_partition_fails_the_callers_that_named_it(
    autojump_clock: MockClock,
) -> None:
    """The other partitions are committed, and callers that named only those get no error."""
    fake = FakeGeneration()
    fake.coordinator.replies = [{P1: ErrorCode.OFFSET_METADATA_TOO_LARGE}]
    made = attempt(fake, at(p0=1, p1=2, p2=3))
    await made.run()
    assert made.outcome(at(p0=1, p2=3)) is None
    error = made.outcome(at(p0=1, p1=2))
    assert isinstance(error, CommitFailedError)
    assert {name: why.name for name, why in error.partitions.items()} == {
        P1: "OFFSET_METADATA_TOO_LARGE"
    }
    assert fake.committed == [{P0: 1, P2: 3}]
    reason = (
        "OFFSET_METADATA_TOO_LARGE (commit less metadata, or raise offset.metadata.max.bytes on the"
        " broker)"
    )
    assert fake.refused == [({P1: 2}, reason, False)]
    what = "these partitions were not committed, the others were"
    assert str(error).endswith(f": {what}: t-1: {reason}")
    assert fake.lifecycle.recorded_end is None


async def test_the_error_says_what_to_grant_and_whether_anything_was_committed(
    autojump_clock: MockClock,
) -> None:
    """A reason that several partitions have is said once, with the right that is missing."""
    fake = FakeGeneration()
    codes = [ErrorCode.TOPIC_AUTHORIZATION_FAILED] * 2 + [ErrorCode.INVALID_REQUEST]
    fake.coordinator.replies = [dict(zip((P0, P1, P2), codes, strict=True))]
    made = attempt(fake, at(p0=1, p1=2, p2=3))
    await made.run()
    forbidden = (
        "TOPIC_AUTHORIZATION_FAILED (grant the user READ (it implies DESCRIBE) on topic 't')"
    )
    assert str(made.outcome(at(p0=1, p1=2))).endswith(
        f": nothing was committed: t-0, t-1: {forbidden}"
    )
    assert str(made.outcome(at(p1=2, p2=3))).endswith(
        f": nothing was committed: t-1: {forbidden}; t-2: INVALID_REQUEST"
    )
    assert [reason for _, reason, _ in fake.refused] == [
        forbidden,
        f"t-1: {forbidden}; t-2: INVALID_REQUEST",
    ]


async def test_only_partitions_with_a_transient_error_are_sent_again(
    autojump_clock: MockClock,
) -> None:
    """After a wait, the next attempt has only the partitions without an outcome."""
    fake = FakeGeneration()
    fake.coordinator.replies = [{P1: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}]
    made = attempt(fake, at(p0=1, p1=2))
    before = trio.current_time()
    await made.run()
    assert fake.coordinator.commits == [at(p0=1, p1=2), at(p1=2)]
    assert trio.current_time() - before == pytest.approx(0.1, rel=0.21)
    assert made.outcome(at(p0=1, p1=2)) is None
    assert [reaction.action for _, reaction in fake.reports] == [Action.RETRY]


async def test_the_deadline_passes_after_transient_errors(autojump_clock: MockClock) -> None:
    """Every attempt was answered, so the partition is refused with its last error code."""
    fake = FakeGeneration()
    fake.coordinator.replies = [{P0: ErrorCode.REBALANCE_IN_PROGRESS}] * 100
    made = attempt(fake, at(p0=1, p1=2))
    with trio.move_on_after(3):
        await made.run()
    error = made.outcome(at(p0=1))
    assert isinstance(error, CommitFailedError)
    assert error.partitions[P0].name == "REBALANCE_IN_PROGRESS"
    assert made.outcome(at(p1=2)) is None


async def test_the_deadline_passes_after_attempts_that_were_not_sent(
    autojump_clock: MockClock,
) -> None:
    """The last response counts, even if later attempts could not reach the coordinator."""
    fake = FakeGeneration()
    fake.coordinator.replies = [{P0: ErrorCode.REBALANCE_IN_PROGRESS}, *[NOT_SENT] * 100]
    made = attempt(fake, at(p0=1))
    with trio.move_on_after(3):
        await made.run()
    error = made.outcome(at(p0=1))
    assert isinstance(error, CommitFailedError)
    assert error.partitions[P0].name == "REBALANCE_IN_PROGRESS"


async def test_the_deadline_passes_before_anything_was_sent(autojump_clock: MockClock) -> None:
    """The error says that nothing was sent, and not that the outcome is unknown."""
    fake = FakeGeneration()
    fake.coordinator.replies = [NOT_SENT] * 100
    made = attempt(fake, at(p0=1))
    with trio.move_on_after(3):
        await made.run()
    error = made.outcome(at(p0=1))
    assert isinstance(error, CommitFailedError)
    assert error.partitions[P0].name == "NETWORK_EXCEPTION"
    assert "nothing was sent" in str(error.partitions[P0])


@pytest.mark.parametrize(
    "after",
    [
        [LOST] * 100,
        [RequestTimeoutError("no answer", sent=True)],
        [UnsupportedVersionError("too old")],
        [{P0: ErrorCode.UNKNOWN_MEMBER_ID}],
    ],
)
async def test_a_missing_response_makes_the_outcome_unknown(
    autojump_clock: MockClock, after: list[Reply]
) -> None:
    """Whatever a later attempt returns, the first may have been applied; one event reports it."""
    fake = FakeGeneration()
    fake.coordinator.replies = [LOST, *after]
    made = attempt(fake, at(p0=1))
    with trio.move_on_after(3):
        await made.run()
    assert isinstance(made.outcome(at(p0=1)), CommitUnknownError)
    assert fake.committed == []
    assert [offsets for offsets, _, _ in fake.refused] == [{P0: 1}]


async def test_a_refusal_after_a_missing_response(autojump_clock: MockClock) -> None:
    """The first attempt may have been applied; what was refused before it was not.

    The caller learns of the one, and the events report both.
    """
    fake = FakeGeneration()
    refused = {P1: ErrorCode.OFFSET_METADATA_TOO_LARGE, P0: ErrorCode.NOT_COORDINATOR}
    fake.coordinator.replies = [refused, LOST, {P0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}]
    made = attempt(fake, at(p0=1, p1=2))
    await made.run()
    error = made.outcome(at(p0=1, p1=2))
    assert isinstance(error, CommitUnknownError)
    assert "t-0 at 1 was" in str(error)
    assert "TOPIC_AUTHORIZATION_FAILED" in str(error.__cause__)
    assert isinstance(made.outcome(at(p1=2)), CommitFailedError)
    assert [offsets for offsets, _, _ in fake.refused] == [{P1: 2}, {P0: 1}, {P1: 2}]


@pytest.mark.parametrize("code", [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.COORDINATOR_NOT_AVAILABLE])
@pytest.mark.parametrize(
    "later",
    [
        [],
        [{P0: ErrorCode.NOT_COORDINATOR}] * 1000,
        [{P0: ErrorCode.TOPIC_AUTHORIZATION_FAILED}],
        [{P0: ErrorCode.ILLEGAL_GENERATION}],
    ],
)
async def test_a_commit_that_the_replicas_do_not_confirm_in_time(
    autojump_clock: MockClock, code: ErrorCode, later: list[Reply]
) -> None:
    """The coordinator may have written it: whatever follows but a success, that is unknown."""
    fake = FakeGeneration()
    fake.coordinator.replies = [{P0: code}, *(later or [{P0: code}] * 1000)]
    made = attempt(fake, at(p0=1))
    with trio.move_on_after(3):
        await made.run()
    error = made.outcome(at(p0=1))
    assert isinstance(error, CommitUnknownError)
    assert "it may have been applied" in str(error)


async def test_a_refusal_in_doubt_beside_a_failure(autojump_clock: MockClock) -> None:
    """Both are reported, and each caller's error names its own offsets."""
    fake = FakeGeneration()
    mixed = {P0: ErrorCode.TOPIC_AUTHORIZATION_FAILED, P1: ErrorCode.NOT_COORDINATOR}
    fake.coordinator.replies = [LOST, mixed, {P1: ErrorCode.ILLEGAL_GENERATION}]
    made = attempt(fake, at(p0=1, p1=2))
    await made.run()
    errors = [made.outcome(at(p0=1, p1=2)), made.outcome(at(p1=2))]
    assert all(isinstance(error, CommitUnknownError) for error in errors)
    assert ["t-0 at 1" in str(error) for error in errors] == [True, False]
    assert ["t-1 at 2" in str(error) for error in errors] == [True, True]
    assert [offsets for offsets, _, _ in fake.refused] == [{P1: 2}, {P0: 1}]


async def test_a_commit_cancelled_after_it_was_sent(autojump_clock: MockClock) -> None:
    """The outcome of a commit that was sent is unknown, and the event says so."""
    fake = FakeGeneration()
    fake.coordinator.replies = [trio.sleep_forever]
    made = attempt(fake, at(p0=1, p1=2))
    with trio.move_on_after(3):
        await made.run()
    error = made.outcome(at(p1=2))
    assert isinstance(error, CommitUnknownError)
    assert "t-1 at 2" in str(error)
    assert fake.refused == [
        ({P1: 2}, "it was not confirmed in time; the outcome is unknown", False)
    ]


async def commit_while_it_is_lost(fake: FakeGeneration) -> tuple[Exception | None, float]:
    """Commit, lose the generation 3 s later; the caller's error, and when it came."""
    began = trio.current_time()
    made = attempt(fake, at(p0=1))
    async with trio.open_nursery() as nursery:

        async def commit() -> None:
            with fake.lifecycle.commit_scope():
                await made.run()

        nursery.start_soon(commit)
        await trio.sleep(3)
        fake.lifecycle.end(End(Cause.COORDINATOR_LOST))
    return made.outcome(at(p0=1)), trio.current_time() - began


@pytest.mark.parametrize("before", [[], [NOT_SENT]])
async def test_the_generation_is_lost_before_the_request_is_sent(
    autojump_clock: MockClock, before: list[Reply]
) -> None:
    """Nothing is sent any more, and the caller waits for no connection to the coordinator."""
    fake = FakeGeneration()
    fake.coordinator.replies = [*before]
    fake.coordinator.openings = [*[trio.lowlevel.checkpoint] * len(before), trio.sleep_forever]
    error, seconds = await commit_while_it_is_lost(fake)
    assert isinstance(error, StaleGenerationError)
    assert seconds == pytest.approx(3)
    assert len(fake.coordinator.commits) == len(before)
    assert [(offsets, stale) for offsets, _, stale in fake.refused] == [({P0: 1}, True)]


async def test_the_generation_is_lost_before_the_request_is_sent_again(
    autojump_clock: MockClock,
) -> None:
    """What an earlier attempt did stays unknown."""
    fake = FakeGeneration()
    fake.coordinator.replies = [LOST]
    fake.coordinator.openings = [trio.lowlevel.checkpoint, trio.sleep_forever]
    error, seconds = await commit_while_it_is_lost(fake)
    assert isinstance(error, CommitUnknownError)
    assert seconds == pytest.approx(3)


async def test_the_generation_is_lost_after_the_request_was_sent(
    autojump_clock: MockClock,
) -> None:
    """The response is awaited: the commit may have been applied before."""
    fake = FakeGeneration()
    fake.coordinator.replies = [partial(trio.sleep, 5)]
    error, seconds = await commit_while_it_is_lost(fake)
    assert error is None
    assert seconds == pytest.approx(5)
    assert fake.committed == [{P0: 1}]


@pytest.mark.parametrize(
    "code",
    [
        code
        for code, reaction in REACTIONS[Request.COMMIT].items()
        if isinstance(code, ErrorCode) and reaction.action in (Action.LOST, Action.FAIL)
    ],
)
async def test_a_refused_generation_fails_every_caller(
    autojump_clock: MockClock, code: ErrorCode
) -> None:
    """One partition's refusal ends the generation; partitions without an outcome are stale."""
    fake = FakeGeneration()
    fake.coordinator.replies = [{P0: code, P1: code}]
    made = attempt(fake, at(p0=1, p1=2, p2=3))
    await made.run()
    end = fake.lifecycle.recorded_end
    assert end is not None
    assert end.cause is (reaction_to_code(Request.COMMIT, code).cause or Cause.MEMBERSHIP_LOST)
    assert not end.can_commit
    for mine in (at(p0=1), at(p1=2)):
        error = made.outcome(mine)
        assert isinstance(error, StaleGenerationError)
        assert error.end is end
        assert code.name in str(error)
    assert made.outcome(at(p2=3)) is None
    assert [stale for _, _, stale in fake.refused] == [True]


async def test_a_login_that_is_refused_concerns_the_commit_only(autojump_clock: MockClock) -> None:
    """The heartbeats' connection may still be accepted, and a later commit's as well."""
    fake = FakeGeneration()
    fake.coordinator.replies = [AuthenticationError(58, "SASL_AUTHENTICATION_FAILED", "login")]
    made = attempt(fake, at(p0=1))
    await made.run()
    assert isinstance(made.outcome(at(p0=1)), CommitFailedError)
    assert fake.lifecycle.recorded_end is None


async def test_a_request_that_the_coordinator_lacks_ends_the_generation(
    autojump_clock: MockClock,
) -> None:
    """Nothing can be committed, whatever the generation does next."""
    fake = FakeGeneration()
    fake.coordinator.replies = [UnsupportedVersionError("too old", "OffsetCommit")]
    made = attempt(fake, at(p0=1))
    await made.run()
    assert isinstance(made.outcome(at(p0=1)), StaleGenerationError)
    end = fake.lifecycle.recorded_end
    assert end is not None
    assert isinstance(end.error, UnsupportedVersionError)


@pytest.mark.parametrize("error", [UsageError("made up"), ValueError("no")])
async def test_an_error_before_sending_is_raised_as_it_is(
    autojump_clock: MockClock, error: Exception
) -> None:
    """A request that cannot be sent is not tried again."""
    fake = FakeGeneration()
    fake.coordinator.replies = [error]
    made = attempt(fake, at(p0=1))
    await made.run()
    assert made.outcome(at(p0=1)) is error
    assert len(fake.coordinator.commits) == 1


async def test_an_error_of_the_whole_response_counts_for_each_partition(
    autojump_clock: MockClock,
) -> None:
    """An example is a broker that refuses ApiVersions."""
    fake = FakeGeneration()
    fake.coordinator.replies = [BrokerError(-1, "UNKNOWN_SERVER_ERROR", "ApiVersions")]
    made = attempt(fake, at(p0=1, p1=2))
    await made.run()
    error = made.outcome(at(p0=1, p1=2))
    assert isinstance(error, CommitFailedError)
    assert {why.request for why in error.partitions.values()} == {"ApiVersions"}


async def test_a_time_out_before_the_request_was_sent(autojump_clock: MockClock) -> None:
    """A request that was not sent cannot arrive late: it is tried again until the deadline."""
    fake = FakeGeneration()
    fake.coordinator.replies = [RequestTimeoutError("not connected")]
    made = attempt(fake, at(p0=1))
    await made.run()
    assert made.outcome(at(p0=1)) is None
    assert fake.committed == [{P0: 1}]
    fake.coordinator.replies = [RequestTimeoutError("not connected")] * 100
    made = attempt(fake, at(p0=2))
    with trio.move_on_after(3):
        await made.run()
    error = made.outcome(at(p0=2))
    assert isinstance(error, CommitFailedError)
    assert error.partitions[P0].name == "NETWORK_EXCEPTION"


@pytest.mark.parametrize("unanswered", [False, True])
async def test_an_unauthorized_find_coordinator(
    autojump_clock: MockClock, unanswered: bool
) -> None:
    """The authorization error is raised, unless an earlier attempt may have been applied."""
    forbidden = broker_error(Request.FIND_COORDINATOR, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    fake = FakeGeneration()
    fake.coordinator.replies = [LOST if unanswered else {P0: ErrorCode.NOT_COORDINATOR}]
    fake.coordinator.finds = [forbidden]
    made = attempt(fake, at(p0=1))
    await made.run()
    error = made.outcome(at(p0=1))
    if unanswered:
        assert isinstance(error, CommitUnknownError)
        assert error.__cause__ is forbidden
    else:
        assert isinstance(error, AuthorizationError)


@pytest.mark.parametrize("ends_after", [0.0, 1.0])
async def test_a_loss_does_not_wait_for_the_second_attempt_on_another_connection(
    autojump_clock: MockClock, ends_after: float
) -> None:
    """No answer to the first can come, and nothing is sent once the generation has ended."""
    fake = FakeGeneration()
    fake.coordinator.reopenings = [partial(trio.sleep, 5)]
    made = attempt(fake, at(p0=1))
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        await trio.sleep(ends_after)
        fake.lifecycle.end(End(Cause.MEMBERSHIP_LOST))
    assert trio.current_time() == began + ends_after
    assert fake.coordinator.sent_again == 0
    error = made.outcome(at(p0=1))
    wanted = CommitUnknownError if ends_after else StaleGenerationError
    assert isinstance(error, wanted)
    assert made.unconfirmed == (ends_after > 0)


async def test_the_second_attempt_on_another_connection_is_awaited(
    autojump_clock: MockClock,
) -> None:
    """Once it was sent, the end of the generation does not cancel it."""
    fake = FakeGeneration()
    fake.coordinator.reopenings = [partial(trio.sleep, 1)]
    fake.coordinator.replies = [partial(trio.sleep, 2)]
    made = attempt(fake, at(p0=1))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        await trio.sleep(2)
        fake.lifecycle.end(End(Cause.MEMBERSHIP_LOST))
    assert made.outcome(at(p0=1)) is None
    assert fake.committed == [{P0: 1}]


async def test_a_topic_that_the_coordinator_does_not_know_yet_is_committed_when_it_does(
    autojump_clock: MockClock,
) -> None:
    """A coordinator that was away may learn of it late; what came before does not count."""
    fake = FakeGeneration()
    fake.coordinator.replies = [
        *[{P1: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}] * 7,
        {P1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION},
    ]
    made = attempt(fake, at(p0=1, p1=2))
    await made.run()
    assert trio.current_time() > UNKNOWN_FOR
    assert made.outcome(at(p0=1, p1=2)) is None
    assert fake.committed == [{P0: 1}, {P1: 2}]
    assert fake.refused == []


async def test_a_topic_that_the_coordinator_does_not_learn_of_is_refused(
    autojump_clock: MockClock,
) -> None:
    """It counts as deleted: long before the commit times out, the caller gets the error."""
    fake = FakeGeneration()
    fake.coordinator.replies = [{P1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}] * 100
    made = attempt(fake, at(p0=1, p1=2))
    await made.run()
    assert trio.current_time() == pytest.approx(UNKNOWN_FOR)
    assert made.outcome(at(p0=1)) is None
    error = made.outcome(at(p1=2))
    assert isinstance(error, CommitFailedError)
    assert error.partitions[P1].name == "UNKNOWN_TOPIC_OR_PARTITION"


@pytest.mark.parametrize("begins", [0.0, 1.3, 2.0, 7.0])
async def test_in_a_drain_an_unknown_topic_is_refused_soon(
    autojump_clock: MockClock, begins: float
) -> None:
    """The group waits for the drain, and the drain's last commits wait for this one."""
    fake = FakeGeneration()
    fake.coordinator.replies = [{P1: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}] * 100
    made = attempt(fake, at(p0=1, p1=2))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(made.run)
        await trio.sleep(begins)
        fake.lifecycle.end(End(Cause.REBALANCE))
    assert trio.current_time() <= max(begins, UNKNOWN_FOR if begins > UNKNOWN_FOR else 0) + 0.5
    assert isinstance(made.outcome(at(p1=2)), CommitFailedError)
    assert made.outcome(at(p0=1)) is None


# Any sequence of responses.

CODES = st.sampled_from(
    [
        0,
        int(ErrorCode.OFFSET_METADATA_TOO_LARGE),
        int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        int(ErrorCode.NOT_COORDINATOR),
    ]
)
ANSWERS = st.one_of(
    st.dictionaries(st.sampled_from([P0, P1, P2]), CODES), st.sampled_from([LOST, NOT_SENT])
)


@settings(max_examples=80)
@given(replies=st.lists(ANSWERS, max_size=6))
def test_each_partition_has_exactly_its_own_outcome(replies: Sequence[Any]) -> None:
    """A partition is applied or refused as its own response code says, whatever the others get.

    If an earlier attempt got no answer, a refusal leaves the outcome unknown.
    """

    async def scenario() -> None:
        fake = FakeGeneration()
        fake.coordinator.replies = list(replies)
        made = attempt(fake, at(p0=1, p1=2, p2=3))
        await made.run()
        outcomes: dict[Any, int] = {}
        in_doubt: set[Any] = set()
        for reply in [*replies, {}]:
            in_doubt |= {P0, P1, P2} - outcomes.keys() if reply is LOST else set()
            if not isinstance(reply, Exception):
                for name in (P0, P1, P2):
                    code = reply.get(name, 0)
                    if name not in outcomes and reaction_to_code(
                        Request.COMMIT, code
                    ).action is not (Action.RETRY):
                        outcomes[name] = code
                    elif name not in outcomes and code == 0:
                        outcomes[name] = 0
        for name, offset in ((P0, 1), (P1, 2), (P2, 3)):
            error: Any = made.outcome({name: at(p0=offset)[P0]})
            if outcomes[name] == 0:
                assert error is None
                assert fake.positions.lower_bound(name) == offset
            else:
                failed = error.__cause__ if name in in_doubt else error.partitions[name]
                assert failed.code == outcomes[name]
                assert isinstance(error, CommitUnknownError) == (name in in_doubt)
                assert fake.positions.lower_bound(name) == 0

    trio.run(scenario, clock=MockClock(autojump_threshold=0))
