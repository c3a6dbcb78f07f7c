"""Ctrl-C works for tests and for the programs that they start, however the suite was started.

A shell starts background jobs with SIGINT ignored, and child processes inherit that. A program that
a test interrupts would ignore the signal and never end.

A test that leaves another handler fails, and not the test that is interrupted after it.
"""

from __future__ import annotations

import signal
from collections.abc import Generator, Iterable
from typing import Any, Final

import pytest

HANDLED: Final = (signal.SIGINT, signal.SIGTERM)
BEFORE: Final = pytest.StashKey[Iterable[Any]]()


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Restore the default handler of SIGINT here, and so in child processes."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Remember what handles signals before the test and its fixtures."""
    item.stash[BEFORE] = [signal.getsignal(number) for number in HANDLED]
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None]:
    """Restore it after them, and fail if that was necessary."""
    yield
    for number, before in zip(HANDLED, item.stash[BEFORE], strict=True):
        if (left := signal.getsignal(number)) is not before:
            signal.signal(number, before)
            pytest.fail(f"{number.name} is still handled by {left}, and was by {before} before")
