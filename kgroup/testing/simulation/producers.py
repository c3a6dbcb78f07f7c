"""Writes the records of a simulation: one by one, or in transactions that take a while.

A producer stands beside the network and never fails by itself: what it does is to leave
transactions open, to commit or abort them late, and now and then to forget one, which the
coordinator aborts when its time is over.
"""

from __future__ import annotations

from random import Random
from typing import Final, final

import attrs
import trio

from kgroup.broker import EmbeddedCluster
from kgroup.broker.request_error import RequestError
from kgroup.testing.simulation.plan import Plan
from kgroup.testing.simulation.topics import SimulatedTopics
from kgroup.types import TopicPartition

_PRODUCERS: Final = 3
"""Transactions that are open at a time, at most."""
_OPEN: Final = (0.0, 0.5, 8.0)
"""Seconds for which one of them is open at most."""
_TIMEOUT: Final = 20.0
"""Seconds after which the coordinator aborts one that was forgotten."""
_ENDS: Final = ("commit", "commit", "commit", "abort", "forget")
_AGAIN: Final = 1.0
"""Seconds after which a coordinator that is away is asked again."""


@final
@attrs.define(eq=False)
class Producer:
    """A transactional producer, in its current epoch.

    Attributes:
        transactional_id: its own.
        producer_id: given by the coordinator.
        epoch: a new one for each transaction.
        sequences: of the next record in each partition.
    """

    transactional_id: str
    producer_id: int = -1
    epoch: int = -1
    sequences: dict[TopicPartition, int] = attrs.field(factory=dict)


@final
class RecordWriter:
    """All that is written in one simulation."""

    def __init__(
        self, plan: Plan, chance: Random, topics: SimulatedTopics, cluster: EmbeddedCluster
    ) -> None:
        self._plan = plan
        self._chance = chance
        self._apart = Random(f"{plan.seed} transactions")
        self._topics = topics
        self._cluster = cluster
        self._idle = [Producer(f"writer-{number}") for number in range(_PRODUCERS)]

    async def run(self) -> None:
        """Write until the plan's time is over, and end every transaction."""
        plan, chance = self._plan, self._chance
        names = sorted(plan.topics)
        async with trio.open_nursery() as nursery:
            while True:
                pause = chance.expovariate(1 / plan.records_every)
                await trio.sleep_until(min(trio.current_time() + pause, plan.duration))
                if trio.current_time() >= plan.duration:
                    return
                topic = chance.choice(names)
                if not (partitions := self._topics.partitions(topic)):
                    continue
                partition = TopicPartition(topic, chance.randrange(partitions))
                count = chance.randint(1, plan.records_at_once)
                if self._idle and self._apart.random() < plan.transactional:
                    nursery.start_soon(self._write_in_transaction, partition, count)
                else:
                    self._topics.append(partition, count)

    async def _write_in_transaction(self, partition: TopicPartition, count: int) -> None:
        producer = self._idle.pop(0)
        how = self._apart.choice(_ENDS)
        open_for = self._apart.uniform(0.0, self._apart.choice(_OPEN))
        if self._begin(producer, partition):
            self._topics.append(partition, count, producer)
            await trio.sleep(open_for)
            if self._topics.partitions(partition.topic) > partition.partition:
                self._topics.append(partition, 1, producer)
            if how == "forget":
                await trio.sleep(_TIMEOUT)
            else:
                await self._end(producer, committed=how == "commit")
        else:
            await trio.lowlevel.checkpoint()
        self._idle.append(producer)

    def _begin(self, producer: Producer, partition: TopicPartition) -> bool:
        """Begin a transaction; False if nobody coordinates it now."""
        node = self._cluster.cluster.transaction_coordinator_of(producer.transactional_id)
        if node is None:
            return False
        try:
            producer.producer_id, producer.epoch = node.transactions.init_producer(
                producer.transactional_id, _TIMEOUT
            )
            node.transactions.add_partitions(
                trio.current_time(),
                producer.transactional_id,
                producer.producer_id,
                producer.epoch,
                [partition],
            )
        except RequestError:  # one that was forgotten is aborted first
            return False
        producer.sequences.clear()
        node.transaction_alarm.reschedule()
        return True

    async def _end(self, producer: Producer, *, committed: bool) -> None:
        """End a transaction, however long its coordinator is away."""
        while True:
            await trio.lowlevel.checkpoint()
            node = self._cluster.cluster.transaction_coordinator_of(producer.transactional_id)
            if node is not None:
                break
            await trio.sleep(_AGAIN)
        try:
            node.transactions.end(
                producer.transactional_id,
                producer.producer_id,
                producer.epoch,
                committed=committed,
            )
        except RequestError:  # it took too long, and was aborted
            return
