"""Commits of a live member: together, in order, cancelled, unknown, refused."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
import trio.testing
from trio.testing import MockClock

from kgroup.error_codes import ErrorCode
from kgroup.errors import (
    CommitFailedError,
    CommitUnknownError,
    NotOwnedError,
    OffsetBehindCommitError,
    StaleGenerationError,
)
from kgroup.events import CommitRefused, Committed
from kgroup.generation.generation import Generation
from kgroup.generation.states import State
from kgroup.types import Cause, OffsetAndMetadata, TopicPartition
from tests.group.harness import P0, P1, P2, Harness, harness
from tests.recovery.connections import Trouble
from tests.recovery.observed_member import QUICK, ObservedMember

OFFSETS = "offset_commit"


def committed_on_the_wire(here: Harness) -> list[dict[int, int]]:
    """The offsets of each OffsetCommit, by partition number."""
    return [
        {part.partition_index: part.committed_offset for part in request.topics[0].partitions}
        for _, request in here.requests_for(OFFSETS)
    ]


async def test_a_commit_cancelled_before_it_was_sent_sends_nothing(
    autojump_clock: MockClock,
) -> None:
    """A commit cancelled behind another one raises Cancelled and sends nothing."""
    async with harness(2) as here, here.group() as group, trio.open_nursery() as nursery:
        generation = await group.next()
        here.broker.slow(2.0, OFFSETS, times=1)
        nursery.start_soon(partial(generation.commit, {P0: 1}, beyond_read=True))
        await trio.testing.wait_all_tasks_blocked()
        with trio.move_on_after(1) as scope:
            await generation.commit({P1: 5}, beyond_read=True)
        assert scope.cancelled_caught
        await trio.sleep(5)
        await generation.commit({P0: 2}, beyond_read=True)
        assert committed_on_the_wire(here) == [{0: 1}, {0: 2}]
        assert await here.committed() == {P0: 2}


async def test_a_commit_cancelled_after_it_was_sent_gives_its_outcome(
    autojump_clock: MockClock,
) -> None:
    """In the cancelled scope, the call waits for the response and returns its outcome."""
    async with harness() as here, here.group() as group:
        generation = await group.next()
        here.broker.slow(2.0, OFFSETS, times=1)
        outcome = []
        with trio.move_on_after(1):
            await generation.commit({P0: 1}, beyond_read=True)
            outcome.append(here.now)
            await trio.sleep(1)
            outcome.append(here.now)
        assert outcome == [2.0]
        assert await here.committed() == {P0: 1}


async def test_a_refusal_in_a_cancelled_scope_is_raised(autojump_clock: MockClock) -> None:
    """A commit that was sent raises its refusal, although its scope is cancelled."""
    async with harness() as here, here.group() as group:
        generation = await group.next()
        here.broker.slow(2.0, OFFSETS, times=1)
        here.broker.inject(OFFSETS, ErrorCode.OFFSET_METADATA_TOO_LARGE)
        with trio.move_on_after(1), pytest.raises(CommitFailedError) as caught:
            await generation.commit({P0: 1}, beyond_read=True)
        assert caught.value.partitions[P0].code == ErrorCode.OFFSET_METADATA_TOO_LARGE


async def test_a_caller_cancelled_while_another_s_request_carries_its_offsets(
    autojump_clock: MockClock,
) -> None:
    """Offsets in another caller's request have their outcome, cancelled or not."""
    async with harness(2) as here, here.group() as group, trio.open_nursery() as nursery:
        generation = await group.next()
        here.broker.slow(2.0, OFFSETS)
        nursery.start_soon(partial(generation.commit, {P0: 1}, beyond_read=True))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(
            partial(generation.commit, {P0: 2}, beyond_read=True)
        )  # waits for its turn
        await trio.testing.wait_all_tasks_blocked()
        done = []
        with trio.move_on_after(3) as scope:
            await generation.commit({P1: 7}, beyond_read=True)  # is sent with the second
            done.append(here.now)
        assert done == [4.0]
        assert not scope.cancelled_caught
        assert await here.committed() == {P0: 2, P1: 7}


async def test_commits_that_wait_go_out_together(autojump_clock: MockClock) -> None:
    """Of many commits at once, the first is sent alone, and all others share one request."""
    partitions = [TopicPartition("topic", number) for number in range(10)]
    async with harness(10) as here, here.group() as group:
        generation = await group.next()
        here.broker.slow(1.0, OFFSETS)
        async with trio.open_nursery() as nursery:
            for offset in range(1, 11):
                for partition in partitions:
                    nursery.start_soon(
                        partial(generation.commit, {partition: offset}, beyond_read=True)
                    )
                await trio.testing.wait_all_tasks_blocked()
        assert len(here.requests_for(OFFSETS)) == 2
        assert await here.committed() == dict.fromkeys(partitions, 10)
        assert len(here.events_of(Committed)) == 2


