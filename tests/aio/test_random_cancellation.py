"""Time-outs at random moments, in every call of a handler. On the embedded broker."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict

import pytest

from kgroup import aio
from kgroup.types import TopicPartition
from tests.aio.test_group import Here, in_asyncio
from tests.brokers import EMBEDDED, Kafka

PARTITIONS, RECORDS = 3, 400


@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
@pytest.mark.parametrize("seed", range(2))
def test_time_outs_lose_and_repeat_nothing(kafka: Kafka, seed: int) -> None:
    """Batches follow each other, and a commit that ended in a time-out can be called again."""
    here = Here(kafka, PARTITIONS, RECORDS)
    moments = random.Random(seed)
    found: dict[TopicPartition, list[int | None]] = defaultdict(list)
    cut_short = 0

    async def handle(
        group: aio.ConsumerGroup, generation: aio.Generation, partition: TopicPartition
    ) -> None:
        nonlocal cut_short
        records = generation.records(partition, max_records=5)
        while True:
            try:
                async with asyncio.timeout(moments.random() * 0.003):
                    batch = await anext(records)
            except TimeoutError:
                cut_short += 1
                continue
            except StopAsyncIteration:
                return
            found[partition] += [message.offset() for message in batch]
            try:
                async with asyncio.timeout(moments.random() * 0.003):
                    await generation.commit({partition: batch.next_offset})
            except TimeoutError:
                cut_short += 1
                await generation.commit({partition: batch.next_offset})
            if sum(map(len, found.values())) == PARTITIONS * RECORDS:
                group.shutdown(promptly=True)

    async def main() -> None:
        async with here.group() as group:
            async for generation in group:
                for partition in generation.assignment:
                    generation.start_soon(handle, group, generation, partition)

    in_asyncio(main)
    assert cut_short
    assert set(map(tuple, found.values())) == {tuple(range(RECORDS))}
    committed = [here.harness.committed(number) for number in range(PARTITIONS)]
    assert committed == [RECORDS] * PARTITIONS
