"""The fixture ``kafka``: each test that uses it runs against both brokers.

One is the embedded broker, in a separate process that ``kgroup broker`` starts, so that clients
which block (librdkafka, a thread) can be used beside trio. The other is Apache Kafka. Both live for
the whole run, so each test uses unique names for its topics and groups.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, final

import attrs
import pytest

from kgroup.testing.kafka import SETTINGS, KafkaAddress

ROOT: Final = Path(__file__).resolve().parent.parent
EMBEDDED: Final = "embedded"
REAL: Final = "real"
STOP_TIMEOUT: Final = 150.0
#: ``kgroup broker``; it ends with the process that started it, even if that process is killed.
BROKER: Final = """
from kgroup.cli import main
from kgroup.cli.demo.processes import exit_after_parent
exit_after_parent(0.0)
main()
"""
SHARED: Final = (
    "group.initial.rebalance.delay.ms",
    "group.min.session.timeout.ms",
    "auto.create.topics.enable",
)
"""The settings of the real broker that the embedded one has too."""


@final
@attrs.frozen
class Kafka:
    """A running broker.

    Attributes:
        kind: ``EMBEDDED`` or ``REAL``.
        bootstrap_servers: ``host:port``.
    """

    kind: str
    bootstrap_servers: str


@contextmanager
def embedded_broker(**settings: str) -> Iterator[str]:
    """Run ``kgroup broker``; its ``host:port``."""
    given = {**{name: SETTINGS[name] for name in SHARED}, **settings}
    command = [sys.executable, "-c", BROKER]
    command += ["broker", "--listen", "127.0.0.1:0"]
    for name, value in given.items():
        command += ["--set", f"{name}={value}"]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None  # it is a pipe
        try:
            ready = process.stdout.readline()
            _, _, ready_at = ready.partition("ready at ")
            address, _, _ = ready_at.partition(";")
            if not address:
                raise RuntimeError(f"kgroup broker did not start; it said {ready!r}")
            yield address
        finally:
            process.terminate()
            process.wait(STOP_TIMEOUT)


@pytest.fixture(
    scope="session",
    params=[EMBEDDED, pytest.param(REAL, marks=pytest.mark.real_kafka)],
)
def kafka(request: pytest.FixtureRequest) -> Iterator[Kafka]:
    """The two brokers in turn."""
    if request.param == REAL:
        address: KafkaAddress = request.getfixturevalue("real_kafka")
        yield Kafka(REAL, address.bootstrap_servers)
        return
    with embedded_broker() as bootstrap_servers:
        yield Kafka(EMBEDDED, bootstrap_servers)


def unique(name: str) -> str:
    """A name that no other test has."""
    return f"{name}-{uuid.uuid4().hex[:12]}"
