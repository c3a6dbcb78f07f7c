"""Commits of one generation: which share a request, and the outcome of each caller."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, final

import pytest
import trio
from confluent_kafka import KafkaError, KafkaException
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from kgroup.client.broker_errors import broker_error
from kgroup.client.error_policy import Request
from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    CommitFailedError,
    CommitUnknownError,
    ConnectionLostError,
    LeaseExpiredError,
    OffsetBehindCommitError,
    StaleGenerationError,
    UsageError,
)
from kgroup.events import CommitRefused, Committed
from kgroup.generation.commits import group_metadata
from kgroup.testing.simulation.virtual_time import run_virtual
from kgroup.types import Cause, End, OffsetAndMetadata, TopicPartition
from tests.generation.fakes import MEMBERSHIP, P0, P1, P2, FakeGeneration, at

FORBIDDEN = ErrorCode.GROUP_AUTHORIZATION_FAILED
OVER = End(Cause.MEMBERSHIP_LOST, "forgotten")


async def for_a_second() -> None:
    """A response that takes a second."""
    await trio.sleep(1)


async def test_an_event_handler_that_raises_acknowledges_nothing(
    autojump_clock: MockClock,
) -> None:
    """Each caller whose offsets were in the request gets the exception, and none a success."""
    fake = FakeGeneration()
    fake.coordinator.replies = [for_a_second]
    errors = []

    def explode(kind: object, **fields: object) -> None:
        if kind is Committed and fake.coordinator.commits[1:]:
            raise RuntimeError("an event handler")

    fake.emitter.emit = explode  # type: ignore[method-assign]

    async def commit(offset: int) -> None:
        try:
            await fake.commit(p0=offset)
        except RuntimeError as error:
            errors.append(error)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.commit_first)
        await trio.sleep(0.5)
        nursery.start_soon(commit, 2)
        await trio.sleep(0.1)
        nursery.start_soon(commit, 3)
    assert len(errors) == 2


async def test_a_seek_between_two_commits_of_one_request(autojump_clock: MockClock) -> None:
    """After a seek back, the later commit counts, although its offset is lower."""
    fake = FakeGeneration()
    fake.coordinator.replies = [for_a_second]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.commit_first)
        await trio.sleep(0.1)
        nursery.start_soon(lambda: fake.commit(p0=100))
        await trio.sleep(0.1)
        fake.positions.move(P0, 10)
        nursery.start_soon(lambda: fake.commit(p0=11))
    assert fake.coordinator.commits[1] == at(p0=11)
    assert fake.positions.lower_bound(P0) == 11


async def test_a_commit_behind_a_waiting_one_is_refused_as_a_whole(
    autojump_clock: MockClock,
) -> None:
    """None of its partitions is sent; the waiting commit is."""
    fake = FakeGeneration()
    fake.coordinator.replies = [for_a_second]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.commit_first)
        await trio.sleep(0.1)
        nursery.start_soon(lambda: fake.commit(p0=100))
        await trio.sleep(0.1)
        with pytest.raises(OffsetBehindCommitError, match="99 is behind 100, whose commit was"):
            await fake.commit(p0=99, p1=5)
    assert fake.coordinator.commits[1] == at(p0=100)


async def test_an_earlier_deadline_holds_for_commits_that_were_sent(
    autojump_clock: MockClock,
) -> None:
    """The deadline of a drain may come before the request time-out, and is never postponed."""
    fake = FakeGeneration()
    fake.coordinator.replies = [trio.sleep_forever]
    began = trio.current_time()
    async with trio.open_nursery() as nursery:

        async def commit() -> None:
            with pytest.raises(CommitUnknownError):
                await fake.commit(p0=1)
            assert trio.current_time() - began == pytest.approx(3)

        nursery.start_soon(commit)
        await trio.sleep(1)
        fake.lifecycle._bound_commits(began + 3)
        fake.lifecycle._bound_commits(began + 9)
    fake.coordinator.replies = [trio.sleep_forever]
    with pytest.raises(CommitFailedError, match="NETWORK_EXCEPTION"):
        await fake.commit(p0=2)
    assert trio.current_time() - began == pytest.approx(3)


LOST = ConnectionLostError("gone", sent=True)


async def fail(fake: FakeGeneration, times: int) -> None:
    """Commits that are never answered, and whose coordinator may not be looked up after that."""
    for _ in range(times):
        fake.coordinator.replies = [LOST]
        fake.coordinator.finds = [broker_error(Request.FIND_COORDINATOR, FORBIDDEN)]
        with pytest.raises(CommitUnknownError):
            await fake.commit(p0=1)


async def commit_at_once(fake: FakeGeneration, offset: int) -> None:
    """A commit that must not wait."""
    began = trio.current_time()
    await fake.commit(p0=offset)
    assert trio.current_time() == began


async def test_a_repeated_commit_waits_if_the_coordinator_was_not_reached(
    autojump_clock: MockClock,
) -> None:
    """The waits grow as all others do; the first answer ends them."""
    fake = FakeGeneration()
    began = trio.current_time()
    await fail(fake, 1)
    first = trio.current_time() - began
    await fail(fake, 5)
    longest = fake.member.config.rejoin_backoff * 2**4
    assert longest / 2 < trio.current_time() - began - first < 4 * longest
    fake.coordinator.replies = []
    await fake.commit(p0=1)
    await commit_at_once(fake, 2)


async def test_cancelled_commits_do_not_make_others_wait_longer(autojump_clock: MockClock) -> None:
    """The wait counts from the failure; a commit long after that is sent at once."""
    fake = FakeGeneration()
    await fail(fake, 6)
    began = trio.current_time()
    fake.coordinator.replies = []
    for _ in range(100):
        with trio.move_on_after(0.1):
            await fake.commit(p0=1)
            break
    assert 0.5 < trio.current_time() - began <= 1.2 * fake.member.config.rejoin_backoff * 2**5
    await fail(fake, 4)
    await trio.sleep(5)
    await commit_at_once(fake, 1)


async def test_a_commit_does_not_wait_through_a_drain(autojump_clock: MockClock) -> None:
    """Once the generation ends, a commit waits for a moment, so that it is sent in the drain."""
    fake = FakeGeneration()
    await fail(fake, 6)
    began = trio.current_time()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(lambda: fake.commit(p0=1))
        await trio.sleep(0.1)
        fake.lifecycle.end(End(Cause.REBALANCE, "a rebalance"))
    assert trio.current_time() - began <= 0.1 + 0.5 + 0.01


async def test_only_what_failed_to_reach_the_coordinator_makes_others_wait(
    autojump_clock: MockClock,
) -> None:
    """A commit that is refused before it is sent, or by the coordinator, does not."""
    fake = FakeGeneration()
    fake.coordinator.replies = [{P0: int(ErrorCode.OFFSET_METADATA_TOO_LARGE)}]
    with pytest.raises(CommitFailedError):
        await fake.commit(p0=5)
    fake.coordinator.replies = [for_a_second]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.commit_first)
        await trio.sleep(0.1)
        nursery.start_soon(lambda: fake.commit(p0=100))
        await trio.sleep(0.1)
        with pytest.raises(OffsetBehindCommitError):
            await fake.commit(p0=99)
    await commit_at_once(fake, 101)


async def test_waiters_behind_a_stuck_commit_give_up_at_the_deadline(
    autojump_clock: MockClock,
) -> None:
    """A cancelled caller whose offsets are in another caller's request gives up then too."""
    fake = FakeGeneration()
    fake.coordinator.replies = [for_a_second, trio.sleep_forever]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.commit_first)
        await trio.sleep(0.1)

        async def second() -> None:
            with pytest.raises(CommitUnknownError):
                await fake.commit(p0=2)

        nursery.start_soon(second)
        await trio.sleep(0.1)
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_later, scope, 2.0)
            with pytest.raises(CommitUnknownError):
                await fake.commit(p1=2)
        assert trio.current_time() < 12


