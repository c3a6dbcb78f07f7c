"""The pytest plugin of Spark: a session, clusters and a PostgreSQL for tests.

Fixtures: ``spark``, one small session on ``local[2]`` for all tests of a process;
``spark_cluster``, a standalone master with two workers for all of them, and
``own_spark_cluster``, which starts one for a test that kills of it or needs another size;
``postgres``, one server of PostgreSQL for all. A process has one session: tests on a cluster run
their drivers as processes of their own.

A project loads it by ``pytest_plugins = ["kgroup.testing.plugin", "kgroup.testing.spark_plugin"]``
in its top-level conftest.py. What the extras bring is not imported before a test needs it; where
something is missing the tests that need it fail and say what.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kgroup.testing.postgres import Postgres
    from kgroup.testing.spark import SparkCluster, SparkUnavailableError

FIXTURES: Final = frozenset({"own_spark_cluster", "postgres", "spark", "spark_cluster"})
LOGS: Final = pytest.StashKey[list[Path]]()
"""Logs of what this process has started."""
JARS: Final = pytest.StashKey[tuple[list[Path], list["SparkUnavailableError"]]]()
"""What Spark does not ship, and why some of it cannot be had."""
LOG_TAIL: Final = 40
"""Lines of the logs that are shown with a failure."""


def pytest_configure(config: pytest.Config) -> None:
    """No log is known yet."""
    config.stash[LOGS] = []


def needs_spark(item: pytest.Item) -> bool:
    """Whether a test uses one of the fixtures."""
    return not FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Download the jars now: later it would count as the time of one test."""
    if session.config.option.collectonly or not any(map(needs_spark, session.items)):
        return
    from kgroup.testing.spark.jars import all_jars

    session.config.stash[JARS] = all_jars()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of Spark's logs with a failure of a test that used it."""
    report = yield
    if report.failed and needs_spark(item):
        from kgroup.testing.kafka import tail

        for log in item.config.stash[LOGS]:
            report.sections.append((f"the log {log}", tail(log, LOG_TAIL)))
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

    log_path = _log(pytestconfig, tmp_path_factory, "spark")
    jars, missing = pytestconfig.stash.get(JARS, None) or all_jars()
    log_path.write_text("".join(f"{error}\n" for error in missing))
    settings = DELTA_SETTINGS if any("delta-spark" in jar.name for jar in jars) else {}
    with session(jars=jars, settings=settings, log_path=log_path) as session_of_all:
        yield session_of_all


@pytest.fixture(scope="session")
def spark_cluster(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkCluster]:
    """A standalone master and two workers of one core each, for all tests of the process.

    A test neither kills of it nor adds to it (``own_spark_cluster`` is for that), and ends its
    drivers: one that runs keeps the cores.
    """
    from kgroup.testing.spark import SparkCluster

    with SparkCluster(log_path=_log(pytestconfig, tmp_path_factory, "spark-cluster")) as cluster:
        yield cluster


@pytest.fixture
def own_spark_cluster(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., SparkCluster]]:
    """Call it, with ``SparkCluster``'s arguments, for a started one that ends with the test."""
    from kgroup.testing.spark import SparkCluster

    with ExitStack() as clusters:

        def start(**arguments: Any) -> SparkCluster:
            log_path = _log(pytestconfig, tmp_path_factory, "own-spark-cluster")
            clusters.callback(pytestconfig.stash[LOGS].remove, log_path)
            return clusters.enter_context(SparkCluster(log_path=log_path, **arguments))

        yield start


@pytest.fixture(scope="session")
def postgres(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Postgres]:
    """One PostgreSQL for all tests of the process: a test takes tables of its own names."""
    from kgroup.testing.postgres import Postgres

    with Postgres(log_path=_log(pytestconfig, tmp_path_factory, "postgres")) as server:
        yield server


def _log(config: pytest.Config, folders: pytest.TempPathFactory, name: str) -> Path:
    """A file for a log, known from now on."""
    path = folders.mktemp(name) / f"{name}.log"
    config.stash[LOGS].append(path)
    return path
