"""Simulations that hang: they end, and say where; Ctrl-C ends any simulation."""

from __future__ import annotations

import gc
import math
import multiprocessing
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path

import attrs
import pytest
import trio

from kgroup.errors import ConfigError
from kgroup.testing.simulation import (
    Process,
    Scenario,
    SimulationError,
    SimulationHangError,
    check,
    generate_plan,
    simulate,
    watchdog,
    worker_pool,
)
from kgroup.testing.simulation.freezing import owned_by
from kgroup.testing.simulation.virtual_time import end_by, run_virtual
from tests.conftest import ROOT
from tests.testing.simulation.programs import endless, lossy, shielded
from tests.testing.simulation.samples import SMALL

CALM = attrs.evolve(SMALL, duration=5.0, members=1, faults_per_hour=0.0)
SOON = 1.0
"""Real seconds until a simulation of these tests counts as hanging; on a busy machine it takes part
of them to get there."""
LOCKED = """
import ctypes
from kgroup.testing.simulation import watchdog
from kgroup.testing.simulation.virtual_time import run_virtual

async def locks_twice():
    lock, library = ctypes.create_string_buffer(64), ctypes.CDLL(None)
    library.pthread_mutex_lock(lock)
    library.pthread_mutex_lock(lock)

def test_locked(monkeypatch):
    monkeypatch.setattr(watchdog, "_GRACE", 0.5)
    monkeypatch.setattr(watchdog, "_SIGNALS", SIGNALS)
    run_virtual(17, locks_twice, seed_timeout=1.0)
"""
"""A test whose simulation blocks in a C library that no signal interrupts."""
TRACED = """
import threading

def trace(*_):
    return trace

threading.settrace(trace)
SIGNALS = 300
"""
"""What a debugger does; a signal in a hundred comes at a moment that matters."""


@pytest.fixture(autouse=True)
def _short_grace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "_GRACE", 1.5)


def wait_for_nothing() -> None:
    """Block a thread for ever."""
    threading.Event().wait()


async def sleeps_shielded() -> None:
    """Is not cancelled, and virtual time does not end it."""
    with trio.CancelScope(shield=True):
        while True:  # noqa: ASYNC110 # virtual time has to pass
            await trio.sleep(1)


async def waits_shielded() -> None:
    """Is not cancelled, and waits for nothing."""
    with trio.CancelScope(shield=True):
        await trio.sleep_forever()


async def computes() -> None:
    """Does not come to a checkpoint."""
    while True:
        pass


async def computes_whatever_is_raised() -> None:
    """Catches the exception that is to end it, once."""
    try:
        await computes()
    except BaseException:  # noqa: BLE001 # the point
        await computes()


async def blocks() -> None:
    """Waits in a system call."""
    wait_for_nothing()


async def waits_for_a_thread() -> None:
    """Waits for a worker thread that does not end."""
    await trio.to_thread.run_sync(wait_for_nothing)


async def is_busy_shielded() -> None:
    """Can always run, so that time stands still."""
    with trio.CancelScope(shield=True):
        while True:
            await trio.lowlevel.checkpoint()


HANGS = (
    sleeps_shielded,
    waits_shielded,
    computes,
    computes_whatever_is_raised,
    blocks,
    waits_for_a_thread,
    is_busy_shielded,
)


@pytest.mark.parametrize("hangs", HANGS)
def test_a_run_that_hangs_ends_and_says_where(hangs: Callable[[], Awaitable[None]]) -> None:
    """The error has the seed, the virtual time, the member and the program's own line."""
    before = signal.getsignal(signal.SIGINT)

    async def main() -> None:
        await trio.sleep(7)
        with owned_by("m1, life 2"):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(hangs)

    with pytest.raises(SimulationHangError) as raised:
        run_virtual(17, main, seed_timeout=SOON)
    text = str(raised.value)
    assert text.startswith(f"seed 17 hangs at {raised.value.at:.3f} s of virtual time: it has not")
    assert "m1, life 2: the task " in text
    assert f"in {hangs.__name__}\n" in text
    assert raised.value.seed == 17
    assert raised.value.at >= 7
    assert "/trio/" not in text
    assert signal.getsignal(signal.SIGINT) is before


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_task_that_catches_everything_is_left_behind() -> None:
    """The run ends, although the task would never do."""

    async def main() -> None:
        while True:
            try:
                await trio.sleep(1)
            except BaseException:  # noqa: BLE001 # the point
                await trio.lowlevel.cancel_shielded_checkpoint()

    with pytest.raises(SimulationHangError, match="in main\n"):
        run_virtual(0, main, seed_timeout=SOON)
    gc.collect()


def test_a_thread_that_hangs_is_shown() -> None:
    """The error has the line of the worker thread, beside that of the task that waits for it."""
    run_virtual(0, trio.to_thread.run_sync, str)  # trio keeps the thread, and uses it again
    with pytest.raises(SimulationHangError, match=r"its thread '.*wait_for_nothing") as raised:
        run_virtual(0, waits_for_a_thread, seed_timeout=SOON)
    assert "in wait_for_nothing\n" in str(raised.value)


def test_a_run_can_be_bounded_in_virtual_time() -> None:
    """Such a run ends at the virtual time, and the error says why, however little time it took."""

    async def main() -> None:
        end_by(5.0, "a task goes on")
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()

    with pytest.raises(SimulationHangError, match=r"at 5.000 s of virtual time: a task goes on"):
        run_virtual(0, main)


