"""Virtual time by a seed: what jumps, what waits, what is refused."""

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
    """What several tasks that wake at the same moments do, in their order."""
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
    """An hour passes at once, from 0 on."""

    async def main() -> float:
        await trio.sleep(3600)
        return trio.current_time()

    assert run_virtual(0, main) == pytest.approx(3600)


def test_time_waits_for_worker_threads() -> None:
    """While a worker thread works, no deadline of a task that sleeps passes."""
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
    """A worker thread that trio keeps from an earlier run is no bystander."""

    async def main() -> float:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trio.sleep, 1)
            await trio.to_thread.run_sync(time.sleep, 0.05)
            return trio.current_time()

    trio.run(trio.to_thread.run_sync, threading.get_ident)
    assert run_virtual(0, main) == 0


def test_a_real_socket_is_an_error() -> None:
    """A socket is refused in a simulation, in its worker threads too, and nowhere else."""

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
    """Trio's switch and generator, and the garbage collector, are as they were; failing or not."""
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
    """Where trio has moved on, the simulator says what it misses instead of meaning less."""
    context = trio._core._run.GLOBAL_RUN_CONTEXT
    monkeypatch.delattr(trio._core._run, name)
    with pytest.raises(UsageError, match=name):
        trio_internals.check()
    monkeypatch.setattr(trio._core._run, name, random.Random(), raising=False)
    monkeypatch.setattr(trio._core._run, "GLOBAL_RUN_CONTEXT", context, raising=False)
    trio_internals.check()


async def test_a_trio_that_holds_its_tasks_otherwise_is_refused() -> None:
    """A run without the queue of runnable tasks is named, before anything is frozen."""
    assert trio_internals.runnable_tasks() is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trio_internals, "_run_module", lambda: trio)
        with pytest.raises(UsageError, match="cannot freeze"):
            trio_internals.runnable_tasks()


def test_calls_are_made_at_their_times() -> None:
    """The clock makes calls once every task waits, in the order of their times."""
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


def test_what_the_clock_calls_may_ask_for_another_call() -> None:
    """It is no task, and knows of the simulation all the same."""

    async def main() -> float:
        woken = trio.Event()
        call_at(1.0, lambda: call_at(2.0, woken.set))
        await woken.wait()
        return trio.current_time()

    assert run_virtual(0, main) == 2.0
