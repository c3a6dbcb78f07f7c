"""A test that leaves an exception behind as the one being handled fails, not the tests after it.

Python leaves one if a trace function raises at the line of an ``except``. Every exception that is
raised in that thread from then on has it as its context.
"""

from __future__ import annotations

import sys
from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None]:
    """Fail if the thread handles another exception after the test than before."""
    before = sys.exception()
    yield
    if (left := sys.exception()) is not before:
        pytest.fail(f"after the test {left!r} still counts as being handled in this thread")
