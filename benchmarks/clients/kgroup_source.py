"""kgroup's record source alone, without a group: what the layers above it cost."""

from __future__ import annotations

import sys

import trio

from benchmarks.clients.job import Ended, Job, Note
from benchmarks.clients.kgroup_client import config_of
from kgroup.records.librdkafka import LibrdkafkaSource
from kgroup.types import TopicPartition


def run(job: Job, note: Note, ended: Ended) -> None:
    """Read all partitions in one task."""
    partitions = [TopicPartition(job.topic, number) for number in range(job.partitions)]

    async def read() -> None:
        config = config_of(job, job.group)
        async with LibrdkafkaSource(config, lambda *why: print(*why, file=sys.stderr)) as source:
            source.assign(1, dict.fromkeys(partitions, 0))
            source.open(1, partitions)
            while not ended:
                batch = await source.receive(1, partitions, job.batch)
                note(len(batch), ((one.partition(), one.offset(), one.value()) for one in batch))

    trio.run(read)
