"""Programs that type checkers must accept, in their strict mode. They are checked, and never run.

If one is not accepted, mypy or pyright reports it for the whole project.
"""

# pyright: strict
# ruff: noqa: T201

from __future__ import annotations

import kgroup
from kgroup import aio, threaded
from kgroup.metrics.opentelemetry import OpenTelemetryMetrics, OpenTelemetryTraces
from kgroup.metrics.prometheus import PrometheusMetrics
from kgroup.monitors import HealthMonitor, Monitors


async def handle(generation: kgroup.Generation, batch: kgroup.Batch) -> int | None:
    """A function for `kgroup.run` that looks at everything of a record."""
    for message in batch:
        found: tuple[str, int, int, bytes | None, bytes | None] = (
            message.topic(),
            message.partition(),
            message.offset(),
            message.key(),
            message.value(),
        )
        headers: dict[str, bytes | None] = dict(message.headers() or ())
        _, milliseconds = message.timestamp()
        print(found, headers.get("trace"), milliseconds / 1000)
        if generation.ending.is_set():
            return message.offset() + 1
    return None


async def handle_record(generation: kgroup.Generation, message: kgroup.Message) -> None:
    """A function for `kgroup.retrying`."""
    print(generation.generation_id, message.value())


async def park(message: kgroup.Message, error: Exception) -> None:
    """A place to park."""
    print(message.offset(), error)


def handle_in_thread(generation: threaded.Generation, batch: kgroup.Batch) -> None:
    """A function for `kgroup.threaded.run`."""
    generation.commit({batch.partition: batch.next_offset})


async def process(
    generation: kgroup.Generation, partition: kgroup.TopicPartition, limit: int = 10
) -> None:
    """A task of a generation."""
    async for batch in generation.records(partition, max_records=limit):
        await generation.commit({batch.partition: batch.next_offset})


async def hold_generations(config: kgroup.GroupConfig) -> None:
    """A program that holds the generations itself."""
    async with kgroup.ConsumerGroup(config) as group:
        async for generation in group:
            for partition in generation.assignment:
                generation.start_soon(process, generation, partition)
                generation.start_soon(process, generation, partition, 100)


def work_in_threads(generation: threaded.Generation, partition: kgroup.TopicPartition) -> None:
    """A thread of a generation."""
    for batch in generation.records(partition):
        print(len(batch))


def hold_generations_in_threads(config: kgroup.GroupConfig) -> None:
    """The same with threads."""
    with threaded.ConsumerGroup(config) as group:
        for generation in group:
            for partition in generation.assignment:
                generation.start(work_in_threads, generation, partition)


async def handle_in_asyncio(generation: aio.Generation, batch: kgroup.Batch) -> int | None:
    """A function for `kgroup.aio.run`."""
    await generation.commit({batch.partition: batch.next_offset})
    return batch.next_offset if generation.ending.is_set() else None


async def work_in_asyncio(
    generation: aio.Generation, partition: kgroup.TopicPartition, limit: int = 10
) -> None:
    """A task of asyncio in a generation."""
    async for batch in generation.records(partition, max_records=limit):
        print(len(batch))


async def hold_generations_in_asyncio(config: kgroup.GroupConfig) -> int:
    """The same on asyncio; the block swallows nothing, so that nothing follows its return."""
    async with aio.ConsumerGroup(config) as group:
        async for generation in group:
            with generation.scope():
                for partition in generation.assignment:
                    generation.start_soon(work_in_asyncio, generation, partition)
                    generation.start_soon(work_in_asyncio, generation, partition, 100)
            await generation.wait_ended()
        return 0


async def retry_in_asyncio(generation: aio.Generation, message: kgroup.Message) -> None:
    """A function for `kgroup.aio.retrying`."""
    print(generation.generation_id, message.value())


def run_workers(config: kgroup.GroupConfig) -> None:
    """Workers in few lines."""
    kgroup.run(config, handle)
    kgroup.run(config, kgroup.retrying(handle_record, attempts=3, park=park))
    threaded.run(config, handle_in_thread, threads=4)
    aio.run(config, handle_in_asyncio)
    aio.run(config, aio.retrying(retry_in_asyncio, attempts=3, park=park))


def run_monitored_workers(config: kgroup.GroupConfig, monitor: HealthMonitor) -> None:
    """Workers with metrics, traces and a health check."""
    traces = OpenTelemetryTraces()
    monitors = Monitors(PrometheusMetrics(), OpenTelemetryMetrics(), traces, monitor, print)
    kgroup.run(config, traces.traced(handle), on_event=monitors)
    threaded.run(config, traces.traced(handle_in_thread), on_event=monitors)
    with threaded.ConsumerGroup(config, on_event=monitors) as group:
        ready: bool = group.health(stuck_after=60).ready
        lag: dict[kgroup.TopicPartition, int | None] = dict(next(group).lag())
        print(ready, lag, monitor.health().as_dict())


def settings(policy: str, protocol: str, assignors: list[str]) -> list[kgroup.GroupConfig]:
    """Settings by literals, by texts that the program has read, and by members of enums."""
    servers, topics = "localhost:9092", ["orders"]
    return [
        kgroup.GroupConfig(
            bootstrap_servers=servers,
            group_id="g",
            topics=topics,
            auto_offset_reset="latest",
            isolation_level="read_committed",
            assignors=["sticky"],
            security=kgroup.Security(protocol="SSL", minimum_version="TLSv1.3"),
        ),
        kgroup.GroupConfig(
            bootstrap_servers=servers,
            group_id="g",
            topics=topics,
            auto_offset_reset=policy,
            isolation_level=kgroup.IsolationLevel.READ_COMMITTED,
            assignors=assignors,
            security=kgroup.Security(protocol=protocol),
        ),
    ]
