"""The contract of generations that kafka-go's ``ConsumerGroup`` set, case by case.

Each case of its ``consumergroup_test.go`` is here. Beyond it, kgroup promises that ``next()``
retries after transient failures instead of raising them.
"""

from __future__ import annotations

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

from kgroup.errors import GroupClosedError, StaleGenerationError, UsageError
from kgroup.events import BackingOff, RequestFailed
from kgroup.generation.generation import Generation
from kgroup.generation.states import State
from kgroup.group import ConsumerGroup
from kgroup.types import Cause
from tests.group.harness import P0, Harness, harness
from tests.recovery.observed_member import ObservedMember


async def returns() -> None:
    """A handler that returns at once."""
    await trio.lowlevel.checkpoint()


async def stay(here: Harness, joined: trio.Event, leave: trio.Event) -> None:
    """Be another member, which joins again in every rebalance until it has to leave."""
    async with here.group() as group, trio.open_nursery() as nursery:

        async def close() -> None:
            await leave.wait()
            group.shutdown()

        nursery.start_soon(close)
        async for _ in group:
            joined.set()


async def test_a_returned_task_brings_the_next_generation_of_a_lone_member(
    autojump_clock: MockClock,
) -> None:
    """Epoch and generation id are new, the member id is not; the old one starts no task."""
    async with harness() as here, here.group() as group:
        first = await group.next()
        assert first.start_soon(returns)
        second = await group.next()
        assert first.state is State.ENDED
        assert (second.epoch, second.generation_id) == (first.epoch + 1, first.generation_id + 1)
        assert (second.member_id, second.group_id) == (first.member_id, first.group_id)
        assert not first.start_soon(returns)
        with pytest.raises(StaleGenerationError):
            await first.commit({P0: 1}, beyond_read=True)


async def test_a_leader_s_return_moves_the_whole_group(autojump_clock: MockClock) -> None:
    """The leader's next generation has a new id, and so has the follower's."""
    async with harness(2) as here, trio.open_nursery() as nursery, here.group() as group:
        await group.next()
        joined, leave = trio.Event(), trio.Event()
        nursery.start_soon(stay, here, joined, leave)
        leader = await group.next()
        await joined.wait()
        assert leader.leader
        leader.start_soon(trio.sleep, 10)
        again = await group.next()
        assert again.epoch == leader.epoch + 1
        assert again.generation_id == leader.generation_id + 1
        assert again.member_id == leader.member_id
        leave.set()


async def test_a_follower_s_return_changes_nothing_in_a_stable_group(
    autojump_clock: MockClock,
) -> None:
    """The follower has a new epoch in the same generation, and no other member is affected."""
    async with harness(2) as here, trio.open_nursery() as nursery:
        joined, leave = trio.Event(), trio.Event()
        nursery.start_soon(stay, here, joined, leave)
        await joined.wait()
        async with here.group() as group:
            follower = await group.next()
            await trio.sleep(10)
            assert not follower.leader
            joins = len(here.requests_for("join_group"))
            follower.start_soon(returns)
            again = await group.next()
            assert again.epoch == follower.epoch + 1
            assert again.generation_id == follower.generation_id
            assert again.member_id == follower.member_id
            assert again.assignment.kept == frozenset(follower.assignment)
            await trio.sleep(10)
            assert again.state is State.RUNNING
            assert len(here.requests_for("join_group")) == joins + 1
        leave.set()


async def test_next_of_a_cancelled_scope_raises_cancelled(autojump_clock: MockClock) -> None:
    """A cancelled next() returns no generation, and the group works afterwards."""
    async with harness() as here, here.group() as group:
        with trio.CancelScope() as scope:
            scope.cancel()
            await group.next()
        assert scope.cancelled_caught
        assert (await group.next()).state is State.RUNNING


