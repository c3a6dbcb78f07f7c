"""Records are counted when a program of threads or of asyncio has them: some batches turn back."""

from __future__ import annotations

import asyncio
import threading
from functools import partial

import prometheus_client
import pytest

from kgroup import aio, threaded
from kgroup.generation.record_stream import RecordStream
from kgroup.interfaces import Batch
from kgroup.metrics.prometheus import PrometheusMetrics
from tests.aio.test_group import Here as AsyncioHarness
from tests.aio.test_group import in_asyncio
from tests.brokers import EMBEDDED, Kafka
from tests.threaded.harness import SOON
from tests.threaded.harness import Harness as ThreadedHarness


class Counted:
    """Metrics, and the records that they have counted."""

    def __init__(self) -> None:
        self._registry = prometheus_client.CollectorRegistry()
        self.metrics = PrometheusMetrics(self._registry)

    @property
    def records(self) -> float:
        """How many of all partitions were handed out."""
        return sum(
            sample.value
            for family in self._registry.collect()
            for sample in family.samples
            if sample.name == "kgroup_records_total"
        )


@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
def test_a_batch_that_turns_back_on_asyncio(kafka: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """It arrives after a pause, and counts only when it is handed out after that."""
    counted, here = Counted(), AsyncioHarness(kafka, records=5)
    on_its_way = threading.Event()
    give = RecordStream._give

    def give_noted(stream: RecordStream, batch: Batch) -> None:
        give(stream, batch)
        on_its_way.set()

    monkeypatch.setattr(RecordStream, "_give", give_noted)

    async def main() -> None:
        config = here.harness.config()
        async with aio.ConsumerGroup(config, on_event=counted.metrics) as group:
            generation = await group.next()
            records = generation.records(max_records=2)
            reading = asyncio.create_task(anext(records))
            await asyncio.sleep(0)
            assert on_its_way.wait(SOON)  # which keeps asyncio's loop busy meanwhile
            generation.pause()
            await asyncio.sleep(0.02)
            assert not reading.done()
            assert counted.records == 0
            generation.resume()
            assert len(await reading) == counted.records == 2
            assert [len(await anext(records)), counted.records] == [2, 4]

    in_asyncio(main)


@pytest.mark.parametrize("threads", [None, 1])
@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
def test_the_records_of_a_worker_with_threads(kafka: Kafka, threads: int | None) -> None:
    """They are counted before its function is called, in a pool as well."""
    counted, here = Counted(), ThreadedHarness(kafka)
    here.create(1, 5)
    seen: list[tuple[int, float]] = []

    def handle(generation: threaded.Generation, batch: Batch) -> None:
        seen.append((batch.next_offset, counted.records))
        if batch.next_offset == 5:
            group.shutdown(promptly=True)

    group = threaded.ConsumerGroup(here.config(), on_event=counted.metrics)
    with group:
        threaded.serve(group, handle, threads=threads, max_records=2)
    assert seen == [(2, 2), (4, 4), (5, 5)]


@pytest.mark.parametrize("kafka", [EMBEDDED], indirect=True)
def test_a_batch_that_no_thread_takes(kafka: Kafka) -> None:
    """It arrives when the thread has given up, and counts when the next call returns it."""
    counted, here = Counted(), ThreadedHarness(kafka)
    here.create(1, 2)
    with threaded.ConsumerGroup(here.config(), on_event=counted.metrics) as group:
        records = group.next(SOON).records()
        given_up = group._loop.run(records._next_batch)
        group._loop.run_sync(partial(records._put_back, given_up))
        assert counted.records == 0
        batch = records.next(SOON)
        assert batch is not None
        assert len(batch) == counted.records == 2
