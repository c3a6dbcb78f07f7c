"""Time slices: short work is not delayed, long work takes turns, responses are limited."""

from __future__ import annotations

import pytest
import trio

from kgroup.broker.request_error import RequestError
from kgroup.broker.time_slices import FREE, SLICE, TimeSlices
from kgroup.error_codes import ErrorCode


async def test_one_long_work_runs_at_a_time() -> None:
    """Two long requests work slice by slice, in turns, and release the lock at their end."""
    time_slices, order = TimeSlices(), list[str]()

    async def long(name: str) -> None:
        work = time_slices.work(10)
        async for number in work.each(range(FREE + 3 * SLICE)):
            if number >= FREE and (number - FREE) % SLICE == 0:
                order.append(name)
        work.release()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(long, "a")
        nursery.start_soon(long, "b")
    assert order in (["a", "b"] * 3, ["b", "a"] * 3)
    assert time_slices.longest == SLICE
    assert not time_slices.lock.locked()


async def test_cancelled_work_releases_the_lock() -> None:
    """A request that is cancelled while it waits for the lock, or holds it, blocks no other."""
    time_slices = TimeSlices()
    first, second = time_slices.work(10), time_slices.work(10)
    await first.yield_to_others()
    with trio.move_on_after(0) as scope:
        await second.yield_to_others()
    assert scope.cancelled_caught
    second.release()
    first.release()
    assert not time_slices.lock.locked()


async def test_a_response_has_a_limit_of_items() -> None:
    """One item beyond the limit is refused."""
    work = TimeSlices().work(3)
    await work.include(3)
    with pytest.raises(RequestError) as refused:
        await work.include(1)
    assert refused.value.code is ErrorCode.POLICY_VIOLATION
