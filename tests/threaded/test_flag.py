"""The event that is set once, by a thread that never waits."""

from __future__ import annotations

import threading

import pytest

from kgroup.background.flag import Flag
from kgroup.errors import UsageError
from tests.threaded.harness import SOON, thread


def test_it_is_a_threading_event() -> None:
    """A function that takes a ``threading.Event`` also takes a Flag."""
    assert isinstance(Flag(), threading.Event)


def test_all_waiting_threads_are_woken() -> None:
    """All waiting threads return True when it is set, and later calls return immediately."""
    flag = Flag()
    started = threading.Barrier(11)
    results: list[bool] = []

    def wait() -> None:
        started.wait(SOON)
        results.append(flag.wait(SOON))

    threads = [threading.Thread(target=wait) for _ in range(10)]
    for one in threads:
        one.start()
    started.wait(SOON)
    flag.set()
    for one in threads:
        one.join(SOON)
    assert results == [True] * 10
    assert flag.is_set()
    assert flag.wait()
    assert flag.wait(0)


@pytest.mark.parametrize("timeout", [0, -1, 0.01])
def test_waiting_has_an_end(timeout: float) -> None:
    """A timeout returns False, and the thread is no longer in the queue."""
    flag = Flag()
    assert not flag.wait(timeout)
    assert not flag._waiting
    flag.set()


def test_a_timeout_longer_than_a_lock_allows_is_no_timeout() -> None:
    """A huge or infinite timeout is no error."""
    flag = Flag()
    with thread(flag.wait, float("inf")), thread(flag.wait, 1e300):
        flag.set()


def test_it_stays_set() -> None:
    """It cannot be cleared."""
    flag = Flag()
    flag.set()
    with pytest.raises(UsageError, match="stays set"):
        flag.clear()
    assert flag.is_set()
