"""The clocks that measure a lease."""

from __future__ import annotations

import importlib
import time
from collections.abc import Callable, Iterator
from types import ModuleType

import pytest
import trio
from trio.testing import MockClock

from kgroup import clocks
from kgroup.clocks import SuspendAwareClock, TrioClock


async def test_trio_s_clock_is_virtual_in_a_test(autojump_clock: MockClock) -> None:
    """An hour of trio's virtual time is an hour for this clock."""
    clock = TrioClock()
    before = clock.now()
    await trio.sleep(3600)
    assert clock.now() - before == pytest.approx(3600)


async def test_other_threads_read_trio_s_clock_too(autojump_clock: MockClock) -> None:
    """Other threads can read it after the event loop's first reading, and read the same."""
    clock = TrioClock()
    with pytest.raises(RuntimeError):
        await trio.to_thread.run_sync(clock.now)
    now = clock.now()
    assert await trio.to_thread.run_sync(clock.now) >= now


@pytest.fixture
def reload(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], ModuleType]]:
    """Import the module again, on the system that the test simulates."""
    yield lambda: importlib.reload(clocks)
    monkeypatch.undo()
    importlib.reload(clocks)


def test_the_system_s_clock_counts_suspended_time(
    monkeypatch: pytest.MonkeyPatch, reload: Callable[[], ModuleType]
) -> None:
    """On Linux it is CLOCK_BOOTTIME, which also counts the time of a suspension."""
    monkeypatch.setattr(time, "CLOCK_BOOTTIME", 77, raising=False)
    monkeypatch.setattr(time, "clock_gettime", lambda number: 1000.0 + number)
    assert reload().SuspendAwareClock().now() == 1077


def test_without_boot_time_it_is_the_kernel_s_monotonic_clock(
    monkeypatch: pytest.MonkeyPatch, reload: Callable[[], ModuleType]
) -> None:
    """On macOS the clock counts the time asleep, which ``time.monotonic`` does not."""
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    monkeypatch.setattr(time, "CLOCK_MONOTONIC", 55)
    monkeypatch.setattr(time, "clock_gettime", lambda number: 1000.0 + number)
    assert reload().SuspendAwareClock().now() == 1055


def test_without_both_it_is_python_s_monotonic_clock(
    monkeypatch: pytest.MonkeyPatch, reload: Callable[[], ModuleType]
) -> None:
    """On other systems it is ``time.monotonic``."""
    monkeypatch.delattr(time, "CLOCK_BOOTTIME", raising=False)
    monkeypatch.delattr(time, "CLOCK_MONOTONIC", raising=False)
    clock = reload().SuspendAwareClock()
    before = time.monotonic()
    between = clock.now()
    assert before <= between <= time.monotonic()


def test_the_clock_never_goes_back() -> None:
    """A later reading is never less than an earlier one."""
    clock = SuspendAwareClock()
    looks = [clock.now() for _ in range(1000)]
    assert looks == sorted(looks)
