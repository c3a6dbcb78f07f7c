"""Cooperative groups of kgroup's, Java's and librdkafka's members on a real Kafka (KIP-429).

librdkafka's take no part in the upgrade: it refuses to offer an eager and a cooperative assignor
together, so a group with its members has to stop for it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kgroup.events import Joining
from kgroup.testing.kafka import KafkaAddress
from tests.behaviour.harness import Harness, Member, SteadyProducer, harness
from tests.broker.interop.members import (
    LIBRDKAFKA,
    Client,
    ForeignMember,
    refused,
    start_member,
    until_shared,
)
from tests.broker.interop.play import PARTITIONS, check_account
from tests.brokers import REAL, Kafka

pytestmark = pytest.mark.real_kafka

KINDS = ("kgroup", "java", "confluent-kafka")
COOPERATIVE = "cooperative-sticky"
Node = Member | ForeignMember


@asynccontextmanager
async def on_kafka(address: KafkaAddress) -> AsyncIterator[tuple[Harness, SteadyProducer]]:
    """A group on Kafka with its topic, and a producer at work."""
    async with harness(Kafka(REAL, address.bootstrap_servers)) as here:
        await here.create(PARTITIONS)
        producer = SteadyProducer(here, PARTITIONS, per_second=100)
        producer.start()
        yield here, producer


async def start(here: Harness, kind: str, name: str, assignors: str, folder: Path) -> Node:
    """Start a member of a kind."""
    if kind == "kgroup":
        return here.start(name, assignors=assignors.split(","))
    client = Client(name=kind, assignor=assignors)
    return await start_member(here, client, name, folder / name)


def numbers(node: Node) -> set[int]:
    """The partitions that a member owns."""
    if isinstance(node, Member):
        return {one.partition for one in node.generation.assignment}
    return set(node.partitions)


def is_sticky(before: Mapping[str, set[int]], after: Mapping[str, set[int]]) -> bool:
    """Whether each remaining member keeps as many partitions as its new share allows."""
    return all(
        len(before[name] & mine) == min(len(before[name]), len(mine))
        for name, mine in after.items()
        if name in before
    )


async def shared(here: Harness, nodes: Mapping[str, Node]) -> dict[str, set[int]]:
    """Wait until all partitions are shared evenly and read; return each member's partitions.

    Java's VerifiableConsumer commits only what it has just received, and does not repeat a commit
    that a rebalance refused: the records after the rebalance bring the next one.
    """
    await until_shared(here, nodes, PARTITIONS)
    processed, partitions = here.processed, here.partitions(PARTITIONS)
    before = {partition: len(processed.offsets(partition)) for partition in partitions}
    await processed.until(
        lambda: all(len(processed.offsets(one)) > before[one] for one in partitions),
        "a partition is read no more",
    )
    found = {name: numbers(node) for name, node in nodes.items()}
    assert sorted(number for mine in found.values() for number in mine) == list(range(PARTITIONS))
    return found


def repeatable(nodes: list[Node]) -> dict[int, int]:
    """The records that foreign members may repeat: those read while commits were refused."""
    return refused(*(node for node in nodes if isinstance(node, ForeignMember)))


async def test_a_group_goes_from_range_to_cooperative_sticky(
    real_kafka: KafkaAddress, tmp_path: Path
) -> None:
    """Each member is restarted twice, one after the other; no record is missed or repeated."""
    kinds = {"one": "kgroup", "two": "kgroup", "three": "java"}
    chosen: list[str] = []
    async with on_kafka(real_kafka) as (here, producer):
        nodes: dict[str, Node] = {}
        all_of_them: list[Node] = []

        async def start_again(name: str, assignors: str) -> None:
            if name in nodes:
                await nodes.pop(name).leave()
            nodes[name] = await start(here, kinds[name], name, assignors, tmp_path)
            all_of_them.append(nodes[name])

        def ours() -> list[Member]:
            return [node for node in nodes.values() if isinstance(node, Member)]

        def gave_up() -> int:
            reasons = [event.reason for node in ours() for event in node.events_of(Joining)]
            return sum("gave up" in reason for reason in reasons)

        for name in kinds:
            await start_again(name, "range")
        await shared(here, nodes)
        for assignors in (f"{COOPERATIVE},range", COOPERATIVE):
            for name in reversed(kinds):
                await start_again(name, assignors)
                await shared(here, nodes)
                (protocol,) = {node.generation.assignor for node in ours()}
                chosen.append(protocol)
        assert chosen == ["range", "range", *[COOPERATIVE] * 4]
        # All are cooperative now: partitions that move are given up first, and the others stay.
        await nodes.pop("two").leave()
        before = await shared(here, nodes)
        earlier = gave_up()  # on a busy machine a restart above is a departure and an arrival
        await start_again("two", COOPERATIVE)
        assert is_sticky(before, await shared(here, nodes))
        assert gave_up() > earlier
        await check_account(here, await producer.stop(), repeatable(all_of_them))
        for node in nodes.values():
            await node.leave()
        assert await here.committed(PARTITIONS) == await here.ends(PARTITIONS)


@LIBRDKAFKA
@pytest.mark.parametrize("first", KINDS)
async def test_any_leader_shares_evenly_and_moves_little(
    real_kafka: KafkaAddress, tmp_path: Path, first: str
) -> None:
    """The first member leads; two others join and one leaves; few partitions move."""
    async with on_kafka(real_kafka) as (here, producer):
        nodes = {first: await start(here, first, first, COOPERATIVE, tmp_path)}
        steps = [await shared(here, nodes)]
        others = [kind for kind in KINDS if kind != first]
        for kind in others:
            nodes[kind] = await start(here, kind, kind, COOPERATIVE, tmp_path)
        steps.append(await shared(here, nodes))
        ours = nodes["kgroup"]
        assert isinstance(ours, Member)
        assert ours.generation.leader is (first == "kgroup")
        everybody = list(nodes.values())
        await nodes.pop(next(kind for kind in others if kind != "kgroup")).leave()
        steps.append(await shared(here, nodes))
        assert is_sticky(steps[0], steps[1])
        assert is_sticky(steps[1], steps[2])
        await check_account(here, await producer.stop(), repeatable(everybody))
        for node in nodes.values():
            await node.leave()
        assert await here.committed(PARTITIONS) == await here.ends(PARTITIONS)