async def test_each_caller_of_a_shared_request_has_its_own_answer(
    autojump_clock: MockClock,
) -> None:
    """A refused partition, and an offset below the lower bound, fail only their own callers."""
    async with harness(3, **{"offset.metadata.max.bytes": "10"}) as here, here.group() as group:
        generation = await group.next()
        here.broker.slow(1.0, OFFSETS)
        outcomes: dict[str, Any] = {}

        async def commit(name: str, offsets: dict[TopicPartition, Any]) -> None:
            try:
                await generation.commit(offsets, beyond_read=True)
                outcomes[name] = None
            except (CommitFailedError, OffsetBehindCommitError) as error:
                outcomes[name] = error

        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit, "first", {P0: 5})
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(commit, "good", {P1: 3})
            await trio.testing.wait_all_tasks_blocked()
            wordy = OffsetAndMetadata(4, metadata="much too long")
            nursery.start_soon(commit, "refused", {P2: wordy})
            nursery.start_soon(commit, "behind", {P0: 2})
            await trio.testing.wait_all_tasks_blocked()
        assert outcomes["first"] is None
        assert outcomes["good"] is None
        assert isinstance(outcomes["refused"], CommitFailedError)
        assert list(outcomes["refused"].partitions) == [P2]
        assert isinstance(outcomes["behind"], OffsetBehindCommitError)
        assert committed_on_the_wire(here) == [{0: 5}, {1: 3, 2: 4}]
        assert await here.committed() == {P0: 5, P1: 3}
        assert generation.state is State.RUNNING


async def test_commits_stay_in_the_order_of_their_calls(autojump_clock: MockClock) -> None:
    """A later call with a smaller offset is refused, because the earlier one comes first."""
    async with harness() as here, here.group() as group, trio.open_nursery() as nursery:
        generation = await group.next()
        here.broker.slow(1.0, OFFSETS)
        nursery.start_soon(partial(generation.commit, {P0: 1}, beyond_read=True))
        await trio.testing.wait_all_tasks_blocked()
        nursery.start_soon(partial(generation.commit, {P0: 9}, beyond_read=True))
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(OffsetBehindCommitError, match="behind 9"):
            await generation.commit({P0: 8}, beyond_read=True)
        await trio.sleep(3)
        assert await here.committed() == {P0: 9}


async def test_no_commit_goes_behind_the_last_one(autojump_clock: MockClock) -> None:
    """An offset below the start position or the last commit is refused; a seek allows it."""
    async with harness() as here:
        await here.append(10)
        async with here.group() as group:
            generation = await group.next()
            await generation.commit({P0: 4}, beyond_read=True)
        async with here.group() as group:
            generation = await group.next()
            assert generation.start_offsets[P0] == 4
            for offset in (3, 0):
                with pytest.raises(OffsetBehindCommitError):
                    await generation.commit({P0: offset}, beyond_read=True)
            await generation.commit({P0: 4}, beyond_read=True)
            await generation.commit({P0: 6}, beyond_read=True)
            with pytest.raises(OffsetBehindCommitError):
                await generation.commit({P0: 5}, beyond_read=True)
            generation.seek(P0, 2)
            await generation.commit({P0: 2}, beyond_read=True)
        assert committed_on_the_wire(here) == [{0: 4}, {0: 4}, {0: 6}, {0: 2}]
        assert await here.committed() == {P0: 2}


@pytest.mark.parametrize("bad", [-1, 2**63, True, "7", 1.5, None])
async def test_an_invalid_offset_is_refused(autojump_clock: MockClock, bad: Any) -> None:
    """A wrong value, or a partition that is not owned, is refused before anything is sent."""
    async with harness() as here, here.group() as group:
        generation = await group.next()
        with pytest.raises((TypeError, ValueError), match="topic-0"):
            await generation.commit({P0: bad}, beyond_read=True)
        with pytest.raises(NotOwnedError, match="this generation does not own topic-1"):
            await generation.commit({P0: 1, P1: 1}, beyond_read=True)
        await generation.commit({})
        assert here.requests_for(OFFSETS) == []


async def test_an_answer_that_never_comes_is_unknown(autojump_clock: MockClock) -> None:
    """After request_timeout the outcome is unknown, and the same commit can be made again."""
    async with harness() as here:
        observed = ObservedMember(here, **QUICK)
        async with observed.group() as group:
            generation = await group.next()
            silent = [True]
            observed.connections.trouble(Trouble.SILENT_AFTER, OFFSETS, lambda: silent[0])
            with pytest.raises(CommitUnknownError, match="may have been applied"):
                await generation.commit({P0: 3}, beyond_read=True)
            assert here.now == 4.0
            silent.clear()
            silent.append(False)
            assert generation.state is State.RUNNING
            await generation.commit({P0: 3}, beyond_read=True)
            assert await here.committed() == {P0: 3}
        assert [event.stale for event in observed.events(CommitRefused)] == [False]


