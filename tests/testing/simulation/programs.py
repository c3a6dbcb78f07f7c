"""Programs that other processes can import; they do not need pytest."""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterator
from contextlib import contextmanager

import trio

from kgroup.group import ConsumerGroup
from kgroup.testing.simulation import Process, default_worker
from kgroup.types import TopicPartition


async def lossy(process: Process) -> None:
    """A program that skips the first record of every batch."""
    async with ConsumerGroup(process.config()) as group:
        async for generation in group:
            async for batch in generation.records():
                for message in batch.messages[1:]:
                    process.processed(message)
                await generation.commit({batch.partition: batch.next_offset})


async def deadly(process: Process) -> None:
    """A program that ends its whole process, unless that is the test's own."""
    assert multiprocessing.parent_process() is not None
    os._exit(3)


async def lossy_elsewhere(process: Process) -> None:
    """A program that depends on more than its seed."""
    own = multiprocessing.parent_process() is None
    await (default_worker(process) if own else lossy(process))


def document(partition: TopicPartition, number: int) -> bytes:
    """A value that is no plain number."""
    return json.dumps({"partition": partition.partition, "number": number}).encode()


@contextmanager
def numbers() -> Iterator[list[int]]:
    """A store of one run."""
    yield []


async def json_reader(process: Process) -> None:
    """A program that reads ``document`` and needs the store ``numbers``."""
    assert isinstance(process.store, list), "no list"
    async with ConsumerGroup(process.config()) as group:
        async for generation in group:
            async for batch in generation.records():
                for message in batch:
                    process.store.append(json.loads(message.value() or b"")["number"])
                    process.processed(message)
                await generation.commit({batch.partition: batch.next_offset})


async def endless(process: Process) -> None:
    """A program that computes without end."""
    async with ConsumerGroup(process.config()):
        while True:
            pass


async def shielded(process: Process) -> None:
    """A program that no cancellation ends."""
    async with ConsumerGroup(process.config()):
        with trio.CancelScope(shield=True):
            await trio.sleep_forever()
