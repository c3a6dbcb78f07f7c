"""The environments in which every source must behave the same."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from kgroup import broker
from tests.records import environments
from tests.records.environments import Environment


@pytest.fixture(
    params=["memory", "embedded", "shared", pytest.param("real", marks=pytest.mark.real_kafka)]
)
async def environment(request: pytest.FixtureRequest) -> AsyncIterator[Environment]:
    """A broker and a source on it: in memory, over the wire, shared, and a real Kafka."""
    if request.param == "real":
        yield environments.real(request.getfixturevalue("real_kafka").bootstrap_servers)
        return
    make = {
        "memory": environments.memory,
        "embedded": environments.embedded,
        "shared": environments.shared,
    }[request.param]
    async with broker.serve(settings={"group.initial.rebalance.delay.ms": 0}) as running:
        yield make(running)