async def test_a_commit_without_a_connection_fails(
    autojump_clock: MockClock,
) -> None:
    """If no connection could be opened, the outcome is known: nothing was committed."""
    async with harness() as here:
        observed = ObservedMember(here, **QUICK)
        async with observed.group() as group:
            generation = await group.next()
            await here.broker.disconnect()
            with pytest.raises(CommitUnknownError):
                await generation.commit(
                    {P0: 3}, beyond_read=True
                )  # given to a connection that had just ended
            with pytest.raises(CommitFailedError) as caught:
                await generation.commit({P0: 3}, beyond_read=True)
            assert caught.value.partitions[P0].code == ErrorCode.NETWORK_EXCEPTION
            assert generation.state is State.RUNNING
            await here.broker.start()
            await generation.commit({P0: 3}, beyond_read=True)
        assert await here.committed() == {P0: 3}


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
async def test_all_callers_of_a_refused_generation_get_the_refusal(
    autojump_clock: MockClock, code: ErrorCode
) -> None:
    """One refusal ends the generation: waiting and later commits are stale and not sent."""
    async with harness() as here, here.group() as group:
        generation = await group.next()
        here.broker.slow(1.0, OFFSETS)
        here.broker.inject(OFFSETS, code)
        stale: list[StaleGenerationError] = []

        async def commit(offset: int) -> None:
            try:
                await generation.commit({P0: offset}, beyond_read=True)
            except StaleGenerationError as error:
                stale.append(error)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(commit, 1)
            await trio.testing.wait_all_tasks_blocked()
            nursery.start_soon(commit, 2)
        await commit(3)
        assert len(stale) == 3
        assert {error.end for error in stale} == {generation.end}
        assert len(here.requests_for(OFFSETS)) == 1
        again = await group.next()
        assert again.epoch == generation.epoch + 1
        await again.commit({P0: 1}, beyond_read=True)
        assert await here.committed() == {P0: 1}


async def test_a_stale_commit_of_an_old_generation_leaves_the_new_one_alone(
    autojump_clock: MockClock,
) -> None:
    """Only the caller that uses an old generation gets the error."""
    async with harness() as here, here.group() as group:
        old = await group.next()
        old.start_soon(trio.sleep, 1)
        new = await group.next()
        sent = len(here.requests_for(OFFSETS))
        with pytest.raises(StaleGenerationError, match="has ended"):
            await old.commit({P0: 1}, beyond_read=True)
        assert len(here.requests_for(OFFSETS)) == sent
        assert new.state is State.RUNNING


async def test_nothing_is_sent_past_the_lease(
    autojump_clock: MockClock,
) -> None:
    """When the lease expires, the generation ends, and waiting commits are cancelled."""
    async with harness() as here:
        observed = ObservedMember(
            here, **{**QUICK, "session_timeout": 6.0, "heartbeat_interval": 1.0}
        )
        outcomes: list[object] = []

        async def commits_late(generation: Generation) -> None:
            try:
                await trio.sleep(7.5)
                await generation.commit({P0: 1}, beyond_read=True)
            except StaleGenerationError as error:
                outcomes.append(error)
                raise

        async with observed.group() as group:
            first = await group.next()
            first.start_soon(commits_late, first)
            here.broker.set_reachable(reachable=False)
            await first.ending.wait()
            assert here.now == pytest.approx(6.0, abs=0.5)
            assert first.end is not None
            assert first.end.cause is Cause.COORDINATOR_LOST
            here.broker.set_reachable(reachable=True)
            second = await group.next()
            assert second.state is State.RUNNING
        assert outcomes == []  # the task was cancelled when the lease was over
        assert here.requests_for(OFFSETS) == []


async def test_an_unstable_offset_is_waited_for(autojump_clock: MockClock) -> None:
    """Offsets of an open transaction are requested until they are stable."""
    async with harness() as here:
        observed = ObservedMember(here)
        here.broker.inject("offset_fetch", ErrorCode.UNSTABLE_OFFSET_COMMIT, times=4)
        async with observed.group() as group:
            generation = await group.next()
            assert 1.2 <= here.now <= 1.8  # 0.1 + 0.2 + 0.4 + 0.8, with jitter
            assert generation.start_offsets == {P0: 0}
        assert len(here.requests_for("offset_fetch")) == 5
        assert all(request.require_stable for _, request in here.requests_for("offset_fetch"))


async def test_a_moved_coordinator_costs_a_commit_nothing(autojump_clock: MockClock) -> None:
    """A call succeeds in spite of NOT_COORDINATOR, a loading coordinator and a cut connection."""
    async with harness() as here, here.group() as group, trio.open_nursery() as nursery:
        generation = await group.next()
        nursery.start_soon(lambda: here.broker.restart_coordinator(away=1.0, loading=1.0))
        await trio.testing.wait_all_tasks_blocked()
        await generation.commit({P0: 1}, beyond_read=True)
        assert 2.0 <= here.now <= 4.0
        here.broker.cut_connections()
        await generation.commit({P0: 2}, beyond_read=True)
        assert await here.committed() == {P0: 2}
        assert generation.state is State.RUNNING
