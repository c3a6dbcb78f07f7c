"""Connections in memory follow trio's rules for streams, and wait only for bytes."""

from __future__ import annotations

import pytest
import trio
import trio.testing

from kgroup.broker.memory_pipe import PipeEnd, pipe


async def test_a_pipe_is_a_stream_as_trio_defines_it() -> None:
    """trio's own checks of two-way streams pass, except for clogging: a pipe has no limit."""

    async def make() -> tuple[PipeEnd, PipeEnd]:
        return pipe()

    await trio.testing.check_half_closeable_stream(make, None)


async def test_bytes_sent_before_the_end_was_closed_arrive() -> None:
    """The other end reads all bytes that were sent before the close, then the end."""
    one, other = pipe()
    await one.send_all(b"abc")
    await one.aclose()
    assert await other.receive_some(2) == b"ab"
    assert await other.receive_some() == b"c"
    assert await other.receive_some() == b""
    with pytest.raises(trio.BrokenResourceError):
        await other.send_all(b"x")


async def test_a_cancelled_reader_loses_nothing(autojump_clock: trio.testing.MockClock) -> None:
    """Bytes that arrive after a cancelled read are returned by the next read."""
    one, other = pipe()
    with trio.move_on_after(1) as scope:
        await other.receive_some()
    assert scope.cancelled_caught
    await one.send_all(b"later")
    assert await other.receive_some() == b"later"


async def test_a_round_trip_takes_one_step_of_each_task_for_each_direction() -> None:
    """A small message costs one checkpoint to send and one wake-up to read."""
    one, other = pipe()

    async def echo() -> None:
        while data := await other.receive_some():
            await other.send_all(data)

    steps = 0

    class Steps(trio.abc.Instrument):
        def before_task_step(self, task: trio.lowlevel.Task) -> None:
            nonlocal steps
            steps += task.name.endswith(("echo", "request"))

    async def request() -> None:
        for _ in range(10):
            await one.send_all(b"?")
            assert await one.receive_some() == b"?"
        await one.aclose()

    counter = Steps()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(echo)
        await trio.testing.wait_all_tasks_blocked()
        trio.lowlevel.add_instrument(counter)
        nursery.start_soon(request)
    trio.lowlevel.remove_instrument(counter)
    # The first step of request, and the last two checkpoints: at closing, and of the echo's end.
    assert steps <= 10 * 4 + 4
