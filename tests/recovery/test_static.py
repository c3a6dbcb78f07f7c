"""Static members (KIP-345), and the reasons of joining and leaving (KIP-800)."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from kgroup.errors import FencedInstanceError, StaleGenerationError
from kgroup.events import GenerationEnded, Joining, Left
from kgroup.generation.generation import Generation
from kgroup.generation.states import State
from kgroup.group import ConsumerGroup
from kgroup.types import Cause
from tests.group.harness import P0, Harness, harness
from tests.recovery.observed_member import ObservedMember


async def members_of(here: Harness) -> list[str | None]:
    """The instance ids of the group's members."""
    groups = await here.broker.groups()
    return [member.group_instance_id for group in groups for member in group.members]


async def test_closing_leaves_a_static_member_in_place(autojump_clock: MockClock) -> None:
    """No LeaveGroup is sent, the member stays until its session expires, and the event says so."""
    async with harness() as here:
        async with here.group(group_instance_id="one") as group:
            await group.next()
        assert here.requests_for("leave_group") == []
        assert await members_of(here) == ["one"]
        (left,) = here.events_of(Left)
        assert not left.notified
        assert "static" in str(left)
        await trio.sleep(31)
        assert await members_of(here) == []


async def test_a_restart_within_the_session_causes_no_rebalance(
    autojump_clock: MockClock,
) -> None:
    """It has the same partitions in the same generation; the other member is not affected."""
    async with harness(2) as here, trio.open_nursery() as nursery:
        others: list[Generation] = []

        async def other() -> None:
            async with here.group(group_instance_id="other") as group:
                async for generation in group:
                    others.append(generation)  # noqa: PERF401 # seen as they come

        nursery.start_soon(other)
        await trio.sleep(5)
        async with here.group(group_instance_id="one") as group:
            before = await group.next()
            await trio.sleep(5)
            assert len(before.assignment) == 1
        generations = len(others)
        await trio.sleep(10)
        async with here.group(group_instance_id="one") as group:
            after = await group.next()
            assert after.generation_id == before.generation_id
            assert list(after.assignment) == list(before.assignment)
            assert after.member_id != before.member_id
            await trio.sleep(10)
            assert after.state is State.RUNNING
        assert len(others) == generations
        assert others[-1].state is State.RUNNING
        nursery.cancel_scope.cancel()


async def test_a_static_leader_restarts_without_a_rebalance(autojump_clock: MockClock) -> None:
    """As the leader, it keeps its assignment and computes no new one (KIP-814)."""
    async with harness(2) as here:
        async with here.group(group_instance_id="one") as group:
            before = await group.next()
        async with here.group(group_instance_id="one") as group:
            after = await group.next()
            assert (after.generation_id, after.leader) == (before.generation_id, True)
            assert list(after.assignment) == list(before.assignment)
            await here.broker.add_partitions("topic", 3)
            # It still watches: as the leader it is the one to see that there are more.
            again = await group.next()
            assert len(again.assignment) == 3


async def fenced(here: Harness, act: str) -> tuple[Generation, list[Exception]]:
    """A second process with the same instance id joins while the first has a generation."""
    raised: list[Exception] = []
    kept: list[Generation] = []
    observed = ObservedMember(here)

    async def first(joined: trio.Event, second_joined: trio.Event) -> None:
        group = observed.group(group_instance_id="one", heartbeat_interval=5.0)
        async with group:
            generation = await group.next()
            kept.append(generation)
            await trio.sleep(20)
            joined.set()
            await second_joined.wait()
            if act == "commit":
                try:
                    await generation.commit({P0: 1}, beyond_read=True)
                except StaleGenerationError as error:
                    raised.append(error)
            await generation.ending.wait()
            for _ in range(2):
                try:
                    await group.next()
                except FencedInstanceError as error:
                    raised.append(error)

    async with trio.open_nursery() as nursery:
        joined, second_joined = trio.Event(), trio.Event()
        nursery.start_soon(first, joined, second_joined)
        await joined.wait()
        async with here.group(group_instance_id="one") as second:
            generation = await second.next()
            second_joined.set()
            await trio.sleep(20)
            assert generation.state is State.RUNNING
    assert [it.api for it in observed.connections.sent if it.api == "leave_group"] == []
    (ended,) = observed.events(GenerationEnded)
    assert ended.end.cause is Cause.FENCED
    return kept[0], raised


