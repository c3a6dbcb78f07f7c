"""kgroup, as its README has it: a task or a thread a partition, or one stream for all of them."""

from __future__ import annotations

import time
from typing import Any

import trio

from benchmarks.clients.job import Ended, Job, Note, in_threads
from kgroup import ConsumerGroup, Generation, GroupConfig, TopicPartition, threaded


def config_of(job: Job, group: str) -> GroupConfig:
    """The settings of a member."""
    settings: dict[str, Any] = {"assignors": job.assignors.split(",")} if job.assignors else {}
    if job.heartbeat:
        settings |= {"session_timeout": job.session, "heartbeat_interval": job.heartbeat}
    if job.refresh:
        settings["partition_watch_interval"] = job.refresh
    connection: Any = job.properties or {"bootstrap.servers": job.servers}
    return GroupConfig.from_properties(connection, group_id=group, topics=[job.topic], **settings)


def tasks(job: Job, note: Note, ended: Ended) -> None:
    """A task for each partition."""
    _run(job, note, ended, each=True)


def batches(job: Job, note: Note, ended: Ended) -> None:
    """One stream for all partitions."""
    _run(job, note, ended, each=False)


def _run(job: Job, note: Note, ended: Ended, *, each: bool) -> None:
    async def handle(generation: Generation, partition: TopicPartition | None) -> None:
        async for batch in generation.records(partition, max_records=job.batch):
            if job.work:
                await trio.sleep(job.work)
            note(len(batch), ((one.partition(), one.offset(), one.value()) for one in batch))
            if job.commit:
                await generation.commit({batch.partition: batch.next_offset})

    async def member(group_id: str) -> None:
        async with ConsumerGroup(config_of(job, group_id)) as group:
            token = trio.lowlevel.current_trio_token()
            ended.call(lambda: token.run_sync_soon(group.shutdown))
            async for generation in group:
                note(0, ())
                for partition in generation.assignment if each else [None]:
                    generation.start_soon(handle, generation, partition)

    async def main() -> None:
        async with trio.open_nursery() as nursery:
            for group_id in job.groups():
                nursery.start_soon(member, group_id)

    trio.run(main)


def threads(job: Job, note: Note, ended: Ended) -> None:
    """A thread for each partition."""

    def handle(generation: threaded.Generation, partition: TopicPartition) -> None:
        for batch in generation.records(partition, max_records=job.batch):
            if job.work:
                time.sleep(job.work)
            note(len(batch), ((one.partition(), one.offset(), one.value()) for one in batch))
            if job.commit:
                generation.commit({batch.partition: batch.next_offset})

    def member(group_id: str) -> None:
        with threaded.ConsumerGroup(config_of(job, group_id)) as group:
            ended.call(group.shutdown)
            for generation in group:
                note(0, ())
                for partition in generation.assignment:
                    generation.start(handle, generation, partition)

    in_threads(member, job.groups())
