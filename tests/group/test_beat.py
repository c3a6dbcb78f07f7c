"""Members learn of a rebalance together, and one that leaves does so just before they do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.errors import GroupClosedError
from kgroup.events import GenerationDraining, Left
from kgroup.generation.generation import Generation
from kgroup.generation.states import State
from kgroup.group import ConsumerGroup
from kgroup.interfaces import Task
from kgroup.testing.memory import memory_runtime
from kgroup.types import Cause, End
from tests.group.harness import Harness, harness

INTERVAL = 3.0
LOST = End(Cause.MEMBERSHIP_LOST, "a test says so")


async def moments(generation: Generation) -> None:
    """A task that works until its generation ends, and then a moment longer."""
    await generation.ending.wait()
    await trio.sleep(0.01)


class Member:
    """A member with one task a generation, and when its generations began to end."""

    def __init__(
        self, here: Harness, name: str, *, work: Task = moments, **settings: object
    ) -> None:
        self.drained: list[float] = []
        self.left: list[float] = []
        self.generations: list[Generation] = []
        self._here = here
        self._work = work
        settings = {"heartbeat_interval": INTERVAL, "client_id": name, **settings}
        self.group = ConsumerGroup(
            here.config(**settings),
            runtime=memory_runtime(here.broker, seed=len(name)),
            on_event=self._note,
        )
        self.settled = trio.Event()

    def _note(self, event: object) -> None:
        if isinstance(event, GenerationDraining):
            self.drained.append(self._here.now)
        elif isinstance(event, Left):
            self.left.append(self._here.now)

    async def run(self) -> None:
        """Take generations until the group is closed."""
        async with self.group as group:
            async for generation in group:
                self.generations.append(generation)
                generation.start_soon(self._work, generation)


@asynccontextmanager
async def members(*names: str, **settings: Any) -> AsyncIterator[tuple[Harness, list[Member]]]:
    """Members that were begun at different moments and are in one generation."""
    async with harness(6) as here, trio.open_nursery() as nursery:
        running = [Member(here, name, **settings) for name in names]
        for member in running:
            nursery.start_soon(member.run)
            await trio.sleep(1.234)
        await trio.sleep(30)
        assert len({member.generations[-1].generation_id for member in running}) == 1
        yield here, running
        nursery.cancel_scope.cancel()


async def test_all_members_learn_of_a_rebalance_at_the_same_time(
    autojump_clock: MockClock,
) -> None:
    """No member stops work and then waits for one that has not learned of the rebalance yet."""
    async with members("a", "bb", "ccc") as (here, running), trio.open_nursery() as nursery:
        begun = here.now
        nursery.start_soon(Member(here, "dddd").run)
        await trio.sleep(INTERVAL + 1)
        drained = [member.drained[-1] for member in running]
        assert begun < min(drained)
        assert max(drained) - min(drained) < 0.01
        assert len({member.generations[-1].generation_id for member in running}) == 1
        nursery.cancel_scope.cancel()


async def test_members_with_different_intervals_learn_of_it_at_common_moments(
    autojump_clock: MockClock,
) -> None:
    """If one interval is a multiple of the other, the slower member is never early."""
    async with harness(2) as here, trio.open_nursery() as nursery:
        slow, quick = (
            Member(here, "a", heartbeat_interval=2.0),
            Member(here, "bb", heartbeat_interval=1.0),
        )
        nursery.start_soon(slow.run)
        nursery.start_soon(quick.run)
        await trio.sleep(30.7)
        beats = [at for at, api, _ in here.requests if api == "heartbeat" and at > 20]
        assert len({round(at % 1, 3) for at in beats}) == 1
        nursery.cancel_scope.cancel()


async def test_a_member_leaves_just_before_the_others_learn_of_it(
    autojump_clock: MockClock,
) -> None:
    """The leaving member's tasks run until then, so its partitions wait only briefly."""
    async with members("a", "bb", "ccc") as (here, (one, other, third)):
        asked = here.now
        generation = other.generations[-1]
        other.group.shutdown("enough")
        assert generation.state is State.RUNNING
        await other.group.wait_closed()
        assert asked < other.left[0] < asked + INTERVAL
        await trio.sleep(1)
        for member in (one, third):
            assert 0 <= member.drained[-1] - other.left[0] < 0.1
        assert generation.end is not None
        assert (generation.end.cause, generation.end.detail) == (Cause.CLOSED, "enough")


