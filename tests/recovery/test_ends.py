"""How generations end: drains and their one deadline, and losses during a drain."""

from __future__ import annotations

from itertools import pairwise

import pytest
import trio
from trio.testing import MockClock

from kgroup.broker.groups import requests, responses
from kgroup.client.coordinator import CoordinatorClient
from kgroup.error_codes import ErrorCode
from kgroup.errors import AuthorizationError, CommitUnknownError, UsageError
from kgroup.events import GenerationDraining, GenerationEnded
from kgroup.generation.generation import Generation
from kgroup.generation.states import State
from kgroup.group import ConsumerGroup
from kgroup.types import Cause, Membership
from tests.group.harness import P0, Harness, harness


async def rebalances(here: Harness) -> None:
    """Another member joins, and leaves after a while."""
    async with here.group(client_id="other") as group:
        with trio.move_on_after(60):
            await group.next()


async def test_a_drain_ends_before_the_rebalance_time_out(
    autojump_clock: MockClock,
) -> None:
    """However long drain_timeout is, the JoinGroup arrives before the rebalance timeout is over."""
    async with harness(2) as here, trio.open_nursery() as nursery:

        async def never_done() -> None:
            await trio.sleep_forever()

        async with here.group(rebalance_timeout=8.0, drain_timeout=100.0) as group:
            first = await group.next()
            first.start_soon(never_done)
            nursery.start_soon(rebalances, here)
            second = await group.next()
            assert second.member_id == first.member_id
            (drain,) = here.events_of(GenerationDraining)
            assert 5.9 <= drain.seconds <= 7.0
            (ended, *_) = here.events_of(GenerationEnded)
            assert ended.cut_short
        nursery.cancel_scope.cancel()


async def test_a_commit_in_a_drain_has_the_drain_s_deadline(autojump_clock: MockClock) -> None:
    """A commit without a response is unknown at the end of the drain, and not later."""
    async with harness(2) as here, trio.open_nursery() as nursery:
        outcome: list[tuple[float, type[Exception]]] = []
        began: list[float] = []

        async def commits(generation: Generation) -> None:
            await generation.ending.wait()
            began.append(here.now)
            here.broker.slow(100.0, "offset_commit", times=1)
            try:
                await generation.commit({P0: 1}, beyond_read=True)
            except CommitUnknownError as error:
                outcome.append((here.now, type(error)))

        async with here.group(drain_timeout=5.0, request_timeout=60.0) as group:
            first = await group.next()
            first.start_soon(commits, first)
            nursery.start_soon(rebalances, here)
            await group.next()
            ((at, kind),) = outcome
            assert kind is CommitUnknownError
            assert at - began[0] == pytest.approx(5.0)
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
async def test_membership_lost_in_a_drain_ends_it_at_once(
    autojump_clock: MockClock, code: ErrorCode
) -> None:
    """Heartbeats continue during a drain; a loss that they find replaces the revocation."""
    async with harness(2) as here, trio.open_nursery() as nursery:
        cancelled: list[float] = []
        lost: list[float] = []

        async def never_done(generation: Generation) -> None:
            await generation.ending.wait()
            await trio.sleep(3)
            here.broker.inject(
                "heartbeat", code, match=lambda it: it.member_id == generation.member_id
            )
            lost.append(here.now)
            try:
                await trio.sleep_forever()
            finally:
                cancelled.append(here.now)

        async with here.group() as group:
            first = await group.next()
            first.start_soon(never_done, first)
            nursery.start_soon(rebalances, here)
            await group.next()
            assert first.end is not None
            assert first.end.cause is Cause.MEMBERSHIP_LOST
            assert cancelled[0] - lost[0] <= 1.0
        nursery.cancel_scope.cancel()


async def test_a_lookup_of_the_coordinator_that_cannot_succeed(
    autojump_clock: MockClock,
) -> None:
    """If the lookup is not authorized, the generation is lost and the group is closed."""
    async with harness() as here, here.group() as group:
        first = await group.next()
        await trio.sleep(5)
        here.broker.inject("find_coordinator", ErrorCode.GROUP_AUTHORIZATION_FAILED)
        here.broker.inject("heartbeat", ErrorCode.NOT_COORDINATOR)
        await first.ending.wait()
        assert first.end is not None
        assert first.end.cause is Cause.COORDINATOR_LOST
        with pytest.raises(AuthorizationError):
            await group.next()


