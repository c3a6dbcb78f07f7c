"""The worlds in which every source has to behave the same."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kgroup import broker
from tests.records import worlds
from tests.records.worlds import World


@pytest.fixture(params=["memory", "embedded", pytest.param("real", marks=pytest.mark.real_kafka)])
async def world(request: pytest.FixtureRequest) -> AsyncIterator[World]:
    """A broker and a source on it: in memory, over the wire, and a real Kafka."""
    if request.param == "real":
        yield worlds.real(request.getfixturevalue("real_kafka").bootstrap_servers)
        return
    make = {"memory": worlds.memory, "embedded": worlds.embedded}[request.param]
    async with broker.serve(settings={"group.initial.rebalance.delay.ms": 0}) as running:
        yield make(running)
