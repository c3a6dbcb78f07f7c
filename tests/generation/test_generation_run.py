"""`Generation.run`: work that its caller waits for and that belongs to the generation."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.errors import StaleGenerationError, UsageError
from kgroup.generation.states import State
from tests.group.harness import harness


async def test_run_returns_and_raises_as_the_function_does(autojump_clock: MockClock) -> None:
    """The caller gets the outcome, and the generation does not end."""

    async def answer() -> int:
        await trio.sleep(1)
        return 42

    async def fail() -> None:
        await trio.sleep(1)
        raise LookupError("here")

    async with harness() as here, here.group() as group:
        generation = await group.next()
        assert await generation.run(answer) == 42
        with pytest.raises(LookupError, match="here"):
            await generation.run(fail)
        assert generation.state is State.RUNNING


async def test_the_drain_waits_for_run(autojump_clock: MockClock) -> None:
    """`run` may begin in a drain, and the drain lasts until the function has returned."""
    async with harness() as here, here.group() as group:
        generation = await group.next()
        group.shutdown()
        assert generation.state is State.DRAINING
        began = trio.current_time()
        await generation.run(partial(trio.sleep, 3))
        assert trio.current_time() - began == pytest.approx(3)
        assert generation.state is State.DRAINING


async def test_the_end_waits_for_a_function_that_stops_slowly(autojump_clock: MockClock) -> None:
    """The cancelled caller and the generation both wait, even past the drain's deadline."""
    stopped = []

    async def stubborn() -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(40)
            stopped.append(trio.current_time())

    async with harness() as here:
        async with here.group(drain_timeout=1.0) as group:
            generation = await group.next()
            with trio.move_on_after(5):
                await generation.run(stubborn)
            assert len(stopped) == 1
            async with trio.open_nursery() as nursery:
                nursery.start_soon(refused, generation, stubborn)
                await trio.testing.wait_all_tasks_blocked()
                group.shutdown()
                group.release()
        assert len(stopped) == 2
        assert generation.state is State.ENDED
        with pytest.raises(StaleGenerationError, match="cancelled by its end"):
            await generation.run(stubborn)
        assert len(stopped) == 2


async def refused(generation: object, fn: object) -> None:
    """Call `run`, and expect the error that the generation has ended."""
    with pytest.raises(StaleGenerationError, match="cancelled by its end"):
        await generation.run(fn)  # type: ignore[attr-defined]


async def test_next_within_run_is_an_error(autojump_clock: MockClock) -> None:
    """The group's next() would wait for its own caller, so it raises."""
    async with harness() as here, here.group() as group:
        generation = await group.next()
        with pytest.raises(UsageError, match="by a task of one of its own"):
            await generation.run(group.next)


async def fails_at_its_end() -> None:
    """Wait until it is cancelled, and fail in the cleanup."""
    try:
        await trio.sleep_forever()
    finally:
        raise ValueError("cleanup")


async def fails_beside_another() -> None:
    """The same in a nursery, which raises the failure and the cancellation in one group."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(fails_at_its_end)
        nursery.start_soon(trio.sleep_forever)


@pytest.mark.parametrize("fn", [fails_at_its_end, fails_beside_another])
async def test_what_a_cancelled_function_raises_reaches_its_caller(
    autojump_clock: MockClock, fn: Any
) -> None:
    """Whether the caller or the generation has cancelled it, its own exception is raised."""
    async with harness() as here:
        with pytest.RaisesGroup(ValueError, allow_unwrapped=True, flatten_subgroups=True):
            async with here.group() as group:
                generation = await group.next()
                with trio.move_on_after(1):
                    await generation.run(fn)
        with pytest.RaisesGroup(ValueError, allow_unwrapped=True, flatten_subgroups=True):
            async with here.group(drain_timeout=1.0) as group:
                generation = await group.next()
                group.subscribe(["other"])
                await generation.run(fn)


async def test_what_a_cancelled_function_returns_reaches_its_caller(
    autojump_clock: MockClock,
) -> None:
    """A function that finishes although it was cancelled has done its work: `run` returns."""

    async def finishes() -> int:
        with trio.CancelScope(shield=True):
            await trio.sleep(2)
        return 42

    async with harness() as here, here.group() as group:
        generation = await group.next()
        with trio.move_on_after(1) as scope:
            assert await generation.run(finishes) == 42
        assert not scope.cancelled_caught


async def test_ctrl_c_in_the_function_ends_the_generation_for_the_caller(
    autojump_clock: MockClock,
) -> None:
    """The call raises the error of the end, also if it continues before the generation's task."""

    async def interrupted() -> None:
        await trio.sleep(1)
        raise KeyboardInterrupt

    raised = 0
    async with harness() as here:
        for _ in range(10):  # trio runs the two in a random order
            with pytest.RaisesGroup(KeyboardInterrupt, flatten_subgroups=True):
                async with here.group() as group:
                    await refused(await group.next(), interrupted)
                    raised += 1
    assert raised == 10
