"""What holds for the tests on Spark: what they define travels to the executors with them."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest

from tests.uncovered import leave_children_uncovered


def pytest_configure(config: pytest.Config) -> None:
    """PySpark leaves connections to its JVM for the garbage collector to close."""
    config.addinivalue_line(
        "filterwarnings", r"ignore:unclosed <socket.*raddr=\('127.0.0.1':ResourceWarning"
    )


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
