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
    """Executors have kgroup and not these tests: what a test module defines goes as it is."""
    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules["tests"])  # type: ignore[no-untyped-call]
