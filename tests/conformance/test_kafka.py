"""Apache Kafka itself yields the recorded transcripts, so they hold for the version in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.conformance.driver import SCENARIOS, Scenario
from tests.conformance.golden import BROKERS, KAFKA_ONLY, compare, golden_path, read_golden
from tests.conformance.player import play_all, tcp, warm_up
from tests.conformance.suites import scenarios_of
from tests.conformance.wire import Opener

SUITE: Final = "open"
"""The other suites are played on Kafka by ``python -m tests.conformance``."""
JOBS: Final = (16, 1, 1)
"""How many scenarios are played at a time: many at first, because they mostly wait. Those that
differ are played again, one at a time: on a busy machine an answer may come too late for its place
in the transcript, but a real difference of Kafka's remains."""


async def differing(scenarios: list[Scenario], open_stream: Opener, jobs: int) -> dict[str, str]:
    """Play scenarios; return the differences from the recorded transcripts, by scenario."""
    golden = read_golden(golden_path(SUITE))
    found: dict[str, str] = {}

    def keep_difference(scenario: Scenario, lines: list[str]) -> None:
        difference = compare(golden[scenario.name]["transcript"], lines)
        if difference:
            found[scenario.name] = "\n".join(difference)

    await play_all(scenarios, open_stream, keep_difference, jobs=jobs)
    return found


@pytest.mark.parametrize("configuration", BROKERS)
async def test_kafka_answers_as_recorded(configuration: str, own_kafka: Callable[..., Any]) -> None:
    """Every scenario's transcript is the recorded one, line by line."""
    kafka = own_kafka(settings={**BROKERS[configuration], **KAFKA_ONLY})
    open_stream = tcp(kafka.bootstrap_servers)
    await warm_up(open_stream)
    left = scenarios_of(SUITE, configuration)
    assert left
    found: dict[str, str] = {}
    for jobs in JOBS:
        found = await differing(left, open_stream, jobs)
        left = [SCENARIOS[name] for name in found]
    assert not found, "\n" + "\n".join(f"{name}\n{lines}" for name, lines in found.items())
