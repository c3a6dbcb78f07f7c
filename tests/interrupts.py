"""Ctrl-C works for tests and for the programs that they start, however the suite was started.

A shell starts background jobs with SIGINT ignored, and child processes inherit that. A program that
a test interrupts would ignore the signal and never end.

A test that leaves another handler fails, and not the test that is interrupted after it.
"""

from __future__ import annotations

import signal
from collections.abc import Generator
from typing import Final

import pytest

HANDLED: Final = (signal.SIGINT, signal.SIGTERM)


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Restore the default handler of SIGINT here, and so in child processes."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Restore the handlers of before the test, and fail if that was necessary.

    Fixtures may set some for more than one test: Spark's session handles SIGINT.
    """
    before = [(number, signal.getsignal(number)) for number in HANDLED]
    yield
    for number, handler in before:
        if (left := signal.getsignal(number)) is not handler:
            signal.signal(number, handler)
            pytest.fail(f"{number.name} is still handled by {left}, and was by {handler} before")
