"""A loop body that fails in its own nursery, or calls next() while the group is failing."""

from __future__ import annotations

import pytest
import trio
from trio.testing import MockClock

from kgroup.errors import CommitUnknownError, FencedInstanceError, StaleGenerationError
from kgroup.events import GenerationDraining
from kgroup.generation.generation import Generation
from kgroup.types import Cause, End
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


@pytest.mark.parametrize("error", [ValueError("of the body"), SystemExit(3)])
async def test_what_the_body_raised_outlives_a_cancellation_of_the_drain(
    error: BaseException, autojump_clock: MockClock
) -> None:
    """The block raises it as it is, at once, and the member leaves."""
    async with harness() as here:
        with pytest.raises(type(error)) as caught, trio.move_on_after(5) as scope:
            async with here.group(drain_timeout=10.0) as group:
                generation = await group.next()
                generation.start_soon(trio.sleep, 8)
                await trio.sleep(1)
                raise error
        assert caught.value is error
        assert scope.cancel_called
        assert not scope.cancelled_caught
        assert len(here.requests_for("leave_group")) == 1


@pytest.mark.parametrize("rebalance", [False, True])
@pytest.mark.parametrize("nursery", [False, True])
async def test_a_cancellation_in_a_commit_of_the_body(
    nursery: bool, rebalance: bool, autojump_clock: MockClock
) -> None:
    """The commit says that its generation was cancelled, and the block ends as cancelled."""
    ends: list[End | None] = []

    async def commit(generation: Generation) -> None:
        try:
            await generation.commit({P0: 2}, beyond_read=True)
        except (StaleGenerationError, CommitUnknownError) as error:
            ends.append(error.end)
            raise

    async with harness() as here:
        with trio.move_on_after(5) as scope:
            async with here.group(commit_timeout=30.0) as group:
                generation = await group.next()
                here.broker.slow(60.0, "offset_commit")
                await trio.sleep(1)
                if rebalance:
                    here.broker.inject("Heartbeat", "REBALANCE_IN_PROGRESS")
                    await generation.ending.wait()
                if not nursery:
                    await commit(generation)
                async with trio.open_nursery() as children:
                    children.start_soon(commit, generation)
                    children.start_soon(trio.sleep_forever)
        assert scope.cancelled_caught
        assert [end.cause for end in ends if end is not None] == [Cause.CANCELLED]
        assert len(here.requests_for("leave_group")) == 1


async def test_a_task_and_the_body_fail_and_the_drain_is_cancelled(
    autojump_clock: MockClock,
) -> None:
    """The block raises both exceptions, in one group."""
    async with harness() as here:
        with pytest.raises(ExceptionGroup) as caught, trio.move_on_after(5):
            async with here.group(drain_timeout=10.0) as group:
                generation = await group.next()
                generation.start_soon(trio.sleep, 8)
                generation.start_soon(fail)
                raise ValueError("of the body")
        assert [str(error) for error in caught.value.exceptions] == ["of a task", "of the body"]


async def test_a_fatal_error_outlives_a_cancellation(autojump_clock: MockClock) -> None:
    """The block raises the error that no call of next() has raised."""
    async with harness() as here:
        with pytest.raises(FencedInstanceError), trio.move_on_after(5) as scope:
            async with here.group(group_instance_id="here") as group:
                generation = await group.next()
                here.broker.inject("Heartbeat", "FENCED_INSTANCE_ID")
                await generation.ending.wait()
                await trio.sleep_forever()
        assert not scope.cancelled_caught


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
