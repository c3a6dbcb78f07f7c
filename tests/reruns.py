"""Lets pytest-rerunfailures see why a trio test failed: it reads no exception inside of a group.

Its ``only_rerun`` is matched against the exception that the test raised. Trio raises groups, whose
own text says nothing, so that such a test was never run again.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Raise the only exception of a group by itself, in tests that may be run again."""
    try:
        return (yield)
    except BaseExceptionGroup as group:
        error = only_exception(group)
        if error is None or item.get_closest_marker("flaky") is None:
            raise
        raise error from None


def only_exception(error: BaseException) -> BaseException | None:
    """The exception inside of nested groups of one; None if a group has several."""
    while isinstance(error, BaseExceptionGroup):
        if len(error.exceptions) != 1:
            return None
        (error,) = error.exceptions
    return error