async def test_past_the_lease_every_waiting_caller_gets_an_error(autojump_clock: MockClock) -> None:
    """Nothing is sent past the lease; a heartbeat that is answered in time lets commits out."""
    fake = FakeGeneration()
    await trio.sleep(31)
    with pytest.raises(LeaseExpiredError, match="the lease has ended, .* the commit was not sent"):
        await fake.commit(p0=1)
    assert fake.coordinator.commits == []
    assert [stale for _, _, stale in fake.refused] == [True]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.commit_first)
        await trio.sleep(1)
        fake.lease.confirm(trio.current_time())
    assert fake.coordinator.commits == [at(p2=1)]


async def test_commits_that_wait_when_the_generation_ends_are_stale(
    autojump_clock: MockClock,
) -> None:
    """A commit that was not sent is refused with the end; one that was has its own outcome."""
    fake = FakeGeneration()
    fake.coordinator.replies = [for_a_second]

    async def waits() -> None:
        with pytest.raises(StaleGenerationError, match="forgotten") as caught:
            await fake.commit(p0=1)
        assert caught.value.end is OVER

    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.commit_first)
        await trio.sleep(0.1)
        nursery.start_soon(waits)
        await trio.sleep(0.1)
        fake.lifecycle.end(OVER)
    assert fake.coordinator.commits == [at(p2=1)]
    assert [(offsets, stale) for offsets, _, stale in fake.refused] == [({P0: 1}, True)]


