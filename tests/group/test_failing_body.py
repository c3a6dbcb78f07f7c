"""A loop body that fails in its own nursery, or calls next() while the group is failing."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from kgroup.events import GenerationDraining
from kgroup.generation.generation import Generation
from tests.group.harness import P0, harness


async def fail() -> None:
    """Fail after a second."""
    await trio.sleep(1)
    raise ValueError("of a task")


async def test_a_nursery_of_the_body_that_fails_drains_first(autojump_clock: MockClock) -> None:
    """Work in progress is committed; then the exception group is raised as it is."""
    committed = []

    async def slow(generation: Generation) -> None:
        await generation.ending.wait()
        await trio.sleep(3)
        await generation.commit({P0: 2}, beyond_read=True)
        committed.append(2)

    async with harness() as here:
        with pytest.raises(ExceptionGroup) as caught:
            async with here.group() as group:
                generation = await group.next()
                generation.start_soon(slow, generation)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(fail)
        assert [str(error) for error in caught.value.exceptions] == ["of a task"]
        assert committed == [2]
        assert len(here.events_of(GenerationDraining)) == 1


async def test_a_nursery_of_the_body_that_is_cancelled_from_outside_does_not_drain(
    autojump_clock: MockClock,
) -> None:
    """An exception group with a cancellation counts as one: no drain, and the member leaves."""

    async def cleanup_fails() -> None:
        try:
            await trio.sleep_forever()
        finally:
            raise ValueError("while it was cancelled")

    async with harness() as here:
        with pytest.raises(ExceptionGroup) as caught, trio.move_on_after(5):
            async with here.group() as group:
                generation = await group.next()
                generation.start_soon(trio.sleep_forever)
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(cleanup_fails)
                    await trio.sleep_forever()
        assert caught.value.subgroup(ValueError) is not None
        assert here.events_of(GenerationDraining) == []
        assert len(here.requests_for("leave_group")) == 1


async def test_next_while_the_group_fails_or_closes(autojump_clock: MockClock) -> None:
    """The block raises its task's exception; code after next() in the body does not run."""
    reached = []
    async with harness() as here:
        with pytest.raises(ExceptionGroup) as caught:
            async with here.group() as group:
                generation = await group.next()
                here.broker.slow(2.0, "leave_group")
                generation.start_soon(fail)
                await generation.wait_ended()
                await trio.sleep(1)
                group.shutdown()
                await group.next()
                reached.append(1)
        assert [str(error) for error in caught.value.exceptions] == ["of a task"]
    assert reached == []
