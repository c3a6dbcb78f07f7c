"""Functions that keep, or swallow, a `trio.Cancelled`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest
import trio
import trio.lowlevel
from trio.testing import MockClock

import kgroup
from kgroup.errors import UsageError
from kgroup.events import GenerationEnded
from kgroup.generation.generation import Generation
from kgroup.interfaces import Batch
from kgroup.types import Cause
from tests.group.harness import harness


async def keep() -> None:
    """Raise the cancellation of a scope that is over."""
    kept: list[trio.Cancelled] = []
    with trio.CancelScope() as scope:
        scope.cancel()
        try:
            await trio.lowlevel.checkpoint()
        except trio.Cancelled as cancelled:
            kept.append(cancelled)
    raise kept[0]


async def keep_in_a_group() -> None:
    """Raise it in a group, beside an error."""
    try:
        await keep()
    except trio.Cancelled as cancelled:
        raise BaseExceptionGroup("both", [cancelled, ValueError("x")]) from None


@pytest.mark.parametrize("fn", [keep, keep_in_a_group])
async def test_a_kept_cancellation_is_an_error_of_the_function(
    fn: Callable[[], Awaitable[None]], autojump_clock: MockClock
) -> None:
    """It is no cancellation of the group: the error names the function, and the member leaves."""
    async with harness() as here:
        with pytest.raises(ExceptionGroup) as raised:
            async with here.group() as group:
                generation = await group.next()
                with pytest.raises(UsageError, match=f"{fn.__name__} raised trio.Cancelled"):
                    await generation.run(fn)
                assert generation.end is None
                generation.start_soon(fn)
                await group.next()
        (error,) = raised.value.exceptions
        assert isinstance(error, UsageError)
        assert f"{fn.__name__} raised trio.Cancelled, and nothing has cancelled it" in str(error)
        assert f"{fn.__name__} raised this in generation 1" in error.__notes__[0]
        (ended,) = here.events_of(GenerationEnded)
        assert ended.end.cause is Cause.TASK_RAISED


async def test_a_kept_cancellation_does_not_hide_ctrl_c(autojump_clock: MockClock) -> None:
    """A group with both is a KeyboardInterrupt, which ends the program, and no error of it."""

    async def keep_beside_ctrl_c() -> None:
        try:
            await keep()
        except trio.Cancelled as cancelled:
            raise BaseExceptionGroup("both", [cancelled, KeyboardInterrupt()]) from None

    async with harness() as here:
        with pytest.raises(BaseExceptionGroup) as raised:
            async with here.group() as group:
                (await group.next()).start_soon(keep_beside_ctrl_c)
                await group.next()
        assert raised.value.split(KeyboardInterrupt)[1] is None


async def test_a_swallowed_cancellation_commits_nothing(autojump_clock: MockClock) -> None:
    """A handler that returns in spite of its cancellation has processed nothing."""
    async with harness() as here:
        await here.append(5)

        async def swallow(_: Generation, batch: Batch) -> None:
            with suppress(BaseException):  # the mistake of this test
                await trio.sleep_forever()

        with trio.move_on_after(10):
            async with here.group() as group:
                await kgroup.serve(group, swallow)
        assert await here.committed() == {}