async def test_a_cancelled_waiter_s_own_deadline(autojump_clock: MockClock) -> None:
    """If a cancelled caller's deadline comes before the request's, its outcome is unknown."""
    fake = FakeGeneration()
    fake.coordinator.replies = [for_a_second, trio.sleep_forever]
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fake.commit_first)
        await trio.sleep(0.1)

        async def carries() -> None:
            with pytest.raises(CommitUnknownError):
                await fake.commit(p0=2)

        async def hurry() -> None:
            await trio.sleep(3)
            waiting = max(fake.lifecycle._commit_scopes, key=lambda scope: scope.deadline)
            waiting.deadline = trio.current_time()

        nursery.start_soon(carries)
        nursery.start_soon(hurry)
        await trio.sleep(0.1)
        with trio.CancelScope() as scope:
            nursery.start_soon(cancel_later, scope, 2.0)
            with pytest.raises(CommitUnknownError, match="t-1 at 2"):
                await fake.commit(p1=2)
        assert trio.current_time() < 4


@pytest.mark.parametrize("seed", range(8))
def test_a_cancelled_waiter_with_the_request_s_deadline(seed: int) -> None:
    """The end of a drain is the deadline of both: the outcome is the request's, in either order.

    The coordinator has answered all that was sent, so that nothing is unknown.
    """

    async def scenario() -> None:
        fake = FakeGeneration()
        away = dict.fromkeys((P0, P1), ErrorCode.NOT_COORDINATOR)
        fake.coordinator.replies = [for_a_second, *[away] * 1000]
        errors = []

        async def commit(**offsets: int) -> None:
            with pytest.raises(StaleGenerationError) as caught:
                await fake.commit(**offsets)
            errors.append(str(caught.value))

        async with fake.lifecycle.open(), trio.open_nursery() as nursery:
            nursery.start_soon(fake.commit_first)
            await trio.sleep(0.1)
            nursery.start_soon(partial(commit, p0=2))
            await trio.sleep(0.1)
            with trio.CancelScope() as scope:
                nursery.start_soon(cancel_later, scope, 2.0)
                fake.lifecycle.end(End(Cause.REBALANCE))
                fake.lifecycle._bound_commits(trio.current_time() + 3)
                await commit(p1=2)
        assert len(errors) == 2
        assert all("nothing was committed" in error for error in errors)
        assert [offsets for offsets, _, _ in fake.refused] == [{P0: 2, P1: 2}]

    run_virtual(seed, scenario)


async def cancel_later(scope: trio.CancelScope, seconds: float) -> None:
    """Cancel a scope after a while."""
    await trio.sleep(seconds)
    scope.cancel()


# In a transaction.


