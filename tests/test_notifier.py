"""A notifier wakes every task that waits, once."""

from __future__ import annotations

import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from kgroup.notifier import Notifier


async def test_all_waiting_tasks_are_woken(autojump_clock: MockClock) -> None:
    """Each of several tasks is woken by one call."""
    notifier, woken = Notifier(), list[int]()

    async def wait(number: int) -> None:
        await notifier.wait()
        woken.append(number)

    async with trio.open_nursery() as nursery:
        for number in range(3):
            nursery.start_soon(wait, number)
        await wait_all_tasks_blocked()
        notifier.notify()
    assert sorted(woken) == [0, 1, 2]


async def test_an_earlier_call_wakes_no_later_task(autojump_clock: MockClock) -> None:
    """A task that begins to wait after the call waits for the next one."""
    notifier = Notifier()
    notifier.notify()
    with trio.move_on_after(1) as scope:
        await notifier.wait()
    assert scope.cancelled_caught
