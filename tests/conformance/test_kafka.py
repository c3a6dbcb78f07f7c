"""Apache Kafka itself yields the recorded transcripts, so they hold for the version in use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.conformance.driver import SCENARIOS, Scenario
from tests.conformance.golden import BROKERS, KAFKA_ONLY, compare, golden_path, read_golden
from tests.conformance.player import play_all, tcp, warm_up
from tests.conformance.suites import SUITES

JOBS: Final = 32
"""Scenarios mostly wait."""


@pytest.mark.parametrize("configuration", BROKERS)
async def test_kafka_answers_as_recorded(configuration: str, own_kafka: Callable[..., Any]) -> None:
    """Every scenario's transcript is the recorded one, line by line."""
    kafka = own_kafka(settings={**BROKERS[configuration], **KAFKA_ONLY})
    golden = {suite: read_golden(golden_path(suite)) for suite in SUITES}
    troubles: list[str] = []

    def tell(scenario: Scenario, lines: list[str]) -> None:
        expected = golden[scenario.suite][scenario.name]["transcript"]
        difference = compare(expected, lines)
        if difference:
            troubles.extend([scenario.name, *difference])

    chosen = [one for one in SCENARIOS.values() if one.broker == configuration]
    open_stream = tcp(kafka.bootstrap_servers)
    await warm_up(open_stream)
    await play_all(chosen, open_stream, tell, jobs=JOBS)
    assert not troubles, "\n" + "\n".join(troubles)
