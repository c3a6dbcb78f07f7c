"""`Generation.run`: work that its caller waits for and that belongs to the generation."""

from __future__ import annotations

from functools import partial

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
