"""The program that ``kgroup simulate`` runs: one task per partition, at-least-once."""

from __future__ import annotations

from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.testing.simulation.partition_handlers import PARTITION_HANDLERS, process_until_end
from kgroup.testing.simulation.process import Process
from kgroup.types import TopicPartition


async def default_worker(process: Process) -> None:
    """Process every record, then commit its batch; some plans have another handler for that."""
    handle = PARTITION_HANDLERS.get(process.partition_handler, _handle)
    async with ConsumerGroup(process.config()) as group:
        async for generation in group:
            for partition in generation.assignment:
                generation.start_soon(handle, process, generation, partition)


async def _handle(process: Process, generation: Generation, partition: TopicPartition) -> None:
    async for batch in generation.records(partition, max_records=20):
        done = await process_until_end(process, generation, batch)
        await generation.commit({partition: done})
        if done < batch.next_offset:
            return
