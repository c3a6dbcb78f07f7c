"""Writes the records of a simulation: directly, or in transactions that stay open for a while.

Producers append to the brokers' logs without the network, so that no write fails. They keep
transactions open, commit or abort them late, and now and then abandon one, which the transaction
coordinator aborts when its time-out is over.
"""

from __future__ import annotations

from random import Random
from typing import Final, final

import trio

from kgroup.broker import EmbeddedCluster
from kgroup.broker.request_error import RequestError
from kgroup.testing.simulation.plan import Plan
from kgroup.testing.simulation.topics import Producer, SimulatedTopics
from kgroup.types import TopicPartition

_PRODUCERS: Final = 3
"""The most transactions that are open at a time."""
_OPEN: Final = (0.0, 0.5, 8.0)
"""The most seconds that one of them stays open; one of these is chosen."""
_TIMEOUT: Final = 20.0
"""Seconds after which the coordinator aborts an abandoned transaction."""
_ENDS: Final = ("commit", "commit", "commit", "abort", "abandon")
_RETRY_BACKOFF: Final = 1.0
"""Seconds between attempts to reach a coordinator that is away."""


@final
class RecordWriter:
    """Writes all records of one simulation."""

    def __init__(
        self, plan: Plan, random: Random, topics: SimulatedTopics, cluster: EmbeddedCluster
    ) -> None:
        self._plan = plan
        self._random = random
        self._transactions = Random(f"{plan.seed} transactions")
        self._topics = topics
        self._cluster = cluster
        self._idle = [Producer(f"writer-{number}") for number in range(_PRODUCERS)]

    async def run(self) -> None:
        """Write until the plan's duration is over, and end every transaction."""
        plan, random = self._plan, self._random
        names = sorted(plan.topics)
        async with trio.open_nursery() as nursery:
            while True:
                pause = random.expovariate(1 / plan.records_every)
                await trio.sleep_until(min(trio.current_time() + pause, plan.duration))
                if trio.current_time() >= plan.duration:
                    return
                topic = random.choice(names)
                if not (partitions := self._topics.partitions(topic)):
                    continue
                partition = TopicPartition(topic, random.randrange(partitions))
                count = random.randint(1, plan.records_at_once)
                if self._idle and self._transactions.random() < plan.transactional:
                    nursery.start_soon(self._write_in_transaction, partition, count)
                else:
                    self._topics.append(partition, count)

    async def _write_in_transaction(self, partition: TopicPartition, count: int) -> None:
        producer = self._idle.pop(0)
        end = self._transactions.choice(_ENDS)
        open_for = self._transactions.uniform(0.0, self._transactions.choice(_OPEN))
        if self._begin(producer, partition):
            self._topics.append(partition, count, producer)
            await trio.sleep(open_for)
            if self._topics.partitions(partition.topic) > partition.partition:
                self._topics.append(partition, 1, producer)
            if end == "abandon":
                await trio.sleep(_TIMEOUT)
            else:
                await self._end(producer, committed=end == "commit")
        else:
            await trio.lowlevel.checkpoint()
        self._idle.append(producer)

    def _begin(self, producer: Producer, partition: TopicPartition) -> bool:
        """Begin a transaction; False if there is no transaction coordinator now."""
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
        except RequestError:  # the abandoned transaction before it has to be aborted first
            return False
        producer.sequences.clear()
        node.transaction_alarm.reschedule()
        return True

    async def _end(self, producer: Producer, *, committed: bool) -> None:
        """End a transaction; wait for its coordinator as long as it is away."""
        while True:
            await trio.lowlevel.checkpoint()
            node = self._cluster.cluster.transaction_coordinator_of(producer.transactional_id)
            if node is not None:
                break
            await trio.sleep(_RETRY_BACKOFF)
        try:
            node.transactions.end(
                producer.transactional_id,
                producer.producer_id,
                producer.epoch,
                committed=committed,
            )
        except RequestError:  # its time-out was over, and the coordinator has aborted it
            return
