"""Groups of three of each other client: joined, left, killed, restarted as the same instance."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path

import pytest

from kgroup.broker import Broker, serve
from tests.behaviour.stage import Stage, SteadyProducer, stage
from tests.broker.interop.members import (
    SESSION_MS,
    SHORT_SESSION_MS,
    Client,
    ForeignMember,
    start_member,
    until_shared,
)
from tests.brokers import EMBEDDED, Kafka

PARTITIONS = 6
SETTINGS = {"group.initial.rebalance.delay.ms": 0, "group.min.session.timeout.ms": 100}
JAVA = pytest.mark.real_kafka
CLIENTS = [
    pytest.param(Client(name="java"), marks=JAVA),
    pytest.param(Client(name="java", assignor="cooperative-sticky"), marks=JAVA),
    Client(name="confluent-kafka"),
    Client(name="confluent-kafka", assignor="cooperative-sticky"),
    Client(name="aiokafka"),
    Client(name="kafka-python"),
    Client(name="kafka-python", assignor="cooperative-sticky"),
]


@asynccontextmanager
async def played() -> AsyncIterator[tuple[Broker, Stage, SteadyProducer]]:
    """A broker in this process, a stage on it with its topic, and a producer at work."""
    async with (
        serve(settings=SETTINGS) as broker,
        stage(Kafka(EMBEDDED, broker.bootstrap_servers)) as here,
    ):
        await here.create(PARTITIONS)
        producer = SteadyProducer(here, PARTITIONS, per_second=200)
        producer.start()
        yield broker, here, producer


async def check_account(here: Stage, produced: int, repeatable: Mapping[int, int]) -> None:
    """Every record is processed, in order, and again only from a partition's offset named here."""
    wanted = set(map(str, range(produced)))
    await here.ledger.until(lambda: wanted <= set(here.ledger.values()), "records are missing")
    for partition in here.partitions(PARTITIONS):
        offsets = here.ledger.offsets(partition)
        for before, later in pairwise(offsets):
            if partition.partition in repeatable:
                assert later == before + 1 or repeatable[partition.partition] <= later <= before
            else:
                assert later == before + 1


@pytest.mark.parametrize("client", CLIENTS, ids=str)
async def test_a_member_joins_one_is_killed_one_leaves(client: Client, tmp_path: Path) -> None:
    """Three share, two go in different ways, and a record is repeated only from the dead one."""
    async with played() as (broker, here, producer):
        nodes: dict[str, ForeignMember] = {}

        async def start(name: str, session_timeout_ms: int = SESSION_MS) -> None:
            nodes[name] = await start_member(
                here, client, name, tmp_path / name, session_timeout_ms=session_timeout_ms
            )

        await start("a")
        await start("b", SHORT_SESSION_MS)
        await until_shared(here, nodes, PARTITIONS)
        await start("c")
        await until_shared(here, nodes, PARTITIONS)
        dead = nodes.pop("b")
        inherited = set(dead.partitions)
        await dead.kill()
        committed = await here.committed(PARTITIONS)
        repeatable = {number: committed[number] or 0 for number in inherited}
        await until_shared(here, nodes, PARTITIONS)
        gone = nodes.pop("c")
        await gone.leave()
        await until_shared(here, nodes, PARTITIONS)
        # A cooperative member goes on reading while a rebalance refuses its commits.
        for node in (nodes["a"], gone, dead):
            repeatable = {**node.refused, **repeatable}
        await check_account(here, await producer.stop(), repeatable)
        await nodes["a"].leave()
        assert await here.committed(PARTITIONS) == await here.ends(PARTITIONS)
        assert [(group.state, group.members) for group in await broker.groups()] == [("Empty", ())]


@pytest.mark.parametrize(
    "client", [one for one in CLIENTS if "cooperative" not in str(one)], ids=str
)
async def test_a_static_member_restarts_without_a_rebalance(client: Client, tmp_path: Path) -> None:
    """An instance that ends and starts again has its partitions back, and nobody else notices."""
    async with played() as (broker, here, producer):

        async def start(name: str) -> ForeignMember:
            return await start_member(here, client, name, tmp_path / name, instance_id=name)

        nodes = {name: await start(name) for name in ("a", "b", "c")}
        await until_shared(here, nodes, PARTITIONS)
        before = {name: nodes[name].revocations for name in ("a", "c")}
        gone = nodes["b"]
        owned = set(gone.partitions)
        await gone.leave()
        nodes["b"] = await start("b")
        await until_shared(here, nodes, PARTITIONS)
        (group,) = await broker.groups()
        assert (group.state, len(group.members)) == ("Stable", 3)
        await check_account(here, await producer.stop(), {})
        assert nodes["b"].partitions == owned
        assert {name: nodes[name].revocations for name in ("a", "c")} == before
        for node in nodes.values():
            await node.leave()
        assert await here.committed(PARTITIONS) == await here.ends(PARTITIONS)
