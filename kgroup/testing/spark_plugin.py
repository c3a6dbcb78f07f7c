"""The pytest plugin of Spark: a session, clusters and a PostgreSQL for tests.

Fixtures: ``spark``, one small session on ``local[2]`` for all tests of a process.

A project loads it by ``pytest_plugins = ["kgroup.testing.plugin", "kgroup.testing.spark_plugin"]``
in its top-level conftest.py. What the extras bring is not imported before a test needs it; where
something is missing the tests that need it fail and say what.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FIXTURES: Final = frozenset({"spark"})
LOGS: Final = pytest.StashKey[list[Path]]()
"""Logs of what this process has started."""
LOG_TAIL: Final = 40
"""Lines of the logs that are shown with a failure."""


def pytest_configure(config: pytest.Config) -> None:
    """No log is known yet."""
    config.stash[LOGS] = []


def needs_spark(item: pytest.Item) -> bool:
    """Whether a test uses one of the fixtures."""
    return not FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of Spark's logs with a failure of a test that used it."""
    report = yield
    if report.failed and needs_spark(item):
        from kgroup.testing.kafka import tail

        for log in item.config.stash[LOGS]:
            report.sections.append((f"Spark's log, {log}", tail(log, LOG_TAIL)))
    return report


@pytest.fixture(scope="session")
def spark(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    """A session on ``local[2]``, with Delta Lake, Spark's Kafka source and PostgreSQL's driver.

    All tests of the process share it: a test takes names of its own and leaves settings as they
    were.
    """
    from kgroup.testing.spark import session
    from kgroup.testing.spark.jars import DELTA_SETTINGS, all_jars

    log_path = tmp_path_factory.mktemp("spark") / "spark.log"
    pytestconfig.stash[LOGS].append(log_path)
    with session(jars=all_jars(), settings=DELTA_SETTINGS, log_path=log_path) as session_of_all:
        yield session_of_all
