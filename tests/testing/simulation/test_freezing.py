"""A frozen owner takes no step, and loses nothing."""

from __future__ import annotations

import trio
import trio.lowlevel
from trio.testing import MockClock

from kgroup.testing.simulation.freezing import Freezer, owned_by


async def test_a_frozen_owner_takes_no_step(autojump_clock: MockClock) -> None:
    """No task of a frozen owner runs; after the thaw each continues where it was."""
    freezer, steps = Freezer(), list[tuple[float, str]]()

    async def ticking(name: str) -> None:
        while True:
            await trio.sleep(1)
            steps.append((trio.current_time(), name))

    async def program(name: str) -> None:
        with owned_by(name):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ticking, name)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(program, "one")
        nursery.start_soon(program, "other")
        await trio.sleep(2.5)
        await freezer.freeze("one")
        await freezer.freeze("one")
        began = trio.current_time()
        await trio.sleep(5)
        assert [name for at, name in steps if at > began] == ["other"] * 5
        freezer.thaw("one")
        thawed = trio.current_time()
        await trio.sleep(1.6)
        assert [at - thawed for at, name in steps if at >= thawed and name == "one"] == [0, 1]
        nursery.cancel_scope.cancel()
    assert not freezer.is_frozen("one")


async def test_what_is_runnable_is_frozen_too(autojump_clock: MockClock) -> None:
    """A task that was about to run when its owner was frozen runs only after the thaw."""
    freezer, woken, event = Freezer(), list[str](), trio.Event()

    async def waiting() -> None:
        with owned_by("one"):
            await event.wait()
            woken.append("woken")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(waiting)
        await trio.testing.wait_all_tasks_blocked()
        event.set()
        await freezer.freeze("one")
        await trio.sleep(1)
        assert woken == []
        freezer.thaw("one")
        freezer.thaw("one")
        await trio.lowlevel.checkpoint()
    assert woken == ["woken"]


async def test_a_cancellation_takes_effect_as_it_thaws(autojump_clock: MockClock) -> None:
    """Deadlines and cancellations do not wake a frozen task."""
    freezer, ended = Freezer(), list[float]()

    async def sleeping() -> None:
        with owned_by("one"), trio.move_on_after(1):
            try:
                await trio.sleep_forever()
            finally:
                ended.append(trio.current_time())

    async with trio.open_nursery() as nursery:
        nursery.start_soon(sleeping)
        await trio.testing.wait_all_tasks_blocked()
        begun = trio.current_time()
        await freezer.freeze("one")
        await trio.sleep(10)
        nursery.cancel_scope.cancel()
        assert ended == []
        freezer.thaw("one")
    assert ended == [begun + 10]