async def test_next_of_a_closed_group(autojump_clock: MockClock) -> None:
    """next() raises GroupClosedError every time; a group that never joined sends no LeaveGroup."""
    async with harness() as here, here.group() as group:
        await group.aclose()
        for _ in range(2):
            with pytest.raises(GroupClosedError):
                await group.next()
        assert here.requests_for("join_group", "leave_group") == []


async def test_an_assignor_that_raises_makes_the_member_leave(autojump_clock: MockClock) -> None:
    """next() raises the assignor's exception unchanged, and the member leaves."""

    class Mine:
        name = "mine"

        def assign(self, topics: object, members: object) -> dict[str, list[object]]:
            del topics, members
            raise LookupError("no plan")

    async with harness() as here:
        with pytest.raises(LookupError, match="no plan"):
            async with here.group(assignors=[Mine()]) as group:
                await group.next()
        assert len(here.requests_for("leave_group")) == 1


#: From which request on a member has an id to leave with.
FAILING = [
    ("find_coordinator", False),
    ("join_group", False),
    ("sync_group", True),
]


@pytest.mark.parametrize(("api", "leaves"), FAILING)
async def test_an_unknown_error(autojump_clock: MockClock, api: str, leaves: bool) -> None:
    """The member leaves if it has an id, backs off and starts over; next() continues waiting."""
    async with harness() as here:
        observed = ObservedMember(here)
        here.broker.inject(api, 41)
        async with observed.group() as group:
            generation = await group.next()
            assert generation.state is State.RUNNING
        sent = [(it.at, it.api, it.member_id) for it in observed.connections.sent]
        left = [(at, member_id) for at, it, member_id in sent if it == "leave_group"]
        # The last one is the closing.
        assert len(left) == (2 if leaves else 1)
        if leaves:
            assert left[0][1] != generation.member_id
        joins = [it for it in sent if it[1] == "join_group"]
        assert 0.08 <= joins[-1][0] <= 0.12
        assert [event.request for event in observed.events(RequestFailed)] == [
            {"find_coordinator": "FindCoordinator", "join_group": "JoinGroup"}.get(api, "SyncGroup")
        ]


async def test_a_rebalance_during_sync_is_joined_at_once(autojump_clock: MockClock) -> None:
    """REBALANCE_IN_PROGRESS: no leave, no backoff, the same member id, and no warning."""
    async with harness() as here:
        observed = ObservedMember(here)
        here.broker.inject("sync_group", 27, times=3)
        async with observed.group() as group:
            generation = await group.next()
            assert here.now == 0
            assert [it.member_id for it in observed.connections.sent if it.api == "join_group"] == [
                "",
                *[generation.member_id] * 4,
            ]
        assert observed.events(BackingOff) == []
        assert observed.events(RequestFailed) == []


async def test_a_task_started_after_the_end_does_not_run(autojump_clock: MockClock) -> None:
    """start_soon on a generation that has ended returns False, and the function never runs."""
    async with harness() as here, here.group() as group:
        first = await group.next()
        first.start_soon(returns)
        second = await group.next()
        ran: list[bool] = []

        async def never(generation: Generation) -> None:
            ran.append(True)
            await trio.lowlevel.checkpoint()

        assert not first.start_soon(never, first)
        await trio.sleep(5)
        assert ran == []
        assert second.state is State.RUNNING


async def test_next_inside_a_task_of_the_generation_is_refused(autojump_clock: MockClock) -> None:
    """next() raises in tasks of the generation, and in tasks that those start."""
    async with harness() as here, here.group() as group:
        generation = await group.next()
        refused: list[UsageError] = []

        async def inner(group: ConsumerGroup) -> None:
            try:
                await group.next()
            except UsageError as error:
                refused.append(error)

        async def outer() -> None:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(inner, group)

        generation.start_soon(outer)
        await generation.ending.wait()
        assert len(refused) == 1
        assert generation.end is not None
        assert generation.end.cause is Cause.TASK_RETURNED
