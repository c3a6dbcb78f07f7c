"""What idle members cost, counted: requests in a minute of virtual time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.broker import in_memory
from kgroup.group import ConsumerGroup
from kgroup.testing.memory import config_for, memory_runtime
from kgroup.wire.codec import encode_request

MEMBERS = 50
MINUTE = 60.0


@pytest.fixture
def requests(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many requests the members have sent, by kio's name of the API."""
    sent: Counter[str] = Counter()

    def counting(api: str, version: int, fields: Mapping[str, Any], **named: Any) -> bytes:
        sent[api] += 1
        return encode_request(api, version, fields, **named)

    monkeypatch.setattr("kgroup.wire.connection.encode_request", counting)
    return sent


async def test_idle_groups_of_a_process_send_heartbeats_and_one_poll_a_second(
    autojump_clock: MockClock, requests: Counter[str]
) -> None:
    """Fifty groups: a heartbeat a second each, one Metadata a second for all, and nothing else."""
    joined: list[str] = []
    async with in_memory(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        for number in range(MEMBERS):
            await broker.create_topic(f"t{number}", 3)

        async def member(name: str) -> None:
            config = config_for(broker, group_id=f"g-{name}", topics=[name])
            async with ConsumerGroup(config, runtime=memory_runtime(broker)) as group:
                async for generation in group:
                    joined.append(name)
                    for partition in generation.assignment:
                        generation.start_soon(generation.records(partition).__anext__)

        async with trio.open_nursery() as nursery:
            for number in range(MEMBERS):
                nursery.start_soon(member, f"t{number}")
            await trio.sleep(10)  # past the quick heartbeats at the beginning
            assert len(joined) == MEMBERS
            requests.clear()
            await trio.sleep(MINUTE)
            idle = dict(requests)
            nursery.cancel_scope.cancel()
    assert idle.keys() == {"heartbeat", "metadata"}
    assert abs(idle["metadata"] - MINUTE) <= 1
    assert abs(idle["heartbeat"] - MINUTE * MEMBERS) <= MEMBERS


async def test_a_join_needs_no_more_requests_than_its_steps(
    autojump_clock: MockClock, requests: Counter[str]
) -> None:
    """The requests of the first join of a group that has no offsets yet, until its generation."""
    async with in_memory(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        await broker.create_topic("topic", 3)
        config = config_for(broker)
        async with ConsumerGroup(config, runtime=memory_runtime(broker)) as group:
            await group.next()
            needed = dict(requests)
    assert needed == {
        "api_versions": 3,
        "find_coordinator": 1,
        "join_group": 2,
        "metadata": 1,
        "sync_group": 1,
        "heartbeat": 1,
        "offset_fetch": 1,
        "list_offsets": 1,
    }
