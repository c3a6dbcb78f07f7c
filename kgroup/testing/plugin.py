"""The pytest plugin: brokers and simulations for tests.

Fixtures: ``embedded_kafka``, an embedded broker for one test, and ``own_embedded_kafka``, which
starts one with settings or several brokers; ``simulation``, which runs a program through any
number of simulated faults in virtual time; ``real_kafka``, one broker of Apache Kafka that all
tests of the run share, across pytest-xdist's workers too, and ``own_kafka``, which starts one for a
test that stops it, kills it or needs settings of its own. A test that requests one of these only
while it runs has the mark ``real_kafka``. Such tests fail where a real Kafka is not available.

pytest loads it by itself, as an entry point, in every run on a machine that has kgroup. INVARIANT:
the import of this module imports nothing of kgroup but two packages without code, no event loop and
no optional package; fixtures and hooks import what they need when a test needs it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from kgroup.testing.embedded import EmbeddedKafka
    from kgroup.testing.kafka import KafkaAddress, RealKafka
    from kgroup.testing.simulation import Summary, Worker
    from kgroup.testing.simulation.workload import Setup, Value

OPTION: Final = "--without-real-kafka"
REAL_KAFKA_FIXTURES: Final = frozenset({"real_kafka", "own_kafka"})
SKIPPED: Final = f"{OPTION} was given"
LOGS: Final = pytest.StashKey[list[Path]]()
"""Logs of the brokers that this process has used."""

UNAVAILABLE: Final = pytest.StashKey[Exception]()
"""Why Kafka's jars are not available, if they are not."""

uncaptured_stderr: int | None = None
"""A copy of stderr's descriptor from before pytest captures it, for a simulation that can only be
ended with the process: what pytest has captured would be lost. None if there is no stderr."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option to skip tests with a real Kafka."""
    parser.getgroup("kgroup").addoption(
        OPTION,
        action="store_true",
        help="skip the tests that need a real Kafka; otherwise they fail if there is none",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the mark, and keep stderr while it is not captured."""
    global uncaptured_stderr  # noqa: PLW0603 # one for the process, as stderr
    if uncaptured_stderr is None:
        with suppress(OSError):
            uncaptured_stderr = os.dup(2)
    config.stash[LOGS] = []
    config.addinivalue_line(
        "markers", "real_kafka: needs a real Kafka, which it requests while it runs"
    )


def needs_real_kafka(item: pytest.Item) -> bool:
    """Whether a test uses one of the fixtures or has the mark."""
    names = getattr(item, "fixturenames", ())
    return (
        not REAL_KAFKA_FIXTURES.isdisjoint(names)
        or item.get_closest_marker("real_kafka") is not None
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip the tests that need a real Kafka, if the option was given."""
    if config.getoption(OPTION):
        for item in filter(needs_real_kafka, items):
            item.add_marker(pytest.mark.skip(reason=SKIPPED))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item,
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the end of the brokers' logs to the report of a failed test that used them."""
    report = yield
    if report.failed and needs_real_kafka(item):
        from kgroup.testing.kafka import LOG_TAIL, tail

        for log in item.config.stash[LOGS]:
            report.sections.append((f"the real Kafka's log, {log}", tail(log, LOG_TAIL)))
    return report


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Report how many tests were skipped."""
    if not config.getoption(OPTION):
        return
    reports = terminalreporter.stats.get("skipped", [])
    skipped = sum(SKIPPED in str(report.longrepr) for report in reports)
    terminalreporter.section("real Kafka", yellow=True, bold=True)
    terminalreporter.line(
        f"{skipped} tests that need a real Kafka did not run: {SKIPPED}", yellow=True, bold=True
    )


def pytest_collection_finish(session: pytest.Session) -> None:
    """Download Kafka's jars now: later, the download would count as the time of one test."""
    option = session.config.option
    if option.collectonly or option.without_real_kafka:
        return
    if any(map(needs_real_kafka, session.items)):
        from kgroup.testing.java import KafkaUnavailableError, kafka_class_path

        try:
            kafka_class_path()
        except KafkaUnavailableError as error:
            session.config.stash[UNAVAILABLE] = error


def _skip_or_fail_without_kafka(config: pytest.Config) -> None:
    if config.getoption(OPTION):
        pytest.skip(SKIPPED)
    if UNAVAILABLE in config.stash:
        # Without the traceback, to which each test before this one has added lines.
        raise config.stash[UNAVAILABLE].with_traceback(None)


@pytest.fixture(scope="session")
def real_kafka(
    pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaAddress]:
    """One broker of Apache Kafka, with the settings of ``kgroup.testing.kafka.SETTINGS``.

    All tests of the run share it. A test uses topics and groups with names of its own, and neither
    stops the broker nor changes its settings (``own_kafka`` is for that).
    """
    _skip_or_fail_without_kafka(pytestconfig)
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
    """A function that starts a broker for this test; it takes ``RealKafka``'s arguments."""
    _skip_or_fail_without_kafka(pytestconfig)
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
    """A function that starts a cluster for this test; it takes ``EmbeddedKafka``'s arguments."""
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
    """A function that simulates a program: an async function that takes a ``Process``.

    Its further arguments are ``seeds`` (``range(100)`` by default, ``[17]`` for one seed),
    ``processes``, ``value``, ``setup`` and ``seed_timeout`` of ``check``, and those of
    ``Scenario``. It returns the figures of all seeds, or raises ``SimulationError`` with the report
    of the first that fails.
    """
    import attrs

    from kgroup.bounds import did_you_mean
    from kgroup.errors import ConfigError
    from kgroup.testing.simulation import Scenario, check
    from kgroup.testing.simulation.watchdog import SEED_TIMEOUT

    known = {field.name for field in attrs.fields(Scenario)}
    known |= {"seeds", "value", "setup", "processes", "seed_timeout"}

    def simulate(
        worker: Worker,
        *,
        seeds: Iterable[int] = range(100),
        value: Value | None = None,
        setup: Setup | None = None,
        processes: int | None = None,
        seed_timeout: float = SEED_TIMEOUT,
        **scenario: Any,
    ) -> Summary:
        __tracebackhide__ = True  # the report follows the line of the test
        try:
            for name in scenario.keys() - known:
                raise ConfigError(
                    name,
                    scenario[name],
                    f"simulation() has no such argument{did_you_mean(name, known)}",
                )
            given = Scenario(**scenario)
        except (ConfigError, TypeError) as error:
            error.__traceback__ = None  # its text says all, and the line of the test is above it
            raise
        return check(
            given,
            seeds,
            worker,
            value=value,
            setup=setup,
            processes=processes,
            seed_timeout=seed_timeout,
        )

    return simulate
