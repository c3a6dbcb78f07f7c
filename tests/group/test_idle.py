"""What members cost, counted: requests in a minute of virtual time, of a join, of a rebalance."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.broker import in_memory
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.testing.memory import config_for, memory_runtime
from kgroup.watchers.brokers import MAX_AGE
from kgroup.wire.codec import encode_request

MEMBERS = 50
STABLE = 3
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


async def test_followers_request_the_brokers_together_and_rarely(
    autojump_clock: MockClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty followers send one Metadata in `MAX_AGE`, and one when all look up the coordinator."""
    sent: list[float] = []

    def counting(api: str, version: int, fields: Mapping[str, Any], **named: Any) -> bytes:
        if api == "metadata" and named["client_id"] == "followers":
            sent.append(trio.current_time())
        return encode_request(api, version, fields, **named)

    monkeypatch.setattr("kgroup.wire.connection.encode_request", counting)
    async with in_memory(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        await broker.create_topic("topic", 21)

        async def member(client_id: str) -> None:
            config = config_for(broker, client_id=client_id, heartbeat_interval=5.0)
            async with ConsumerGroup(config, runtime=memory_runtime(broker)) as group:
                async for generation in group:
                    async for _ in generation.records():
                        raise AssertionError

        async with trio.open_nursery() as nursery:
            nursery.start_soon(member, "leader")
            await trio.sleep(1)
            for _ in range(20):
                nursery.start_soon(member, "followers")
            await trio.sleep_until(MAX_AGE - 10)
            sent.clear()
            await trio.sleep_until(2 * MAX_AGE + 10)
            assert [round(at) for at in sent] == [MAX_AGE + 1, 2 * MAX_AGE + 1]
            sent.clear()
            broker.inject("heartbeat", "NOT_COORDINATOR", times=21)
            await trio.sleep_until(3 * MAX_AGE - 10)
            assert len(sent) == 1
            nursery.cancel_scope.cancel()


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


STEPS = {
    "join": {
        "api_versions": 3,
        "find_coordinator": 1,
        "join_group": STABLE + 2,  # the new member gets its id by the first one
        "sync_group": STABLE + 1,
        "offset_fetch": STABLE + 1,
        "heartbeat": 2 * STABLE + 1,  # one reports the rebalance, one confirms the generation
    },
    "leave": {
        "leave_group": 1,
        "join_group": STABLE - 1,
        "sync_group": STABLE - 1,
        "offset_fetch": STABLE - 1,
        "heartbeat": 2 * (STABLE - 1),
    },
}
"""The requests of a rebalance in a group of ``STABLE`` members."""


@pytest.mark.parametrize("change", STEPS)
async def test_a_rebalance_needs_no_more_requests_than_its_steps(
    autojump_clock: MockClock, requests: Counter[str], change: str
) -> None:
    """When one joins or leaves a stable group, each member joins, syncs, fetches offsets once."""
    groups: list[ConsumerGroup] = []
    members = STABLE + 1 if change == "join" else STABLE - 1
    handed, gained, complete = 0, 0, trio.Event()
    async with in_memory(settings={"group.initial.rebalance.delay.ms": 0}) as broker:
        await broker.create_topic("topic", 12)

        async def read(generation: Generation) -> None:
            async for _ in generation.records():
                raise AssertionError

        async def member(name: int) -> None:
            nonlocal handed, gained
            runtime = memory_runtime(broker, seed=name)
            async with ConsumerGroup(config_for(broker), runtime=runtime) as group:
                groups.append(group)
                async for generation in group:
                    handed += 1
                    gained += bool(generation.assignment.added)
                    if handed == members:
                        complete.set()
                    generation.start_soon(read, generation)
                    # So that the next owners find offsets.
                    await generation.commit(dict.fromkeys(generation.assignment, 0))

        async with trio.open_nursery() as nursery:
            for name in range(STABLE):
                nursery.start_soon(member, name)
            await trio.sleep(30)  # past the quick heartbeats at the beginning
            handed, gained, complete = 0, 0, trio.Event()
            requests.clear()
            if change == "join":
                nursery.start_soon(member, STABLE)
            else:
                groups[0].shutdown(promptly=True)
            await complete.wait()
            needed = dict(requests)
            nursery.cancel_scope.cancel()
    needed.pop("offset_commit", None)  # the program's
    # The leader's for its assignor, a poll of the topics, and one of each member that is given
    # partitions, with which it would verify commits that have a leader epoch.
    assert needed.pop("metadata") <= 2 + gained
    assert needed == STEPS[change]