async def test_a_member_that_is_answered_slowly_begins_earlier(autojump_clock: MockClock) -> None:
    """Its LeaveGroup still comes before the heartbeats of the others, however far the broker is."""
    async with members("a", "bb") as (here, (one, other)):
        here.broker.slow(0.1)
        await trio.sleep(2 * INTERVAL)
        other.group.shutdown("enough")
        await other.group.wait_closed()
        await trio.sleep(1)
        # One round trip earlier than the beat, at which the other sends what is answered one later.
        assert 0.2 < one.drained[-1] - other.drained[-1] < 0.3


async def test_a_prompt_call_leaves_at_once(autojump_clock: MockClock) -> None:
    """``promptly=True`` leaves at once, also after a call that waits for the heartbeats."""
    async with members("a", "bb") as (here, (_, other)):
        asked = here.now
        other.group.shutdown("soon")
        await trio.sleep(0.001)
        await other.group.aclose(promptly=True)
        assert other.left[0] - asked < 0.1
        with pytest.raises(GroupClosedError, match="soon"):
            await other.group.next()


@pytest.mark.parametrize("settings", [{}, {"group_instance_id": "me"}])
async def test_a_member_without_successors_leaves_at_once(
    autojump_clock: MockClock, settings: dict[str, Any]
) -> None:
    """No member takes over the partitions of the only member, or of a static one."""
    async with members("a", **settings) as (here, (only,)):
        asked = here.now
        await only.group.aclose()
        assert here.now - asked < 0.1


async def test_without_tasks_there_is_nothing_to_wait_for(autojump_clock: MockClock) -> None:
    """A member that processes nothing leaves at once."""
    async with members("a") as (here, _), here.group(heartbeat_interval=INTERVAL) as group:
        generation = await group.next()
        group.release()
        await trio.sleep(1)
        since = here.now
        await group.aclose()
        assert here.now - since < 0.1
        assert generation.state is State.ENDED


async def test_a_block_that_raises_is_left_at_once(autojump_clock: MockClock) -> None:
    """Only a planned end waits for the heartbeats; an exception does not."""
    async with members("a", "bb") as (here, _):
        since = here.now
        with pytest.raises(ValueError, match="wrong"):  # the block raises
            async with here.group(heartbeat_interval=INTERVAL) as group:
                generation = await group.next()
                generation.start_soon(moments, generation)
                since = here.now
                raise ValueError("wrong")
        assert here.now - since < 0.1


async def test_a_generation_that_ends_meanwhile_is_not_waited_for(
    autojump_clock: MockClock,
) -> None:
    """A loss while a member waits for the others' heartbeats closes it at once."""
    async with members("a", "bb") as (here, (_, other)):
        generation = other.generations[-1]
        other.group.shutdown("enough")
        asked = here.now
        generation_lost = other.group._lifecycle
        assert generation_lost is not None
        generation_lost.end(LOST)
        await other.group.wait_closed()
        assert here.now - asked < 0.1
        assert generation.end is not None
        assert generation.end.cause is Cause.MEMBERSHIP_LOST


async def test_a_long_drain_begins_earlier(autojump_clock: MockClock) -> None:
    """If batches take half a second, the drain begins at least that long before the beat."""
    async with members("a", work=half_a_second_for_each_batch) as (here, (one,)):
        other = Member(here, "bb", work=half_a_second_for_each_batch)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(other.run)
            await here.append(60, 0)
            await here.append(60, 5)
            await trio.sleep(8.3)
            other.group.shutdown("enough")
            await other.group.wait_closed()
            await trio.sleep(1)
        assert 0.02 < other.left[0] - other.drained[-1] <= 0.5
        assert 0 <= one.drained[-1] - other.left[0] < 0.5


async def half_a_second_for_each_batch(generation: Generation) -> None:
    """A handler."""
    async for batch in generation.records(max_records=2):
        await trio.sleep(0.5)
        await generation.commit({batch.partition: batch.next_offset})


async def test_a_task_that_closes_the_group_and_returns(autojump_clock: MockClock) -> None:
    """The generation ends at once, and its end is the closing: that came first."""
    async with members("a", work=half_a_second_for_each_batch) as (here, _):
        since = 0.0

        async def last(generation: Generation) -> None:
            nonlocal since
            await trio.sleep(1)
            since = here.now
            group.shutdown("the last record was seen")

        async with here.group(heartbeat_interval=INTERVAL) as group:
            generation = await group.next()
            generation.start_soon(last, generation)
            await generation.wait_ended()
        assert here.now - since < 0.1
        assert generation.end == End(Cause.CLOSED, "the last record was seen")
