"""The loop over a group that closes ends once the last generation has ended."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from kgroup.errors import GroupClosedError
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from tests.group.harness import P0, harness


async def shut_down(group: ConsumerGroup, after: float) -> None:
    """Close the group a little later, as a signal would."""
    await trio.sleep(after)
    group.shutdown(promptly=True)


async def finish_and_commit(generation: Generation) -> None:
    """Work on for five seconds after the end has begun, and commit then."""
    await generation.ending.wait()
    await trio.sleep(5)
    await generation.commit({P0: 0})


async def test_the_loop_ends_after_the_handlers(autojump_clock: MockClock) -> None:
    """What the handlers use can be released after the loop: they have committed by then."""
    async with harness() as here, here.group() as group, trio.open_nursery() as nursery:
        nursery.start_soon(shut_down, group, 1)
        async for generation in group:
            generation.start_soon(finish_and_commit, generation)
        assert await here.committed() == {P0: 0}
        # The mistake that this rule makes harmless.
        nursery.cancel_scope.cancel()


async def test_next_raises_after_the_handlers(autojump_clock: MockClock) -> None:
    """A call that was given up meanwhile is followed by one that waits in the same way."""
    async with harness() as here, here.group() as group:
        generation = await group.next()
        generation.start_soon(finish_and_commit, generation)
        group.shutdown(promptly=True)
        with trio.move_on_after(1) as patience:
            await group.next()
        assert patience.cancelled_caught
        with pytest.raises(GroupClosedError):
            await group.next()
        assert await here.committed() == {P0: 0}


async def test_the_loop_ends_at_the_deadline_of_the_drain(autojump_clock: MockClock) -> None:
    """A handler that would never end holds the loop for `drain_timeout` only."""
    async with harness() as here, here.group(drain_timeout=7.0) as group:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(shut_down, group, 1)
            async for generation in group:
                generation.start_soon(trio.sleep_forever)
                began = here.now
        assert 8 <= here.now - began < 9


async def test_a_handler_that_raises_in_the_drain(autojump_clock: MockClock) -> None:
    """Its exception ends the wait for the next generation, and surfaces from the block."""

    async def fail(generation: Generation) -> None:
        await generation.ending.wait()
        raise LookupError("in the drain")

    async with harness() as here:
        with pytest.RaisesGroup(LookupError):
            async with here.group() as group:
                generation = await group.next()
                generation.start_soon(fail, generation)
                group.shutdown(promptly=True)
                await group.next()
                pytest.fail("next() returned")


async def test_a_group_that_closes_without_a_generation(autojump_clock: MockClock) -> None:
    """There is nothing to wait for: the loop ends at once, however long leaving may take."""
    async with harness() as here, here.group() as group:
        began = here.now
        group.shutdown()
        async for _ in group:
            pytest.fail("a closed group had a generation")
        assert here.now == began
