"""Ctrl-C works for tests and for the programs that they start, however the suite was started.

A shell starts a job in the background with SIGINT ignored, and processes inherit what is ignored:
a program that a test interrupts would then run on.
"""

from __future__ import annotations

import signal

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_configure() -> None:
    """Have SIGINT raise KeyboardInterrupt here, and so have child processes start with it."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
