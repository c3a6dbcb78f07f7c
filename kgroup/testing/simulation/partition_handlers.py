"""Partition handlers of ``kgroup simulate``'s own program: with seeks, workers and transactions.

The plan's seed chooses the handler; the plain one is in ``default_program``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from kgroup.generation.generation import Generation
from kgroup.interfaces import Batch
from kgroup.testing.simulation.offset_producer import OffsetProducer
from kgroup.testing.simulation.process import Process
from kgroup.types import TopicPartition
from kgroup.worker import partition_worker

PartitionHandler = Callable[[Process, Generation, TopicPartition], Awaitable[None]]

_SEEKS: Final = 0.05
"""The probability that a program that seeks goes back after a batch."""
_LEAVES: Final = 0.02
"""The probability that a worker's function leaves the rest of its batch, after each record."""
_MOST_BACK: Final = 10
"""The most offsets that it goes back."""


async def process_until_end(process: Process, generation: Generation, batch: Batch) -> int:
    """Process a batch until the generation begins to end; the offset to commit.

    It is before the batch's ``next_offset`` if records are left.
    """
    for number, message in enumerate(batch, 1):
        await process.process(message)
        if generation.ending.is_set() and number < len(batch):
            return message.offset() + 1
    return batch.next_offset


async def with_own_offsets(
    process: Process, generation: Generation, partition: TopicPartition
) -> None:
    """Start at the offset in the program's own store, which may be past the committed one."""
    stored = process.store.get(partition)
    if stored is not None:
        generation.seek(partition, stored)
        await generation.commit({partition: stored})  # so that the group's lag is true
    async for batch in generation.records(partition, max_records=20):
        for message in batch:
            await process.process(message)
            done = message.offset() + 1
            process.store[partition] = max(done, process.store.get(partition, 0))
            if generation.ending.is_set() and done < batch.next_offset:
                await generation.commit({partition: done})
                return
        await generation.commit({partition: batch.next_offset})


async def with_seeks(process: Process, generation: Generation, partition: TopicPartition) -> None:
    """Start further back, at the beginning or at the end, and go back now and then."""
    start = _elsewhere(process, generation, partition)
    if start is not None:
        generation.seek(partition, start)
        if start == process.end_offset(partition):
            process.skipped(partition, start)
            await generation.commit({partition: start})
    async for batch in generation.records(partition, max_records=20):
        for message in batch:
            await process.process(message)
            done = message.offset() + 1
            if generation.ending.is_set() and done < batch.next_offset:
                await generation.commit({partition: done})
                return
        await generation.commit({partition: batch.next_offset})
        if process.random.random() < _SEEKS:
            generation.seek(partition, _back(process, batch.next_offset))


async def by_a_worker(process: Process, generation: Generation, partition: TopicPartition) -> None:
    """What ``kgroup.run`` runs; its function leaves part of a batch, or goes back, now and then."""

    async def handle(generation: Generation, batch: Batch) -> int | None:
        for message in batch:
            await process.process(message)
            done = (message.offset() or 0) + 1
            if process.random.random() < _SEEKS:
                generation.seek(partition, _back(process, done))
                return None
            if generation.ending.is_set() or process.random.random() < _LEAVES:
                return done
        return None

    await partition_worker(handle, 20, commit=True)(generation, partition)


async def with_transactions(
    process: Process, generation: Generation, partition: TopicPartition
) -> None:
    """Commit each batch in a transaction, and outside of one if that fails."""
    producer = OffsetProducer(process, partition)
    try:
        async for batch in generation.records(partition, max_records=20):
            done = await process_until_end(process, generation, batch)
            if not await producer.commit(generation, done):
                await generation.commit({partition: done})
            if done < batch.next_offset:
                return
    finally:
        await producer.aclose()


def _elsewhere(process: Process, generation: Generation, partition: TopicPartition) -> int | None:
    """Where to start instead of at the given position; None to start there."""
    position = generation.start_offsets.get(partition, 0)
    places = (None, None, None, _back(process, position), 0, process.end_offset(partition))
    return process.random.choice(places)


def _back(process: Process, offset: int) -> int:
    return max(0, offset - process.random.randint(1, _MOST_BACK))


PLAIN: Final = "plain"
OWN_OFFSETS: Final = "own offsets"
SEEKS: Final = "seeks"
WORKER: Final = "worker"
TRANSACTIONS: Final = "transactions"

PARTITION_HANDLERS: Final[Mapping[str, PartitionHandler]] = {
    OWN_OFFSETS: with_own_offsets,
    SEEKS: with_seeks,
    WORKER: by_a_worker,
    TRANSACTIONS: with_transactions,
}
"""By the plan's name for it."""