@final
class FakeProducer:
    """A producer whose answer the test decides."""

    def __init__(
        self, outcome: Exception | None = None, answer: Callable[[], None] = lambda: None
    ) -> None:
        self.outcome = outcome
        self.answer = answer
        self.given: list[tuple[list[Any], bytes, float]] = []

    def send_offsets_to_transaction(
        self, positions: list[Any], metadata: bytes, seconds: float
    ) -> None:
        """See confluent-kafka."""
        self.given.append((positions, metadata, seconds))
        self.answer()
        if self.outcome is not None:
            raise self.outcome


def transact(fake: FakeGeneration, producer: FakeProducer, **offsets: int) -> Any:
    """Commit in the producer's transaction."""
    return fake.committer.commit_in_transaction(producer, at(**offsets))  # type: ignore[arg-type]


async def test_offsets_go_to_the_producer_under_the_generation_s_id() -> None:
    """The producer gets sorted offsets, their metadata, the generation, and the time left."""
    fake = FakeGeneration()
    producer = FakeProducer()
    offsets = {P1: OffsetAndMetadata(5, -1, "note"), P0: OffsetAndMetadata(4)}
    await fake.committer.commit_in_transaction(producer, offsets)  # type: ignore[arg-type]
    ((positions, metadata, seconds),) = producer.given
    assert [(it.topic, it.partition, it.offset, it.metadata) for it in positions] == [
        ("t", 0, 4, ""),
        ("t", 1, 5, "note"),
    ]
    assert metadata == group_metadata(MEMBERSHIP)
    assert 9 < seconds <= 10
    assert fake.committed == [{P0: 4, P1: 5}]
    assert fake.positions.lower_bound(P0) == 0


async def test_a_producer_that_does_not_answer_in_time() -> None:
    """The outcome is unknown: committing that transaction could lose the offsets."""
    answered = trio.Event()
    fake = FakeGeneration(commit_timeout=0.05)
    producer = FakeProducer(answer=lambda: trio.from_thread.run(answered.wait))
    with pytest.raises(CommitUnknownError, match=r"t-0 .*abort the transaction"):
        await transact(fake, producer, p0=1)
    assert fake.committed == []
    assert [stale for _, _, stale in fake.refused] == [False]
    answered.set()
    await trio.testing.wait_all_tasks_blocked()


async def test_a_producer_whose_own_time_is_over_first() -> None:
    """It gets the same time, so its error means the same."""
    timed_out = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    fake, producer = FakeGeneration(), FakeProducer(timed_out)
    with pytest.raises(CommitUnknownError):
        await transact(fake, producer, p0=1)
    producer.outcome = None
    with pytest.raises(UsageError, match="make a new one"):
        await transact(fake, producer, p0=1)
    assert len(producer.given) == 1


