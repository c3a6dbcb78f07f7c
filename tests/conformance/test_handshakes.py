"""Logins: the embedded broker answers as Apache Kafka did, and Kafka still does."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from typing import Any, Final

import pytest
import trio
from trio.testing import MockClock

from kgroup.broker import BrokerSecurity, in_memory
from kgroup.security.settings import SaslMechanism
from tests.conformance.golden import compare
from tests.conformance.handshakes import (
    HANDSHAKES,
    LIFETIMES,
    PLAIN,
    USERS,
    play_handshake,
    play_handshakes,
    read_transcripts,
    start_kafka,
)
from tests.conformance.wire import Opener

TRANSCRIPTS: Final = read_transcripts()
ATTEMPTS: Final = 4


def differing(played: Mapping[str, list[str]]) -> dict[str, list[str]]:
    """What was not said as it was recorded, by scenario."""
    found = {name: compare(TRANSCRIPTS.get(name), lines) for name, lines in played.items()}
    return {name: difference for name, difference in found.items() if difference}


@pytest.mark.parametrize("name", HANDSHAKES)
async def test_the_embedded_broker_answers_as_kafka_did(
    name: str, autojump_clock: MockClock
) -> None:
    """The transcript is the recorded one, line by line."""
    one = HANDSHAKES[name]
    settings: dict[str, Any] = {}
    if one.broker != PLAIN:
        settings["security"] = BrokerSecurity(
            users=USERS, mechanisms=list(SaslMechanism), session_lifetime=LIFETIMES[one.broker]
        )
    async with in_memory(**settings) as broker:

        async def open_stream() -> trio.abc.Stream:
            return await broker.open_stream(broker.host, broker.port)

        now = broker.cluster.security.seconds_since_1970
        assert differing({name: await play_handshake(one, open_stream, now)}) == {}


@pytest.fixture(scope="module")
def openers() -> Iterator[Mapping[str, Opener]]:
    """Connect to the listeners of a real Kafka."""
    with ExitStack() as stack:
        yield start_kafka(stack)


@pytest.mark.real_kafka
async def test_kafka_answers_as_recorded(openers: Mapping[str, Opener]) -> None:
    """Scenarios have timers, so that one that a busy machine has spoilt is played again."""
    left = {name: ["not played"] for name in HANDSHAKES}
    for _ in range(ATTEMPTS):
        left = differing(await play_handshakes(list(left), openers))
        if not left:
            break
    assert left == {}


def test_every_transcript_has_its_scenario() -> None:
    """Nothing was recorded that is not played any more."""
    assert set(TRANSCRIPTS) == set(HANDSHAKES)
