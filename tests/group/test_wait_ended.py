"""`Generation.wait_ended` in the loop's body is not work: the drain does not wait for it."""

from __future__ import annotations

import trio
from trio.testing import MockClock

from kgroup.events import GenerationEnded
from kgroup.generation.states import State
from kgroup.types import Cause
from tests.group.harness import P0, harness


async def test_a_body_that_waits_for_the_end_does_not_hold_the_drain(
    autojump_clock: MockClock,
) -> None:
    """The drain ends with the tasks, and the group joins when next() is called."""
    async with harness() as here, here.group(drain_timeout=20.0) as group:

        async def returns() -> None:
            await trio.sleep(1)

        generation = await group.next()
        generation.start_soon(returns)
        began = here.now
        end = await generation.wait_ended()
        assert end.cause is Cause.TASK_RETURNED
        assert here.now - began < 2
        joins = len(here.requests_for("join_group"))
        await trio.sleep(30)
        assert len(here.requests_for("join_group")) == joins
        assert (await group.next()).epoch == generation.epoch + 1


async def test_a_body_counts_as_work_again_after_a_cancelled_wait(
    autojump_clock: MockClock,
) -> None:
    """After a cancelled wait, the drain waits for the body's own work as before."""
    async with harness() as here, here.group(drain_timeout=20.0) as group:
        generation = await group.next()
        with trio.move_on_after(1):
            await generation.wait_ended()

        async def returns() -> None:
            await trio.sleep(1)

        generation.start_soon(returns)
        await trio.sleep(5)
        assert generation.state is State.DRAINING
        await generation.commit({P0: 0})
        assert await here.committed() == {P0: 0}


async def test_a_body_that_was_released_meanwhile_does_not_count_again(
    autojump_clock: MockClock,
) -> None:
    """If another task calls next() during a wait that is cancelled, closing waits for nothing."""
    async with harness() as here:
        async with here.group(drain_timeout=20.0) as group, trio.open_nursery() as nursery:
            generation = await group.next()
            with trio.move_on_after(1):
                nursery.start_soon(group.next)
                await generation.wait_ended()
            nursery.cancel_scope.cancel()
            closed_at = here.now
        assert here.now - closed_at < 1
        (end,) = here.events_of(GenerationEnded)
        assert not end.cut_short
