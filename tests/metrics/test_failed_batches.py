"""Batches whose function raises are measured, on trio, in threads and on asyncio."""

from __future__ import annotations

import asyncio
from typing import NoReturn

import prometheus_client
import pytest
import trio
from trio.testing import MockClock

import kgroup
from kgroup import aio, threaded
from kgroup.group import ConsumerGroup
from kgroup.interfaces import Batch
from kgroup.metrics.prometheus import PrometheusMetrics
from kgroup.testing.memory import memory_runtime
from tests.aio.test_group import Here as AsyncioHarness
from tests.aio.test_group import in_asyncio
from tests.brokers import EMBEDDED, Kafka
from tests.group.harness import P0, harness
from tests.threaded.harness import Harness as ThreadedHarness


class Measured:
    """Metrics of a group's batches."""

    def __init__(self) -> None:
        self._registry = prometheus_client.CollectorRegistry()
        self.metrics = PrometheusMetrics(self._registry, now=lambda: 0.0)

    def outcomes(self) -> dict[str, float]:
        """How many batches have had each outcome."""
        return {
            sample.labels["outcome"]: sample.value
            for family in self._registry.collect()
            for sample in family.samples
            if sample.name == "kgroup_batch_seconds_count"
        }

    def seconds(self, outcome: str) -> float | None:
        """The time of the batches with an outcome."""
        labels = {"group": "group", "topic": "topic", "outcome": outcome}
        return self._registry.get_sample_value("kgroup_batch_seconds_sum", labels)


def fail(batch: Batch) -> None:
    """Process the first batch; the second one cannot be."""
    if batch.start_offset:
        raise ValueError("bad")


async def test_on_trio(autojump_clock: MockClock) -> None:
    """The batch of a function that raises counts as failed, with the time until then."""
    measured = Measured()

    async def handle(_: object, batch: Batch) -> None:
        await trio.sleep(2)
        fail(batch)

    async with harness() as here:
        await here.append(4)
        runtime = memory_runtime(here.broker)
        with pytest.raises(ExceptionGroup):
            async with ConsumerGroup(
                here.config(), runtime=runtime, on_event=measured.metrics
            ) as group:
                await kgroup.serve(group, handle, max_records=2)
    assert measured.outcomes() == {"processed": 1, "failed": 1}
    assert measured.seconds("failed") == pytest.approx(2, abs=0.1)


async def test_a_batch_that_is_cancelled_at_the_deadline(autojump_clock: MockClock) -> None:
    """A drain that cuts a function short is no failure of the function."""
    measured = Measured()

    async def handle(_: object, batch: Batch) -> None:
        group.shutdown(promptly=True)
        await trio.sleep_forever()

    async with harness() as here:
        await here.append(4)
        runtime = memory_runtime(here.broker)
        async with ConsumerGroup(
            here.config(), runtime=runtime, on_event=measured.metrics
        ) as group:
            await kgroup.serve(group, handle)
    assert measured.outcomes() == {"cancelled": 1}


async def test_in_a_programs_own_loop(autojump_clock: MockClock) -> None:
    """A failure within `processing` counts; without an exception the block changes nothing."""
    measured = Measured()
    async with harness() as here:
        await here.append(4)
        runtime = memory_runtime(here.broker)
        async with ConsumerGroup(
            here.config(), runtime=runtime, on_event=measured.metrics
        ) as group:
            records = (await group.next()).records(P0, max_records=2)
            batch = await anext(records)
            with records.processing(batch):
                await trio.sleep(2)
            await trio.sleep(3)
            batch = await anext(records)
            with pytest.raises(ValueError, match="bad"), records.processing(batch):
                fail(batch)
    assert measured.outcomes() == {"processed": 1, "failed": 1}
    assert measured.seconds("processed") == pytest.approx(5, abs=0.1)


@pytest.mark.parametrize("threads", [None, 1])
@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
def test_in_threads(kafka: Kafka, threads: int | None) -> None:
    """It is the same with a thread for each partition and in a pool."""
    measured, here = Measured(), ThreadedHarness(kafka)
    here.create(1, 4)

    def handle(_: object, batch: Batch) -> NoReturn:
        raise ValueError(batch)

    group = threaded.ConsumerGroup(here.config(), on_event=measured.metrics)
    with pytest.raises(ExceptionGroup), group:
        threaded.serve(group, handle, threads=threads)
    assert measured.outcomes() == {"failed": 1}


@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
def test_on_asyncio(kafka: Kafka) -> None:
    """It is the same on asyncio."""
    measured, here = Measured(), AsyncioHarness(kafka, records=4)

    async def handle(_: object, batch: Batch) -> None:
        await asyncio.sleep(0)
        raise ValueError(batch)

    async def main() -> None:
        group = aio.ConsumerGroup(here.harness.config(), on_event=measured.metrics)
        with pytest.raises(ExceptionGroup):
            async with group:
                await aio.serve(group, handle)

    in_asyncio(main)
    assert measured.outcomes() == {"failed": 1}
