"""The body of a loop over the group that goes on after its generation is reported."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from kgroup.events import BodyStillRunning, GenerationEnded
from kgroup.group import ConsumerGroup
from kgroup.watchers.heartbeat import LATE_PART
from tests.group.harness import harness


async def outlast_a_generation(group: ConsumerGroup) -> None:
    """Hold a generation that has ended, for long."""
    generation = await group.next()
    generation.start_soon(trio.lowlevel.checkpoint)
    await trio.sleep(600)


async def test_a_body_that_does_not_return(autojump_clock: MockClock) -> None:
    """One warning has its stack, a third of the session timeout after the end."""
    async with harness() as here:
        async with here.group(drain_timeout=1.0) as group:
            await outlast_a_generation(group)
            (event,) = here.events_of(BodyStillRunning)
            late = LATE_PART * group.config.session_timeout
            assert late <= event.seconds < late + 1
            assert (event.epoch, event.generation_id) == (1, 1)
            assert "in outlast_a_generation" in event.stack
            assert (await group.next()).epoch == 2
        assert len(here.events_of(BodyStillRunning)) == 1


async def test_a_task_that_has_ended_with_its_generation_in_hand(
    autojump_clock: MockClock,
) -> None:
    """There is no stack then, and the warning says why."""
    async with harness() as here, here.group(drain_timeout=1.0) as group:
        async with trio.open_nursery() as nursery:

            async def take() -> None:
                (await group.next()).start_soon(trio.lowlevel.checkpoint)

            nursery.start_soon(take)
        await trio.sleep(600)
        (event,) = here.events_of(BodyStillRunning)
        assert event.stack == "(the task that called next() has ended)"


async def test_bodies_that_are_not_late(autojump_clock: MockClock) -> None:
    """Nothing is reported of one that calls next in time, released it, or has unsubscribed."""
    async with harness() as here:
        async with here.group() as group:
            generation = await group.next()
            generation.start_soon(trio.lowlevel.checkpoint)
            await generation.wait_ended()
            await trio.sleep(LATE_PART * group.config.session_timeout - 1)
            generation = await group.next()
            generation.start_soon(trio.lowlevel.checkpoint)
            group.release()
            await trio.sleep(600)
            await group.next()
            group.unsubscribe()
            await trio.sleep(600)
        assert here.events_of(GenerationEnded)
        assert here.events_of(BodyStillRunning) == []
