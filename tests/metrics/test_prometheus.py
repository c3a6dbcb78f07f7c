"""Metrics for Prometheus: of a group in virtual time, as a scrape returns them."""

from __future__ import annotations

import prometheus_client
import pytest
import trio
from prometheus_client.parser import text_string_to_metric_families
from trio.testing import MockClock

from kgroup.errors import ArgumentError
from kgroup.generation.generation import Generation
from kgroup.group import ConsumerGroup
from kgroup.metrics.prometheus import PrometheusMetrics
from kgroup.testing.memory import memory_runtime
from kgroup.types import TopicPartition
from tests.group.harness import P0, harness


def scraped(registry: prometheus_client.CollectorRegistry) -> dict[str, float]:
    """The samples of a scrape: for each name with its labels the value."""
    text = prometheus_client.generate_latest(registry).decode()
    return {
        f"{sample.name}{sorted(sample.labels.items()) or ''}": sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


async def test_a_groups_metrics(autojump_clock: MockClock) -> None:
    """Lag, records, batches, commits, rebalances and gauges of a group that reads and closes."""
    registry = prometheus_client.CollectorRegistry()
    metrics = PrometheusMetrics(registry, now=trio.current_time)

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(name, {"group": "group", **labels})

    of_topic = {"topic": "topic"}
    processed = {**of_topic, "outcome": "processed"}
    of_p0 = {**of_topic, "partition": "0"}
    async with harness(2) as here:
        await here.append(50)
        group = ConsumerGroup(here.config(), runtime=memory_runtime(here.broker), on_event=metrics)
        assert value("kgroup_live") is None  # not entered yet
        async with group:
            generation = await group.next()
            assert value("kgroup_ready") == 1
            assert value("kgroup_partitions") == 2
            assert value("kgroup_lag", **of_p0) is None

            async def handle(generation: Generation, partition: TopicPartition) -> None:
                async for batch in generation.records(partition, max_records=20):
                    await trio.sleep(3)
                    await generation.commit({partition: batch.next_offset})

            generation.start_soon(handle, generation, P0)
            await trio.sleep(7)
            assert value("kgroup_lag", **of_p0) == 0
            assert value("kgroup_buffered_records") == 0
            assert value("kgroup_records_total", **of_p0) == 50
            assert value("kgroup_batch_seconds_count", **processed) == 2
            assert value("kgroup_batch_seconds_sum", **processed) == pytest.approx(6, abs=0.1)
            assert value("kgroup_batch_age_seconds") == pytest.approx(1, abs=0.1)
            assert value("kgroup_last_record_age_seconds") == pytest.approx(1, abs=0.1)
            assert value("kgroup_generation_age_seconds") == pytest.approx(7, abs=0.1)
            assert value("kgroup_commit_seconds_count", outcome="committed") == 2
            age = value("kgroup_heartbeat_age_seconds")
            assert age is not None
            assert age <= 1
            for phase in ("join", "sync", "hand_over"):
                assert value("kgroup_rebalance_phase_seconds_count", phase=phase) == 1
            assert value("kgroup_rebalance_seconds_count") == 1
    assert value("kgroup_generations_ended_total", cause="closed") == 1
    assert (value("kgroup_ready"), value("kgroup_live")) == (0, 1)  # the group is closed
    assert value("kgroup_partitions") is None
    assert any(name.startswith("kgroup_commit_seconds_bucket") for name in scraped(registry))


def test_a_second_one_is_refused() -> None:
    """The error says to use the first for all groups, or another registry, which is possible."""
    registry = prometheus_client.CollectorRegistry()
    PrometheusMetrics(registry)
    with pytest.raises(ArgumentError, match="serves all groups of a process.* of its own") as info:
        PrometheusMetrics(registry)
    assert isinstance(info.value, ValueError)
    PrometheusMetrics(prometheus_client.CollectorRegistry())
