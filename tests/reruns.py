"""Lets pytest-rerunfailures see why a trio test failed.

Its option ``only_rerun`` is compared with the text of the exception that the test raised. trio
raises groups, whose text does not name the failure, so such a test would never be rerun.
"""

from __future__ import annotations

from collections.abc import Generator

import pytest


@pytest.hookimpl(wrapper=True, trylast=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """If a test may be rerun, raise the only exception of a group instead of the group."""
    try:
        return (yield)
    except BaseExceptionGroup as group:
        error = only_exception(group)
        if error is None or item.get_closest_marker("flaky") is None:
            raise
        raise error from None


def only_exception(error: BaseException) -> BaseException | None:
    """The single exception inside nested groups, or None if a group has several."""
    while isinstance(error, BaseExceptionGroup):
        if len(error.exceptions) != 1:
            return None
        (error,) = error.exceptions
    return error
