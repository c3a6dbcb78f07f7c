"""Offsets that a simulated program commits in transactions."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from kgroup.broker import in_memory_cluster
from kgroup.group import ConsumerGroup
from kgroup.testing.memory import config_for, memory_runtime
from kgroup.testing.simulation import Outcome, history, simulate
from kgroup.testing.simulation.faults import BrokerDies, Split
from kgroup.testing.simulation.offset_producer import OffsetProducer
from kgroup.testing.simulation.partition_handlers import TRANSACTIONS
from tests.testing.simulation.samples import a_plan


def commits(outcome: Outcome) -> list[Any]:
    """The commits that coordinators answered, in transactions and without."""
    return [
        one
        for one in outcome.history
        if isinstance(one, history.RequestHandled)
        and one.api in ("offset_commit", "txn_offset_commit")
    ]


async def test_a_producer_that_is_closed_as_its_program_is_cancelled(
    autojump_clock: MockClock,
) -> None:
    """No connection stays open: a program is often cancelled in the middle of a transaction."""
    async with in_memory_cluster(random=Random(0)) as brokers:
        streams: list[trio.abc.Stream] = []

        async def open_stream(host: str, port: int) -> trio.abc.Stream:
            streams.append(await brokers.open_stream(host, port))
            return streams[-1]

        process: Any = SimpleNamespace(
            name="program",
            group_instance_id=None,
            open_stream=open_stream,
            bootstrap_servers=brokers.bootstrap_servers,
            random=Random(0),
        )
        await brokers.create_topic("topic")
        runtime = memory_runtime(brokers)
        async with ConsumerGroup(config_for(brokers), runtime=runtime) as group:
            generation = await group.next()
            (partition,) = generation.assignment
            producer = OffsetProducer(process, partition)
            assert await producer.commit(generation, 0)
            assert len(streams) > 1
            with trio.CancelScope() as scope:
                scope.cancel()
                await producer.aclose()
        for stream in streams:
            with pytest.raises(trio.ClosedResourceError):
                await stream.send_all(b"")


def test_every_batch_is_committed_in_a_transaction() -> None:
    """Without faults every commit is one of a producer, and the group's offsets are the ends."""
    outcome = simulate(a_plan(partition_handler=TRANSACTIONS))
    assert outcome.violations == ()
    assert {one.api for one in commits(outcome)} == {"txn_offset_commit"}
    (settled,) = [one for one in outcome.history if isinstance(one, history.FinalGroupState)]
    assert settled.committed == settled.ends


@pytest.mark.parametrize(
    "fault",
    [
        Split(at=40.0, seconds=8.0, process="*", broker="*"),
        BrokerDies(at=40.0, seconds=5.0, broker="b1", loading=5.0),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_a_transaction_that_fails_loses_nothing(fault: Any) -> None:
    """Its offsets are committed without one, and later ones are in transactions again."""
    outcome = simulate(
        a_plan(partition_handler=TRANSACTIONS, faults=(fault,), records_every=0.05, work=(0.0, 0.0))
    )
    assert outcome.violations == ()
    after = [one.api for one in commits(outcome) if one.at > fault.at]
    assert "offset_commit" in after
    assert after[-1] == "txn_offset_commit"