async def test_a_producer_that_has_not_answered_is_used_for_nothing_more(
    mock_clock: MockClock,
) -> None:
    """What it has sent may arrive in its next transaction; another producer has no such request."""
    called, answered = trio.Event(), trio.Event()
    fake = FakeGeneration()

    def answer() -> None:
        trio.from_thread.run_sync(called.set)
        trio.from_thread.run(answered.wait)

    async def time_passes() -> None:
        await called.wait()
        mock_clock.jump(fake.commit_timeout)

    producer = FakeProducer(answer=answer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(time_passes)
        with pytest.raises(CommitUnknownError, match="close the producer, and make a new one"):
            await transact(fake, producer, p0=1)
    (refused,) = [event for event in fake.emitter.events if isinstance(event, CommitRefused)]
    assert refused.seconds == fake.commit_timeout
    answered.set()
    with pytest.raises(UsageError, match="make a new one with the same"):
        await transact(fake, producer, p1=1)
    assert len(producer.given) == 1
    await transact(fake, FakeProducer(), p1=1)
    assert fake.committed == [{P1: 1}]
    await trio.testing.wait_all_tasks_blocked()


@pytest.mark.parametrize(
    "failure",
    [
        KafkaException(KafkaError(KafkaError._CONFLICT, "busy")),
        RuntimeError("can't start a thread"),
    ],
)
async def test_a_producer_may_be_used_after_an_error(failure: Exception) -> None:
    """It has answered, or was not called, so nothing of its call is under way."""
    fake = FakeGeneration()
    producer = FakeProducer(failure)
    with pytest.raises(type(failure)):
        await transact(fake, producer, p0=1)
    producer.outcome = None
    await transact(fake, producer, p0=1)
    assert fake.committed == [{P0: 1}]


@pytest.mark.parametrize(
    ("code", "cause"),
    [
        (KafkaError.ILLEGAL_GENERATION, Cause.MEMBERSHIP_LOST),
        (KafkaError.UNKNOWN_MEMBER_ID, Cause.MEMBERSHIP_LOST),
        (KafkaError.FENCED_INSTANCE_ID, Cause.FENCED),
    ],
)
async def test_a_refused_transaction_ends_the_generation(code: int, cause: Cause) -> None:
    """The coordinator's refusal ends the generation, although a producer sent the request."""
    fake = FakeGeneration()
    refusal = KafkaException(KafkaError(code))
    with pytest.raises(StaleGenerationError, match="abort the transaction") as caught:
        await transact(fake, FakeProducer(refusal), p0=1)
    assert caught.value.__cause__ is refusal
    end = fake.lifecycle.recorded_end
    assert end is not None
    assert caught.value.end is end
    assert end.cause is cause
    assert [stale for _, _, stale in fake.refused] == [True]


async def test_the_producer_s_own_error_is_raised_as_it_is() -> None:
    """The error itself says whether to retry or to abort; an event has it, too."""
    fake = FakeGeneration()
    failure = KafkaException(KafkaError(KafkaError._STATE, "no transaction"))
    with pytest.raises(KafkaException) as caught:
        await transact(fake, FakeProducer(failure), p0=1)
    assert caught.value is failure
    assert fake.lifecycle.recorded_end is None
    ((offsets, reason, stale),) = fake.refused
    assert (offsets, stale) == ({P0: 1}, False)
    assert "the producer failed (_STATE: no transaction" in reason


async def test_a_missing_permission_of_the_producer_is_noted() -> None:
    """The producer's own error is raised with a note of what to grant."""
    failure = KafkaException(KafkaError(KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED))
    with pytest.raises(KafkaException) as caught:
        await transact(FakeGeneration(), FakeProducer(failure), p0=1)
    assert caught.value is failure
    assert caught.value.__notes__ == ["grant the user WRITE on the transactional id"]


async def test_nothing_is_given_to_the_producer_past_the_lease(
    autojump_clock: MockClock,
) -> None:
    """The call waits for a heartbeat, and then raises LeaseExpiredError."""
    fake = FakeGeneration()
    producer = FakeProducer()
    await trio.sleep(31)
    with pytest.raises(LeaseExpiredError):
        await transact(fake, producer, p0=1)
    assert trio.current_time() == pytest.approx(41)
    assert producer.given == []
    assert [stale for _, _, stale in fake.refused] == [True]


async def test_nothing_is_given_to_the_producer_after_the_end(autojump_clock: MockClock) -> None:
    """The same holds if the generation ended while the call waited for the lease."""
    fake = FakeGeneration()
    producer = FakeProducer()
    await trio.sleep(31)
    async with trio.open_nursery() as nursery:

        async def commit() -> None:
            with pytest.raises(StaleGenerationError, match="forgotten") as caught:
                await transact(fake, producer, p0=1)
            assert caught.value.end is OVER

        nursery.start_soon(commit)
        await trio.sleep(1)
        fake.lifecycle.end(OVER)
    assert producer.given == []


async def test_a_cancelled_caller_gives_the_producer_nothing(autojump_clock: MockClock) -> None:
    """A caller that is cancelled before calls no producer."""
    fake = FakeGeneration()
    producer = FakeProducer()
    with trio.CancelScope() as scope:
        scope.cancel()
        await transact(fake, producer, p0=1)
    assert scope.cancelled_caught
    assert producer.given == []


# Any sequence of calls.

NAMES = (P0, P1, P2)
CALLS = st.lists(
    st.tuples(
        st.integers(0, 20),  # when, in tenths of a second
        st.dictionaries(st.sampled_from(NAMES), st.integers(0, 6), min_size=1),
        st.none() | st.integers(1, 10),  # cancelled so much later
    ),
    max_size=6,
)
REPLIES = st.lists(
    st.dictionaries(
        st.sampled_from(NAMES),
        st.sampled_from(
            [0, int(ErrorCode.OFFSET_METADATA_TOO_LARGE), int(ErrorCode.NOT_COORDINATOR)]
        ),
    ),
    max_size=8,
)


@final
class Calls:
    """Callers, the outcome of each, and what the coordinator did, request by request."""

    def __init__(self, replies: Sequence[Any]) -> None:
        self.fake = FakeGeneration(commit_timeout=60.0, session_timeout=3600.0)
        self.requests: list[tuple[dict[TopicPartition, int], dict[TopicPartition, int]]] = []
        self.outcomes: list[tuple[dict[TopicPartition, int], Any]] = []
        self._replies = list(replies)
        self._sending = False
        self.fake.coordinator.commit = self._answer  # type: ignore[assignment, method-assign]

    async def _answer(self, _: object, offsets: Any, on_sent: Any, on_lost: object) -> Any:
        del on_lost
        assert not self._sending  # one request at a time
        self._sending = True
        on_sent()
        await trio.sleep(0.5)
        self._sending = False
        reply = self._replies.pop(0) if self._replies else {}
        codes = {name: reply.get(name, 0) for name in offsets}
        self.requests.append(({name: it.offset for name, it in offsets.items()}, codes))
        return codes

    async def call(self, when: float, offsets: Any, until: int | None) -> None:
        """Commit at this time; cancel the call after ``until`` tenths of a second."""
        await trio.sleep(when)
        error: Exception | None = None
        with trio.CancelScope() as scope:
            if until is not None:
                scope.deadline = trio.current_time() + until / 10
            try:
                await self.fake.committer.commit(self.fake.positions.check(offsets))
            except (CommitFailedError, OffsetBehindCommitError) as caught:
                error = caught
        self.outcomes.append((offsets, "cancelled" if scope.cancelled_caught else error))

    def check_positions(self) -> None:
        """Committed positions only rise, and the generation knows the last one of each."""
        for name in NAMES:
            mine = [offset for it, offset in self._applied() if it == name]
            assert mine == sorted(mine)
            assert self.fake.positions.lower_bound(name) == max(mine, default=0)

    def check_requests(self) -> None:
        """Each offset that was sent was committed by some caller."""
        wanted = {pair for offsets, _ in self.outcomes for pair in offsets.items()}
        assert {pair for sent, _ in self.requests for pair in sent.items()} <= wanted

    def check_outcomes(self) -> None:
        """After a success, this offset or a later one was applied; the broker sent each refusal."""
        for offsets, outcome in self.outcomes:
            refused = getattr(outcome, "partitions", {})
            assert refused.keys() <= offsets.keys()
            for name, why in refused.items():
                assert self._was_answered(name, offsets[name], why.code)
            if outcome is None or refused:
                for name in offsets.keys() - refused.keys():
                    assert self._was_answered(name, offsets[name], 0)

    def _applied(self) -> list[tuple[TopicPartition, int]]:
        return [
            (name, offset)
            for offsets, codes in self.requests
            for name, offset in offsets.items()
            if codes[name] == 0
        ]

    def _was_answered(self, name: TopicPartition, offset: int, code: int) -> bool:
        return any(
            sent.get(name, -1) >= offset and codes[name] == code for sent, codes in self.requests
        )


@settings(max_examples=100)
@given(calls=CALLS, replies=REPLIES)
def test_each_caller_has_exactly_its_own_outcome(calls: Any, replies: Any) -> None:
    """Calls may come together, be cancelled, and be refused in part."""

    async def scenario() -> None:
        account = Calls(replies)
        async with trio.open_nursery() as nursery:
            for number, (when, offsets, until) in enumerate(calls):
                # Less than a tick apart, so that calls of one tick keep their order.
                nursery.start_soon(account.call, when / 10 + number / 1000, offsets, until)
        account.check_positions()
        account.check_requests()
        account.check_outcomes()

    trio.run(scenario, clock=MockClock(autojump_threshold=0))
