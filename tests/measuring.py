"""Which tests coverage is measured with: those of single modules, not those of the whole.

Coverage doubles the processor time of a test on Python 3.11. Tests that play stories, often against
a real Kafka, run code that the tests of its modules run anyway. Meanwhile the measuring stops.
"""

from __future__ import annotations

from collections.abc import Generator
from pathlib import PurePath
from typing import Final

import coverage
import pytest

from tests.collecting import relative

STORIES: Final = tuple(
    PurePath("tests", place)
    for place in (
        "behaviour",
        "benchmarks",
        "broker/interop",
        "cli/demo/test_whole_demo.py",
        "conformance",
        "docs",
        "examples",
        "group/test_idle.py",
        "group/test_inherited_assignments.py",
        "hostile",
        "house",
        "recovery/test_rows.py",
        "schedules",
        "testing/simulation/test_waiting_records.py",
        "threaded/test_group.py",
        "threaded/test_signals.py",
    )
)
"""Folders and files whose tests are not measured."""


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Stop measuring for the time of a test that is a story."""
    measuring = coverage.Coverage.current()
    if measuring is None or not is_story(relative(item)):
        return (yield)
    measuring.stop()
    try:
        return (yield)
    finally:
        measuring.start()


def is_story(path: PurePath) -> bool:
    """Whether a test file, relative to the root, is among the stories."""
    return any(path.is_relative_to(story) for story in STORIES)
