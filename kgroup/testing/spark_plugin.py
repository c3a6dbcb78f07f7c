"""The pytest plugin of Spark: a session, clusters and a PostgreSQL for tests.

Fixtures: ``spark``, one small session on ``local[2]`` for all tests of a process;
``spark_cluster``, one standalone master with two workers for all tests; ``own_spark_cluster``,
which starts a cluster for one test, to kill parts of it or to have another size; ``postgres``, one
PostgreSQL server for all tests. A process has one session: tests on a cluster run their drivers in
processes of their own.

A project loads it by ``pytest_plugins = ["kgroup.testing.spark_plugin"]`` in its top-level
conftest.py. Optional packages are imported only when a test needs them; if one is missing, the
tests that need it fail, and the error names it.
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
"""The log files of everything that this process has started."""
JARS: Final = pytest.StashKey[tuple[list[Path], list["SparkUnavailableError"]]]()
"""The jars that Spark does not ship, and the errors of those that could not be downloaded."""
LOG_TAIL: Final = 40
"""Lines of the logs that are shown with a failure."""


def pytest_configure(config: pytest.Config) -> None:
    """Begin with no logs."""
    config.stash[LOGS] = []


def needs_spark(item: pytest.Item) -> bool:
    """Whether a test uses one of the fixtures."""
    return not FIXTURES.isdisjoint(getattr(item, "fixturenames", ()))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Download the jars now; during a test it would count as that test's time."""
    if session.config.option.collectonly or not any(map(needs_spark, session.items)):
        return
    from kgroup.testing.spark.jars import all_jars

    session.config.stash[JARS] = all_jars()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of Spark's logs when a test that uses Spark fails."""
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

    All tests of the process share it: a test uses names of its own, and restores the settings that
    it changes.
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

    A test must not kill or add workers (``own_spark_cluster`` is for that), and must end its
    drivers: a running driver keeps the cores.
    """
    from kgroup.testing.spark import SparkCluster

    with SparkCluster(log_path=_log(pytestconfig, tmp_path_factory, "spark-cluster")) as cluster:
        yield cluster


@pytest.fixture
def own_spark_cluster(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., SparkCluster]]:
    """Call it with ``SparkCluster``'s arguments to start a cluster that ends with the test."""
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
    """One PostgreSQL for all tests of the process; a test uses table names of its own."""
    from kgroup.testing.postgres import Postgres

    with Postgres(log_path=_log(pytestconfig, tmp_path_factory, "postgres")) as server:
        yield server


def _log(config: pytest.Config, folders: pytest.TempPathFactory, name: str) -> Path:
    """Make a path for a log file, whose end is shown with failures."""
    path = folders.mktemp(name) / f"{name}.log"
    config.stash[LOGS].append(path)
    return path
