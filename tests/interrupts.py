"""Ctrl-C works for tests and for the programs that they start, however the suite was started.

A shell starts background jobs with SIGINT ignored, and child processes inherit that. A program that
a test interrupts would ignore the signal and never end.
"""

from __future__ import annotations

import signal

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Restore the default handler of SIGINT here, and so in child processes."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
