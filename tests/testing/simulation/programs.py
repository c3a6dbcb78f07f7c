"""Programs that other processes can import; they need nothing of pytest."""

from __future__ import annotations

import multiprocessing
import os

from kgroup.group import ConsumerGroup
from kgroup.testing.simulation import Process, worker


async def lossy(process: Process) -> None:
    """A program that leaves the first record of every batch out."""
    async with ConsumerGroup(process.config()) as group:
        async for generation in group:
            async for batch in generation.records():
                for message in batch.messages[1:]:
                    process.processed(message)
                await generation.commit({batch.partition: batch.next_offset})


async def deadly(process: Process) -> None:
    """A program that takes its whole process with it, if that is not the test's own."""
    assert multiprocessing.parent_process() is not None
    os._exit(3)


async def lossy_elsewhere(process: Process) -> None:
    """A program that depends on more than its seed."""
    own = multiprocessing.parent_process() is None
    await (worker(process) if own else lossy(process))
