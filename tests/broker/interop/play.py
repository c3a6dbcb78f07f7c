"""A broker in the test's process, a topic and steady records, for groups of other clients."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Final

from kgroup.broker import EmbeddedBroker, serve
from tests.behaviour.harness import Harness, SteadyProducer, harness
from tests.brokers import EMBEDDED, Kafka

PARTITIONS: Final = 6
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 100,
}


@asynccontextmanager
async def played() -> AsyncIterator[tuple[EmbeddedBroker, Harness, SteadyProducer]]:
    """A broker in this process, with a topic, members on it, and a producer."""
    async with (
        serve(settings=SETTINGS) as broker,
        harness(Kafka(EMBEDDED, broker.bootstrap_servers)) as here,
    ):
        await here.create(PARTITIONS)
        producer = SteadyProducer(here, PARTITIONS, per_second=100)
        producer.start()
        yield broker, here, producer


async def check_account(here: Harness, produced: int, repeatable: Mapping[int, int]) -> None:
    """Every record is processed in order, repeated only from the given offsets on, and committed.

    Members are asked to leave after this: a foreign member that leaves while the group rebalances
    for another one has its last commit refused, and then none may be left to repeat its records.
    """
    wanted = set(map(str, range(produced)))

    def missing() -> str:
        lost = sorted(wanted - set(here.processed.values()), key=int)
        last = {
            entry.partition.partition: f"{entry.member} at {entry.offset}"
            for entry in here.processed.entries
        }
        return f"records {lost} are missing; the last ones processed: {last}"

    await here.processed.until(lambda: wanted <= set(here.processed.values()), missing)
    for partition in here.partitions(PARTITIONS):
        offsets = here.processed.offsets_by_time(partition)
        for before, later in pairwise(offsets):
            if partition.partition in repeatable:
                assert later == before + 1 or repeatable[partition.partition] <= later <= before
            else:
                assert later == before + 1
    await here.until_committed(PARTITIONS)
