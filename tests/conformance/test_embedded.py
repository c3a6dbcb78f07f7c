"""The embedded broker answers every scenario as Apache Kafka did when it was recorded.

Broker and clients share one event loop and a clock that moves only when all of them wait: a
request counts as parked when nothing is left that could answer it, and timers are exact, however
busy the machine is.
"""

from __future__ import annotations

from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from kgroup.broker import in_memory
from tests.conformance.driver import SCENARIOS, Scenario
from tests.conformance.golden import BROKERS, compare, golden_path, read_golden
from tests.conformance.player import play, warm_up
from tests.conformance.suites import SUITES

GOLDEN: Final[dict[str, dict[str, Any]]] = {
    suite: read_golden(golden_path(suite)) for suite in SUITES
}
EXACT: Final = 0.05
"""Seconds of the virtual clock: what polling for a state may add to a timer."""


@pytest.mark.parametrize("scenario", SCENARIOS.values(), ids=lambda one: f"{one.suite}-{one.name}")
async def test_answers_as_kafka_did(scenario: Scenario, autojump_clock: MockClock) -> None:
    """The transcript is the recorded one, line by line."""
    async with in_memory(BROKERS[scenario.broker]) as broker:

        async def open_stream() -> trio.abc.Stream:
            return await broker.open_stream(broker.host, broker.port)

        await warm_up(open_stream)
        lines = await play(scenario, open_stream, slack=EXACT)
    expected = GOLDEN[scenario.suite].get(scenario.name, {}).get("transcript")
    difference = compare(expected, lines)
    assert not difference, "\n" + "\n".join(difference)


@pytest.mark.parametrize("suite", SUITES)
def test_golden_files_have_a_scenario_for_every_transcript(suite: str) -> None:
    """No recorded transcript is without the scenario that it was recorded from."""
    played = {name for name, scenario in SCENARIOS.items() if scenario.suite == suite}
    assert set(GOLDEN[suite]) == played