def test_a_run_that_is_abandoned_too_late_keeps_its_own_error() -> None:
    """If the time-out comes when the run has just ended, what the run raised is not swallowed."""
    late = watchdog.Watchdog(0, 60.0)
    with pytest.raises(ValueError, match="its own"), late.watching():
        late.abandon("the time is over")
        raise ValueError("its own")


def test_a_signal_of_the_watchdog_that_comes_late_interrupts_nothing() -> None:
    """The handler that knows the signal is there until the thread that may send it has ended."""

    class SignalAtTheEnd(queue.SimpleQueue[bool]):
        def put(self, item: bool, *_: object) -> None:  # as the queue's own
            signal.raise_signal(signal.SIGINT)
            super().put(item)

    late = watchdog.Watchdog(0, 60.0)
    late._news = SignalAtTheEnd()  # type: ignore[misc]
    with late.watching():
        late.abandon("the time is over")


@pytest.mark.parametrize("before", ["SIGNALS = 3\n", TRACED], ids=["plain", "traced"])
def test_pytest_shows_why_a_process_had_to_be_ended(before: str, tmp_path: Path) -> None:
    """What pytest has captured is lost with the process, so the error goes to the real stderr."""
    test = tmp_path / "test_locked.py"
    test.write_text(before + LOCKED)
    arguments = ("-p", "no:cacheprovider", "--rootdir", tmp_path, test)
    command = (sys.executable, "-m", "pytest", *arguments)
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert result.returncode == 1
    assert result.stderr.startswith("seed 17 hangs at ")
    assert "in locks_twice\n" in result.stderr
    assert result.stderr.endswith("the process ends.\n")


@pytest.mark.parametrize("hangs", [waits_shielded, computes, waits_for_a_thread])
def test_ctrl_c_ends_a_run_that_hangs(hangs: Callable[[], Awaitable[None]]) -> None:
    """It is a bare KeyboardInterrupt, also if tasks do not end when they are cancelled."""

    async def interrupt() -> None:
        signal.raise_signal(signal.SIGINT)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(hangs)
            nursery.start_soon(interrupt)

    with pytest.raises(KeyboardInterrupt):
        run_virtual(0, main)


def test_ctrl_c_cannot_be_caught_by_a_program() -> None:
    """A program that catches everything does not let the campaign go on."""

    async def main() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
        except BaseException:  # noqa: BLE001 # the point
            await trio.lowlevel.checkpoint()

    with pytest.raises(KeyboardInterrupt):
        run_virtual(0, main)


@pytest.mark.parametrize("processes", [1, 2])
def test_a_program_that_computes_without_end_fails_the_campaign(processes: int) -> None:
    """It fails by itself, with several processes too, and none of them is left."""
    with pytest.raises(SimulationHangError, match=r"seed 3 hangs at .*\n.* m1, life 1: ") as raised:
        check(CALM, range(3, 5), endless, processes=processes, seed_timeout=1.0)
    assert "in endless\n" in str(raised.value)
    assert multiprocessing.active_children() == []


def test_a_shielded_program_needs_no_time_out() -> None:
    """Virtual time says that it does not end, long before the real seconds are over."""
    with pytest.raises(SimulationHangError, match="Give every shielded scope a deadline") as raised:
        simulate(generate_plan(CALM, 3), shielded)
    assert "in shielded\n" in str(raised.value)


def test_a_process_that_reports_nothing_fails_the_campaign(monkeypatch: pytest.MonkeyPatch) -> None:
    """If a process cannot even report that it hangs, the process that waits for it does."""
    monkeypatch.setattr(worker_pool, "_PATIENCE", -99.5)
    # The program is here, and the processes have to import it.
    monkeypatch.setattr(sys, "path", [*sys.path, str(ROOT)])
    with pytest.raises(
        SimulationHangError, match=r"seed 3, 4 hangs: its process has reported"
    ) as raised:
        check(CALM, range(3, 5), endless, processes=2, seed_timeout=100.0)
    assert math.isnan(raised.value.at)
    assert multiprocessing.active_children() == []


def test_a_smaller_plan_that_hangs_ends_the_search() -> None:
    """The failure is reported with the smallest plan so far."""
    runs = 0

    async def program(process: Process) -> None:
        nonlocal runs
        runs += 1
        await (shielded if runs > 2 else lossy)(process)

    with pytest.raises(SimulationError) as raised:
        check(attrs.evolve(CALM, duration=30.0), [5], program)
    assert raised.value.failure.shrunk.exhausted
    assert raised.value.failure.shrunk.runs == 1


@pytest.mark.parametrize("timeout", [0, math.inf, "600"])
def test_a_time_out_that_is_none_is_refused(timeout: float) -> None:
    """It is a number of seconds."""
    for call in (
        lambda: check(Scenario(), [1], seed_timeout=timeout),
        lambda: simulate(generate_plan(CALM, 1), seed_timeout=timeout),
    ):
        with pytest.raises(ConfigError, match="seed_timeout="):
            call()


def test_the_error_can_be_sent_to_another_process() -> None:
    """It keeps its fields."""
    sent = pickle.dumps(SimulationHangError(3, 4.5, "seed 3 hangs"))
    error = pickle.loads(sent)  # noqa: S301 # our own
    assert (error.seed, error.at, str(error)) == (3, 4.5, "seed 3 hangs")
