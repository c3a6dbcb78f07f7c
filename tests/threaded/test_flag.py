"""The event that goes up once, and whose raising never waits."""

from __future__ import annotations

import threading

import pytest

from kgroup.errors import UsageError
from kgroup.threaded.flag import Flag
from tests.threaded.stage import SOON, thread


def test_it_is_a_threading_event() -> None:
    """What takes a ``threading.Event`` takes it."""
    assert isinstance(Flag(), threading.Event)


def test_everybody_who_waits_is_let_go() -> None:
    """All threads that wait return True when it goes up, and later calls return at once."""
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
    """A time-out gives False and leaves nothing behind."""
    flag = Flag()
    assert not flag.wait(timeout)
    assert not flag._waiting
    flag.set()


def test_a_timeout_beyond_what_a_lock_takes_is_for_ever() -> None:
    """A huge or infinite time-out is no error."""
    flag = Flag()
    with thread(flag.wait, float("inf")), thread(flag.wait, 1e300):
        flag.set()


def test_it_stays_up() -> None:
    """It cannot be taken down."""
    flag = Flag()
    flag.set()
    with pytest.raises(UsageError, match="stays set"):
        flag.clear()
    assert flag.is_set()
