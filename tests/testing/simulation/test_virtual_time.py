"""Virtual time with a seed: when it jumps, what it waits for, and what is refused."""

from __future__ import annotations

import gc
import random
import socket
import threading
import time

import pytest
import trio

from kgroup.errors import UsageError
from kgroup.testing.simulation import trio_internals
from kgroup.testing.simulation.virtual_time import call_at, run_virtual


async def _race() -> list[tuple[float, int]]:
    """The order in which several tasks run that wake at the same times."""
    seen: list[tuple[float, int]] = []

    async def runner(number: int) -> None:
        for _ in range(5):
            await trio.sleep(1)
            seen.append((trio.current_time(), number))

    async with trio.open_nursery() as nursery:
        for number in range(8):
            nursery.start_soon(runner, number)
    return seen


def test_a_seed_decides_the_order() -> None:
    """The same seed gives the same order of tasks, and another seed another one."""
    first = run_virtual(1, _race)
    assert run_virtual(1, _race) == first
    assert run_virtual(2, _race) != first


def test_time_is_virtual() -> None:
    """An hour passes at once, and time begins at 0."""

    async def main() -> float:
        await trio.sleep(3600)
        return trio.current_time()

    assert run_virtual(0, main) == pytest.approx(3600)


def test_time_waits_for_worker_threads() -> None:
    """No deadline passes while a worker thread works."""
    order: list[str] = []

    async def sleeper() -> None:
        await trio.sleep(1)
        order.append("slept")

    def work() -> None:
        time.sleep(0.05)  # real: the point is that virtual time does not use it
        order.append("worked")

    async def main() -> float:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(sleeper)
            await trio.to_thread.run_sync(work)
            return trio.current_time()

    assert run_virtual(0, main) == 0
    assert order == ["worked", "slept"]


def test_time_waits_for_a_worker_thread_that_was_there_before() -> None:
    """A worker thread that trio kept from an earlier run counts too."""

    async def main() -> float:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)
            await trio.to_thread.run_sync(time.sleep, 0.05)
            return trio.current_time()

    trio.run(trio.to_thread.run_sync, threading.get_ident)
    assert run_virtual(0, main) == 0


def test_a_real_socket_is_an_error() -> None:
    """A socket is refused inside a simulation, in worker threads too, and nowhere else."""

    async def main() -> None:
        with pytest.raises(UsageError, match="real socket"):
            socket.socket()
        with pytest.raises(UsageError, match="real socket"):
            await trio.to_thread.run_sync(socket.socket)
        with pytest.raises(UsageError, match="real socket"):
            trio.socket.socket()

    run_virtual(0, main)
    socket.socket().close()


def test_nothing_of_it_outlives_the_run() -> None:
    """trio's switch and generator, and the collector, are restored after a failure too."""
    run = trio._core._run
    switch, state = run._ALLOW_DETERMINISTIC_SCHEDULING, run._r.getstate()

    async def main() -> None:
        assert not gc.isenabled()
        raise LookupError

    with pytest.raises(LookupError):
        run_virtual(3, main)
    assert switch == run._ALLOW_DETERMINISTIC_SCHEDULING
    assert run._r.getstate() == state
    assert gc.isenabled()


@pytest.mark.parametrize("name", ["_ALLOW_DETERMINISTIC_SCHEDULING", "_r", "GLOBAL_RUN_CONTEXT"])
def test_a_trio_without_its_internals_is_refused(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error names the internals that this trio lacks."""
    context = trio._core._run.GLOBAL_RUN_CONTEXT
    monkeypatch.delattr(trio._core._run, name)
    with pytest.raises(UsageError, match=name):
        trio_internals.check()
    monkeypatch.setattr(trio._core._run, name, random.Random(), raising=False)
    monkeypatch.setattr(trio._core._run, "GLOBAL_RUN_CONTEXT", context, raising=False)
    trio_internals.check()


async def test_a_trio_without_the_task_queue_is_refused() -> None:
    """A trio with another queue of runnable tasks is refused before anything is frozen."""
    assert trio_internals.runnable_tasks() is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trio_internals, "_run_module", lambda: trio)
        with pytest.raises(UsageError, match="cannot freeze"):
            trio_internals.runnable_tasks()


def test_calls_are_made_at_their_times() -> None:
    """The clock makes calls in the order of their times, once every task waits."""
    made: list[tuple[float, str]] = []

    async def main() -> None:
        woken = trio.Event()
        for at, name in ((2.0, "second"), (1.0, "first"), (2.0, "third")):
            call_at(at, lambda name=name: made.append((trio.current_time(), name)))  # type: ignore[misc]
        call_at(3.0, woken.set)
        await woken.wait()
        made.append((trio.current_time(), "woken"))
        call_at(0.0, lambda: made.append((trio.current_time(), "late")))
        await trio.sleep(1)

    run_virtual(0, main)
    assert made == [
        (1.0, "first"),
        (2.0, "second"),
        (2.0, "third"),
        (3.0, "woken"),
        (3.0, "late"),
    ]


def test_a_call_may_add_another_call() -> None:
    """A function that the clock calls may use `call_at`."""

    async def main() -> float:
        woken = trio.Event()
        call_at(1.0, lambda: call_at(2.0, woken.set))
        await woken.wait()
        return trio.current_time()

    assert run_virtual(0, main) == 2.0
