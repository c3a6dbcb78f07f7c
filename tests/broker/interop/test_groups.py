"""Groups of three members of each other client: they join, leave, are killed, restart."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.interop.members import (
    KAFKA_PYTHON,
    LIBRDKAFKA,
    SESSION_MS,
    SHORT_SESSION_MS,
    Client,
    ForeignMember,
    refused,
    start_member,
    until_shared,
)
from tests.broker.interop.play import PARTITIONS, check_account, played

JAVA = pytest.mark.real_kafka


@pytest.mark.parametrize(
    "client",
    [
        pytest.param(Client(name="java"), marks=JAVA),
        pytest.param(Client(name="confluent-kafka"), marks=LIBRDKAFKA),
        Client(name="aiokafka"),
        pytest.param(
            Client(name="kafka-python", assignor="cooperative-sticky"), marks=KAFKA_PYTHON
        ),
    ],
    ids=str,
)
async def test_a_member_joins_one_is_killed_one_leaves(client: Client, tmp_path: Path) -> None:
    """Three members share; one is killed and one leaves; only the killed one's records repeat."""
    async with played() as (broker, here, producer):
        nodes: dict[str, ForeignMember] = {}

        async def start(name: str, session_timeout_ms: int = SESSION_MS) -> None:
            nodes[name] = await start_member(
                here, client, name, tmp_path / name, session_timeout_ms=session_timeout_ms
            )

        await start("a")
        await start("b", SHORT_SESSION_MS)
        await until_shared(here, nodes, PARTITIONS, client.patience)
        await start("c")
        await until_shared(here, nodes, PARTITIONS, client.patience)
        dead = nodes.pop("b")
        inherited = set(dead.partitions)
        await dead.kill()
        committed = await here.committed(PARTITIONS)
        repeatable = {number: committed[number] or 0 for number in inherited}
        await until_shared(here, nodes, PARTITIONS, client.patience)
        gone = nodes.pop("c")
        await gone.leave()
        await until_shared(here, nodes, PARTITIONS, client.patience)
        for number, offset in refused(nodes["a"], gone, dead).items():
            repeatable[number] = min(offset, repeatable.get(number, offset))
        await check_account(here, await producer.stop(), repeatable)
        await nodes["a"].leave()
        assert await here.committed(PARTITIONS) == await here.ends(PARTITIONS)
        (group,) = await broker.groups()
        assert (group.state, group.members) == ("Empty", ())


@pytest.mark.parametrize(
    "client",
    [
        pytest.param(Client(name="java", assignor="cooperative-sticky"), marks=JAVA),
        pytest.param(Client(name="confluent-kafka"), marks=LIBRDKAFKA),
        Client(name="aiokafka"),
        pytest.param(Client(name="kafka-python"), marks=KAFKA_PYTHON),
    ],
    ids=str,
)
async def test_a_static_member_restarts_without_a_rebalance(client: Client, tmp_path: Path) -> None:
    """An instance that ends and restarts gets its partitions back; no other member notices."""
    async with played() as (broker, here, producer):

        async def start(name: str) -> ForeignMember:
            return await start_member(here, client, name, tmp_path / name, instance_id=name)

        # The first one leads. A leader of kafka-python's that restarts joins again once it has
        # fetched the topic's metadata, which is a rebalance.
        nodes = {"a": await start("a")}
        await until_shared(here, nodes, PARTITIONS, client.patience)
        nodes |= {name: await start(name) for name in ("b", "c")}
        await until_shared(here, nodes, PARTITIONS, client.patience)
        before = {name: nodes[name].revocations for name in ("a", "c")}
        gone = nodes["b"]
        owned = set(gone.partitions)
        await gone.leave()
        nodes["b"] = await start("b")
        await until_shared(here, nodes, PARTITIONS, client.patience)
        (group,) = await broker.groups()
        assert (group.state, len(group.members)) == ("Stable", 3)
        await check_account(here, await producer.stop(), refused(gone, *nodes.values()))
        assert nodes["b"].partitions == owned
        assert {name: nodes[name].revocations for name in ("a", "c")} == before
        for node in nodes.values():
            await node.leave()
        assert await here.committed(PARTITIONS) == await here.ends(PARTITIONS)
