"""One group of several clients: kgroup, confluent-kafka and aiokafka share a topic.

The member that joins first leads: it computes the assignment for the others, by the same rules.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise

import pytest

from tests.behaviour.harness import Harness, Member, SteadyProducer, harness
from tests.behaviour.peers import AiokafkaPeer, ConfluentPeer, Node
from tests.brokers import Kafka

PARTITIONS = 6
KINDS = ("kgroup", "confluent", "aiokafka")


def start(here: Harness, kind: str, strategy: str) -> Node:
    """Start a member of one kind."""
    if kind == "kgroup":
        return here.start(kind, assignors=[strategy])
    peer = {"confluent": ConfluentPeer, "aiokafka": AiokafkaPeer}[kind](here, kind, strategy)
    peer.start()
    return peer


async def until_shared(here: Harness, nodes: Mapping[str, Node]) -> None:
    """Wait until these members share all partitions, and each has processed some."""
    share = PARTITIONS // len(nodes)
    await here.processed.until(
        lambda: [node.owned() for node in nodes.values()] == [share] * len(nodes),
        f"not shared by {list(nodes)}",
    )
    begun = len(here.processed.entries)
    await here.processed.until(
        lambda: {entry.member for entry in here.processed.entries[begun:]} == set(nodes),
        f"not all of {list(nodes)} process",
    )


async def check_account(here: Harness, nodes: Mapping[str, Node], produced: int) -> None:
    """Check that every record was processed once and in order, and all is committed."""
    everything = set(map(str, range(produced)))
    try:
        await here.processed.until(
            lambda: everything.issubset(here.processed.values()), "not everything was processed"
        )
    except AssertionError as error:
        missing = sorted(map(int, everything.difference(here.processed.values())))
        error.add_note(f"missing (number modulo {PARTITIONS} is the partition): {missing}")
        error.add_note(f"owned: { ({kind: node.owned() for kind, node in nodes.items()}) }")
        error.add_note(f"committed: {await here.committed(PARTITIONS)}")
        raise
    assert not here.processed.repeated()
    for partition in here.partitions(PARTITIONS):
        assert all(before < later for before, later in pairwise(here.processed.offsets(partition)))


@pytest.mark.parametrize("strategy", ["range", "roundrobin"])
@pytest.mark.parametrize("first", KINDS)
async def test_one_group_of_three_clients(kafka: Kafka, first: str, strategy: str) -> None:
    """Whichever member leads, all three own their share, and every record is processed once."""
    async with harness(kafka) as here:
        await here.create(PARTITIONS)
        producer = SteadyProducer(here, PARTITIONS, per_second=200)
        producer.start()
        nodes = {first: start(here, first, strategy)}
        await until_shared(here, nodes)
        for kind in KINDS:
            if kind not in nodes:
                nodes[kind] = start(here, kind, strategy)
        await until_shared(here, nodes)
        ours = nodes["kgroup"]
        assert isinstance(ours, Member)
        assert ours.generation.leader is (first == "kgroup")
        assert ours.generation.assignor == strategy
        await check_account(here, nodes, await producer.stop())
        for node in nodes.values():
            await node.leave()
        assert await here.committed(PARTITIONS) == await here.ends(PARTITIONS)


async def test_rolling_restarts(kafka: Kafka) -> None:
    """Each client in turn leaves and comes back while the others continue."""
    async with harness(kafka) as here:
        await here.create(PARTITIONS)
        producer = SteadyProducer(here, PARTITIONS, per_second=200)
        producer.start()
        nodes = {kind: start(here, kind, "range") for kind in KINDS}
        await until_shared(here, nodes)
        for kind in KINDS:
            await nodes.pop(kind).leave()
            await until_shared(here, nodes)
            nodes[kind] = start(here, kind, "range")
            await until_shared(here, nodes)
        await check_account(here, nodes, await producer.stop())
        for node in nodes.values():
            await node.leave()
        assert await here.committed(PARTITIONS) == await here.ends(PARTITIONS)
