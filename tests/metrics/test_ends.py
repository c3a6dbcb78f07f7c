"""What metrics and the health say of a group with threads, or of asyncio, that has ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import prometheus_client
import pytest
import trio

from kgroup import aio
from kgroup.background.group import GroupTwin
from kgroup.config import GroupConfig
from kgroup.errors import StartupTimeoutError
from kgroup.metrics.prometheus import PrometheusMetrics
from kgroup.status import Phase
from kgroup.threaded import ConsumerGroup
from tests.brokers import Kafka
from tests.threaded.harness import SOON, Harness

NOWHERE = Kafka("nobody", "127.0.0.1:1")
Ends = Callable[[GroupConfig, PrometheusMetrics], GroupTwin]


def crash() -> None:
    """Raise in an event loop, which ends it."""
    raise ZeroDivisionError("on purpose")


def cancelled_in_threads(config: GroupConfig, metrics: PrometheusMetrics) -> GroupTwin:
    """A group of which the program cancels the block."""
    with ConsumerGroup(config, on_event=metrics) as group:
        group.cancel()
    return group


def cancelled_on_asyncio(config: GroupConfig, metrics: PrometheusMetrics) -> GroupTwin:
    """A group of which the program cancels the task that has the block."""
    group = aio.ConsumerGroup(config, on_event=metrics)

    async def work(entered: asyncio.Event) -> None:
        async with group:
            entered.set()
            await anext(group)

    async def main() -> None:
        entered = asyncio.Event()
        task = asyncio.create_task(work(entered))
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    return group


def failed_in_threads(config: GroupConfig, metrics: PrometheusMetrics) -> GroupTwin:
    """A group of which next() has raised a fatal error, so that the block raises nothing."""
    with ConsumerGroup(config, on_event=metrics) as group:
        with pytest.raises(StartupTimeoutError):
            group.next(SOON)
        assert group.status().phase is Phase.FAILED
    return group


def failed_on_asyncio(config: GroupConfig, metrics: PrometheusMetrics) -> GroupTwin:
    """The same on asyncio."""
    group = aio.ConsumerGroup(config, on_event=metrics)

    async def main() -> None:
        async with group:
            with pytest.raises(StartupTimeoutError):
                await group.next()
            assert group.status().phase is Phase.FAILED

    asyncio.run(main())
    return group


def crashed_in_threads(config: GroupConfig, metrics: PrometheusMetrics) -> GroupTwin:
    """A group whose event loop trio has ended because of an error."""
    group = ConsumerGroup(config, on_event=metrics)
    with pytest.raises(trio.TrioInternalError), group:
        assert group._loop._token is not None
        group._loop._token.run_sync_soon(crash)
        assert group._loop.ended.wait(SOON)
    return group


ENDS = [
    (cancelled_in_threads, Phase.CLOSED),
    (cancelled_on_asyncio, Phase.CLOSED),
    (failed_in_threads, Phase.FAILED),
    (failed_on_asyncio, Phase.FAILED),
    (crashed_in_threads, Phase.FAILED),
]


@pytest.mark.parametrize(("ends", "phase"), ENDS)
def test_the_health_of_a_group_that_has_ended(ends: Ends, phase: Phase) -> None:
    """The gauges agree with health(): one that was cancelled is live, one that failed is not."""
    registry = prometheus_client.CollectorRegistry()
    config = Harness(NOWHERE).config(close_timeout=1.0, startup_timeout=0.5)
    group = ends(config, PrometheusMetrics(registry))
    health = group.health()
    assert (health.status.phase, health.live) == (phase, phase is Phase.CLOSED)
    shown = {
        name: registry.get_sample_value(name, {"group": config.group_id})
        for name in ("kgroup_live", "kgroup_ready")
    }
    assert shown == {"kgroup_live": float(health.live), "kgroup_ready": 0.0}
