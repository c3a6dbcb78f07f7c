"""How tests are collected and put in order: no work twice, and the longest first.

pytest rewrites the assertions of every test file that is new to it and keeps the outcome beside
it. Processes that begin together and go the same way would all rewrite all files, so each goes its
own way and finds most files rewritten by another. INVARIANT: the order of the tests is the same in
every process, which pytest-xdist asks for.
"""

from __future__ import annotations

import gc
import os
import random
from collections.abc import Generator
from typing import Final

import pytest

FIRST: Final = ("test_seeds.py",)
"""Files of tests that compute for minutes: beside them there is time for those that mostly wait."""
_OWN_WAY: Final = random.Random(os.environ.get("PYTEST_XDIST_WORKER"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without the garbage collector: next to nothing of what is made then is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Go through the files of a folder in an order of this process's own."""
    report = yield
    if isinstance(collector, pytest.Directory):
        _OWN_WAY.shuffle(report.result)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests in one order: what takes longest, then by path, in a file as they stand."""
    items.sort(key=lambda item: (item.path.name not in FIRST, item.path))