async def test_a_second_process_with_the_same_instance_fences_the_first(
    autojump_clock: MockClock,
) -> None:
    """The first gets it with a heartbeat: FENCED, raised bare by every next(), and no leave."""
    async with harness() as here:
        generation, raised = await fenced(here, "heartbeat")
        assert generation.end is not None
        assert generation.end.cause is Cause.FENCED
        assert not generation.end.can_commit
        assert [type(error) for error in raised] == [FencedInstanceError] * 2
        assert "give each process its own" in str(raised[0])


async def test_a_join_that_arrives_late_fences_its_own_member(autojump_clock: MockClock) -> None:
    """The coordinator takes it for that of another process, so the error names both causes."""
    async with harness() as here:
        here.broker.slow(60.0, "join_group", times=1)
        with pytest.raises(FencedInstanceError, match="JoinGroup of this process"):
            async with here.group(group_instance_id="one") as group:
                generation = await group.next()
                assert here.now < 60
                await generation.wait_ended()
                await group.next()


async def test_a_fenced_member_s_commit_is_refused(autojump_clock: MockClock) -> None:
    """It gets it with a commit: StaleGenerationError, whose end is the fencing."""
    async with harness() as here:
        generation, raised = await fenced(here, "commit")
        assert isinstance(raised[0], StaleGenerationError)
        assert raised[0].end is generation.end
        assert [type(error) for error in raised[1:]] == [FencedInstanceError] * 2
        assert await here.committed() == {}


async def test_a_fenced_member_raises_bare_at_exit(autojump_clock: MockClock) -> None:
    """If no next() has raised it, the block does, without an exception group."""
    async with harness() as here, trio.open_nursery() as nursery:

        async def second() -> None:
            await trio.sleep(5)
            async with here.group(group_instance_id="one") as group:
                await group.next()
                await trio.sleep(5)

        nursery.start_soon(second)
        with pytest.raises(FencedInstanceError):
            async with here.group(group_instance_id="one") as group:
                generation = await group.next()
                await generation.ending.wait()
                await group.aclose()


async def test_a_static_member_that_fails_does_not_leave_either(
    autojump_clock: MockClock,
) -> None:
    """After an exception of a task, too, a static member stays."""
    async with harness() as here:

        async def raises() -> None:
            await trio.sleep(1)
            raise ValueError("broken")

        with pytest.raises(ExceptionGroup):
            async with here.group(group_instance_id="one") as group:
                async for generation in group:
                    generation.start_soon(raises)
        assert here.requests_for("leave_group") == []
        assert await members_of(here) == ["one"]


async def test_joins_and_leaves_say_why(autojump_clock: MockClock) -> None:
    """KIP-800: each Join says what ended the generation before, each Leave why it closes."""
    async with harness() as here:

        async def one_task() -> None:
            await trio.sleep(10)

        async with here.group() as group:
            first = await group.next()
            first.start_soon(one_task)
            await group.next()
            await group.aclose("the operator asked")
        joins = [request.reason for _, request in here.requests_for("join_group")]
        first_joins = [event.reason for event in here.events_of(Joining)][:2]
        assert first_joins == [joins[0], "the coordinator has given the member an id"]
        assert joins[0] == "the member has started"
        assert joins[-1].startswith("task returned: ")
        assert "one_task returned" in joins[-1]
        (leave,) = [request for _, request in here.requests_for("leave_group")]
        assert leave.members[0].reason == "the operator asked"


async def test_a_reason_is_cut_to_what_the_broker_takes(autojump_clock: MockClock) -> None:
    """A reason of more than Kafka's 255 characters is cut, not refused."""
    async with harness() as here:
        async with here.group() as group:
            await group.next()
            await group.aclose("why " * 200)
        (leave,) = [request for _, request in here.requests_for("leave_group")]
        assert len(leave.members[0].reason) == 255


async def test_a_task_s_exception_is_the_reason_of_the_leave(autojump_clock: MockClock) -> None:
    """The broker's log shows what kind of exception it was, and nothing of its text."""
    async with harness() as here:

        async def raises(group: ConsumerGroup) -> None:
            await trio.sleep(1)
            raise ValueError(f"broken in {group.config.group_id}")

        with pytest.raises(ExceptionGroup):
            async with here.group() as group:
                async for generation in group:
                    generation.start_soon(raises, group)
        (leave,) = [request for _, request in here.requests_for("leave_group")]
        assert "ValueError" in leave.members[0].reason
        assert "broken" not in leave.members[0].reason
