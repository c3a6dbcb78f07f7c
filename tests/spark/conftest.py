"""Settings for the tests on Spark: functions that they define are shipped to the executors."""

from __future__ import annotations

import sys

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """PySpark leaves connections to its JVM for the garbage collector to close."""
    config.addinivalue_line(
        "filterwarnings", r"ignore:unclosed <socket.*raddr=\('127.0.0.1':ResourceWarning"
    )


@pytest.fixture(scope="session", autouse=True)
def _sent_by_value() -> None:
    """Pickle functions of test modules by value: executors have kgroup, but not these tests."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules["tests"])  # type: ignore[no-untyped-call]