async def test_a_member_that_an_administrator_removes(autojump_clock: MockClock) -> None:
    """Its generation is lost at the next heartbeat; it joins again at once, under another id."""
    async with harness() as here, here.group(session_timeout=100.0) as group:
        first = await group.next()
        with pytest.raises(UsageError, match="'other' of group 'group' was not removed: UNKNOWN"):
            await here.broker.remove_member("group", "other")
        await here.broker.remove_member("group", first.member_id)
        await first.ending.wait()
        assert first.end is not None
        assert first.end.cause is Cause.MEMBERSHIP_LOST
        second = await group.next()
        assert second.member_id != first.member_id
        assert here.now < 10.0  # it waits for no session
        with pytest.raises(UsageError, match="UNKNOWN_MEMBER_ID"):
            await here.broker.remove_member("group", first.member_id)
        here.broker.fail_coordinator_writes(ErrorCode.NOT_ENOUGH_REPLICAS)
        with pytest.raises(UsageError, match="was not removed: [A-Z_]+"):
            await here.broker.remove_member("group", second.member_id)


async def test_heartbeats_come_quickly_at_first_and_then_at_their_interval(
    autojump_clock: MockClock,
) -> None:
    """The first waits are 0 and 250 ms, doubling; then heartbeats come with the beat."""
    async with harness() as here, here.group(heartbeat_interval=3.0) as group:
        await group.next()
        await trio.sleep(20)
        times = [at for at, api, _ in here.requests if api == "heartbeat"]
        # 6.1 s is the phase of this group's id.
        assert times[:8] == pytest.approx([0, 0.35, 0.6, 1.1, 2.1, 6.1, 6.1 + 3, 6.1 + 6])


async def test_a_throttled_member_waits(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No heartbeat goes out sooner than throttle_time_ms allows (KIP-124)."""
    beat = CoordinatorClient.heartbeat

    async def throttled(self: CoordinatorClient, membership: Membership) -> float:
        await beat(self, membership)
        return 4.0

    monkeypatch.setattr(CoordinatorClient, "heartbeat", throttled)
    async with harness() as here, here.group() as group:
        generation = await group.next()
        await trio.sleep(30)
        times = [at for at, api, _ in here.requests if api == "heartbeat"]
        assert all(b - a >= 4.0 for a, b in pairwise(times))
        assert len(times) >= 5
        assert generation.state is State.RUNNING


async def test_a_pending_transaction_is_waited_for(autojump_clock: MockClock) -> None:
    """KIP-447: the start position is the one that the transaction commits, not the one before."""
    async with harness(2) as here, trio.open_nursery() as nursery:
        purgatory = here.broker.cluster.brokers[1].groups
        await purgatory.handle(
            requests.TxnOffsetCommit(
                group_id="group",
                version=5,
                producer_id=7,
                offsets=(requests.OffsetToCommit(topic="topic", partition=0, offset=42),),
            ),
            responses.OffsetsCommitted,
        )

        async def decides() -> None:
            await trio.sleep(3)
            purgatory.coordinator.complete_transaction(7, committed=True)

        nursery.start_soon(decides)
        async with here.group() as group:
            generation = await group.next()
            assert here.now >= 3
            assert generation.start_offsets[P0] == 42


async def test_an_explicit_retention_travels_in_v4(autojump_clock: MockClock) -> None:
    """offset_retention makes a commit v4, with the retention in milliseconds."""
    async with harness() as here, here.group(offset_retention=3600.0) as group:
        generation = await group.next()
        await generation.commit({P0: 1}, beyond_read=True)
        ((_, request),) = here.requests_for("offset_commit")
        assert request.__version__ == 4
        assert request.retention_time.total_seconds() == 3600
    assert await here.committed() == {P0: 1}


async def test_a_body_under_scope_is_cancelled_with_its_generation(
    autojump_clock: MockClock,
) -> None:
    """Work in the loop's body that outlasts the drain is cancelled, and the loop continues."""
    async with harness(2) as here, trio.open_nursery() as nursery:
        generations = await bodies(here, nursery, here.group(drain_timeout=3.0))
        assert [generation.end and generation.end.cause for generation in generations] == [
            Cause.REBALANCE,
            Cause.CLOSED,
        ]
        nursery.cancel_scope.cancel()


async def bodies(here: Harness, nursery: trio.Nursery, making: ConsumerGroup) -> list[Generation]:
    """Two generations of a group; the first body works for ever under its generation's scope."""
    generations: list[Generation] = []
    async with making as group:
        async for generation in group:
            generations.append(generation)
            if len(generations) > 1:
                break
            nursery.start_soon(rebalances, here)
            with generation.scope():
                await trio.sleep_forever()
    return generations
