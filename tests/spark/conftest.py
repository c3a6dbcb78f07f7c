"""What holds for the tests on Spark: what they define travels to the executors with them."""

from __future__ import annotations

import sys
from collections.abc import Generator, Iterator
from typing import Final

import pytest

from tests.uncovered import leave_children_uncovered

FIRST: Final = ("test_exactly_once.py", "test_drivers.py")
LATER: Final = ("test_demo.py", "test_cluster.py")
"""Files of tests that start drivers and mostly wait for them, so that there is time for others
beside them. The first are begun with; the others come when what takes a session has begun."""
KAFKA: Final = frozenset({"kafka", "real_kafka"})
"""Fixtures that start Apache Kafka, one in each process."""


def pytest_configure(config: pytest.Config) -> None:
    """PySpark leaves connections to its JVM for the garbage collector to close."""
    config.addinivalue_line(
        "filterwarnings", r"ignore:unclosed <socket.*raddr=\('127.0.0.1':ResourceWarning"
    )


@pytest.hookimpl(wrapper=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> Generator[None]:
    """Let one process have the session and another one Kafka; begin with what takes longest."""
    groups = dict(_groups(items))
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
    yield
    names = *FIRST, *LATER
    with_session = {item for item in items if groups.get(item) == "session"}

    def place(item: pytest.Item) -> float:
        if item.path.name in names:
            return names.index(item.path.name)
        return len(FIRST) - 0.5 if item in with_session else len(names)

    items.sort(key=place)


def _groups(items: list[pytest.Item]) -> Iterator[tuple[pytest.Item, str]]:
    for item in items:
        fixtures = getattr(item, "fixturenames", ())
        if "spark" in fixtures:
            yield item, "session"
        elif not KAFKA.isdisjoint(fixtures):
            yield item, "kafka"


@pytest.fixture(scope="session", autouse=True)
def _uncovered_children() -> Iterator[None]:
    """Drivers and Spark's Python workers are many, and do what is tested in this process too."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        leave_children_uncovered(monkeypatch)
        yield


@pytest.fixture(scope="session", autouse=True)
def _sent_by_value() -> None:
    """Executors have kgroup and not these tests: what a test module defines goes as it is."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules["tests"])  # type: ignore[no-untyped-call]
