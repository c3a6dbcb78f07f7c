"""The pytest plugin: brokers and simulations for tests.

Fixtures: ``embedded_kafka``, an embedded broker for one test, and ``own_embedded_kafka``, which
starts one with settings or several brokers; ``simulation``, which runs a program through any
number of simulated faults in virtual time; ``real_kafka``, one broker of Apache Kafka for all
tests of the run, over pytest-xdist's workers too, and ``own_kafka``, which starts one for a test
that stops it, kills it or needs settings of its own. A test that asks for a real one only when it
runs carries the mark ``real_kafka``; such tests fail where it cannot be had.

A project loads it by ``pytest_plugins = ["kgroup.testing.plugin"]`` in its top-level conftest.py.
It is no entry point, which pytest would load in every run on a machine that has kgroup: importing
any part of kgroup imports what the package offers, which doubles the time that pytest takes to
start. What the ``kafka`` extra brings is not imported before a test needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from kgroup.testing.embedded import EmbeddedKafka
    from kgroup.testing.kafka import KafkaAddress, RealKafka
    from kgroup.testing.simulation import Summary, Worker

OPTION: Final = "--without-real-kafka"
FIXTURES: Final = frozenset({"real_kafka", "own_kafka"})
SKIPPED: Final = f"{OPTION} was given"
LOGS: Final = pytest.StashKey[list[Path]]()
"""Logs of the brokers that this process has used."""

UNAVAILABLE: Final = pytest.StashKey[Exception]()
"""Why Kafka's jars could not be had, if they could not."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option to do without."""
    parser.getgroup("kgroup").addoption(
        OPTION,
        action="store_true",
        help="skip the tests that need a real Kafka; without this they fail where there is none",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Make the mark known."""
    config.stash[LOGS] = []
    config.addinivalue_line("markers", "real_kafka: needs a real Kafka, asked for as it runs")


def needs_real_kafka(item: pytest.Item) -> bool:
    """Whether a test uses one of the fixtures, or says that it does."""
    names = getattr(item, "fixturenames", ())
    return not FIXTURES.isdisjoint(names) or item.get_closest_marker("real_kafka") is not None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what needs a real Kafka, if that was asked for."""
    if config.getoption(OPTION):
        for item in filter(needs_real_kafka, items):
            item.add_marker(pytest.mark.skip(reason=SKIPPED))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the brokers' logs with a failure of a test that used them."""
    report = yield
    if report.failed and needs_real_kafka(item):
        from kgroup.testing.kafka import LOG_TAIL, tail

        for log in item.config.stash[LOGS]:
            report.sections.append((f"the real Kafka's log, {log}", tail(log, LOG_TAIL)))
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say loudly how much was left out."""
    if not config.getoption(OPTION):
        return
    reports = terminalreporter.stats.get("skipped", [])
    skipped = sum(SKIPPED in str(report.longrepr) for report in reports)
    terminalreporter.section("real Kafka", yellow=True, bold=True)
    terminalreporter.line(
        f"{skipped} tests that need a real Kafka did not run: {SKIPPED}", yellow=True, bold=True
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Download what a real Kafka needs now: later it would count as the time of one test."""
    option = session.config.option
    if option.collectonly or option.without_real_kafka:
        return
    if any(map(needs_real_kafka, session.items)):
        from kgroup.testing.java import KafkaUnavailableError, kafka_class_path

        try:
            kafka_class_path()
        except KafkaUnavailableError as error:
            session.config.stash[UNAVAILABLE] = error


def _refuse_if_not_to_be_had(config: pytest.Config) -> None:
    if config.getoption(OPTION):
        pytest.skip(SKIPPED)
    if UNAVAILABLE in config.stash:
        raise config.stash[UNAVAILABLE]


@pytest.fixture(scope="session")
def real_kafka(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaAddress]:
    """One broker of Apache Kafka, with the settings of ``kgroup.testing.kafka.SETTINGS``.

    All tests of the run share it: a test takes topics and groups of its own names, and neither
    stops it nor changes its settings (``own_kafka`` is for that).
    """
    _refuse_if_not_to_be_had(pytestconfig)
    from kgroup.testing.shared import shared_kafka

    folder = tmp_path_factory.getbasetemp()
    if hasattr(pytestconfig, "workerinput"):
        folder = folder.parent
    with shared_kafka(folder) as kafka:
        pytestconfig.stash[LOGS].append(kafka.log_path)
        yield kafka


@pytest.fixture
def own_kafka(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., RealKafka]]:
    """Call it, with ``RealKafka``'s arguments, for a started broker that ends with the test."""
    _refuse_if_not_to_be_had(pytestconfig)
    from kgroup.testing.kafka import RealKafka

    with ExitStack() as brokers:

        def start(**arguments: Any) -> RealKafka:
            log_path = tmp_path_factory.mktemp("own-kafka") / "kafka.log"
            pytestconfig.stash[LOGS].append(log_path)
            brokers.callback(pytestconfig.stash[LOGS].remove, log_path)
            return brokers.enter_context(RealKafka(log_path=log_path, **arguments))

        yield start


@pytest.fixture
def own_embedded_kafka() -> Iterator[Callable[..., EmbeddedKafka]]:
    """Call it, with ``EmbeddedKafka``'s arguments, for a cluster that ends with the test."""
    from kgroup.testing.embedded import EmbeddedKafka

    with ExitStack() as clusters:

        def start(**arguments: Any) -> EmbeddedKafka:
            return clusters.enter_context(EmbeddedKafka(**arguments))

        yield start


@pytest.fixture
def embedded_kafka(own_embedded_kafka: Callable[..., EmbeddedKafka]) -> EmbeddedKafka:
    """An embedded broker on a TCP port, in a thread, for this test alone."""
    return own_embedded_kafka()


@pytest.fixture
def simulation() -> Callable[..., Summary]:
    """Call it with a program, an async function that takes a ``Process``, to simulate it.

    Further arguments: ``seeds`` (``range(100)``), ``processes``, and those of ``Scenario``. It
    returns the figures of all seeds, or raises ``SimulationError`` with the report of the first
    that fails.
    """
    from kgroup.testing.simulation import Scenario, check

    def simulate(
        worker: Worker,
        *,
        seeds: Iterable[int] = range(100),
        processes: int | None = None,
        **scenario: Any,
    ) -> Summary:
        return check(Scenario(**scenario), seeds, worker, processes=processes)

    return simulate
