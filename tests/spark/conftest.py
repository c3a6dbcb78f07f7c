"""What holds for the tests on Spark: what they define travels to the executors with them."""

from __future__ import annotations

import sys
from collections.abc import Generator
from typing import Final

import pytest

SESSIONS: Final = 2
"""Processes that have a session, on whose JVM each of them spends 15 seconds of the processor."""
STORIES: Final = ("test_exactly_once.py", "test_drivers.py"), ("test_demo.py", "test_cluster.py")
"""Files of tests that start drivers and wait for them, so that there is time for others beside
them: the first of them are begun with, the others come after the sessions have begun."""


def pytest_configure(config: pytest.Config) -> None:
    """PySpark leaves connections to its JVM for the garbage collector to close."""
    config.addinivalue_line(
        "filterwarnings", r"ignore:unclosed <socket.*raddr=\('127.0.0.1':ResourceWarning"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Let as many processes as ``SESSIONS`` have a session, and begin with what takes longest."""
    with_session = {item.path for item in items if "spark" in getattr(item, "fixturenames", ())}
    halves = {path: number % SESSIONS for number, path in enumerate(sorted(with_session))}
    for item in items:
        if item.path in halves:
            item.add_marker(pytest.mark.xdist_group(f"session-{halves[item.path]}"))

    def place(item: pytest.Item) -> int:
        first, later = (item.path.name in names for names in STORIES)
        return 0 if first else 1 if item.path in halves else 2 if later else 3

    yield
    items.sort(key=place)


@pytest.fixture(scope="session", autouse=True)
def _sent_by_value() -> None:
    """Executors have kgroup and not these tests: what a test module defines goes as it is."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules["tests"])  # type: ignore[no-untyped-call]
