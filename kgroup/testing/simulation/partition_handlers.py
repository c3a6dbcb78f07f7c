"""Other ways in which the program of ``kgroup simulate`` handles a partition: with seeks.

Which one a plan has is drawn from its seed; the plain one is in ``worker``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from kgroup.generation.generation import Generation
from kgroup.testing.simulation.process import Process
from kgroup.types import TopicPartition

Handler = Callable[[Process, Generation, TopicPartition], Awaitable[None]]

_SEEKS: Final = 0.05
"""How likely a program that seeks goes back after a batch."""
_BACK: Final = 10
"""By how many offsets it goes back at most."""


async def with_own_offsets(
    process: Process, generation: Generation, partition: TopicPartition
) -> None:
    """Begin where the program's own store says, which may be past what is committed."""
    stored = process.store.get(partition)
    if stored is not None:
        generation.seek(partition, stored)
        await generation.commit({partition: stored})  # so that the group's lag is true
    async for batch in generation.records(partition, max_records=20):
        for message in batch.messages:
            await process.process(message)
            done = message.offset() + 1
            process.store[partition] = max(done, process.store.get(partition, 0))
            if generation.ending.is_set() and done < batch.next_offset:
                await generation.commit({partition: done})
                return
        await generation.commit({partition: batch.next_offset})


async def with_seeks(process: Process, generation: Generation, partition: TopicPartition) -> None:
    """Begin further back, at the beginning or at the end, and go back now and then."""
    start = _elsewhere(process, generation, partition)
    if start is not None:
        generation.seek(partition, start)
        if start == process.end_offset(partition):
            process.skipped(partition, start)
            await generation.commit({partition: start})
    async for batch in generation.records(partition, max_records=20):
        for message in batch.messages:
            await process.process(message)
            done = message.offset() + 1
            if generation.ending.is_set() and done < batch.next_offset:
                await generation.commit({partition: done})
                return
        await generation.commit({partition: batch.next_offset})
        if process.random.random() < _SEEKS:
            generation.seek(partition, _back(process, batch.next_offset))


def _elsewhere(process: Process, generation: Generation, partition: TopicPartition) -> int | None:
    """Where to begin instead of at the position that was given, or None."""
    position = generation.positions.get(partition, 0)
    places = (None, None, None, _back(process, position), 0, process.end_offset(partition))
    return process.random.choice(places)


def _back(process: Process, offset: int) -> int:
    return max(0, offset - process.random.randint(1, _BACK))


PLAIN: Final = "plain"
OWN_OFFSETS: Final = "own offsets"
SEEKS: Final = "seeks"

HABITS: Final[Mapping[str, Handler]] = {OWN_OFFSETS: with_own_offsets, SEEKS: with_seeks}
"""By the name that a plan has for it."""
