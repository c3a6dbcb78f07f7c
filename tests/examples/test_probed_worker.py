"""examples/probed_worker.py: what its probes answer, beside a group in memory."""

from __future__ import annotations

import json
from typing import Any
from urllib.error import HTTPError
from urllib.request import urlopen

import attrs
import pytest
import trio

import kgroup
from kgroup.clocks import SuspendAwareClock
from kgroup.group import ConsumerGroup
from kgroup.metrics.prometheus import PrometheusMetrics
from kgroup.monitors import HealthMonitor, Monitors
from kgroup.testing.memory import memory_runtime
from tests.examples.loading import load
from tests.group.harness import harness


def fetched(url: str) -> tuple[int, str]:
    """The status and the body of a response."""
    try:
        with urlopen(url, timeout=100) as response:  # noqa: S310 # of this process
            return response.status, response.read().decode()
    except HTTPError as refused:
        with refused:
            return refused.code, refused.read().decode()


async def test_probes_and_metrics(capfd: pytest.CaptureFixture[str]) -> None:
    """Not ready before the group has a generation, ready with one; metrics on the same port."""
    worker = load("probed_worker")
    monitor = HealthMonitor()
    on_event = Monitors(PrometheusMetrics(), monitor)
    with worker.serving(0, monitor) as server, trio.fail_after(100):

        async def get(path: str) -> tuple[int, str]:
            return await trio.to_thread.run_sync(
                fetched, f"http://127.0.0.1:{server.server_port}{path}"
            )

        async def asked(path: str) -> tuple[int, Any]:
            status, body = await get(path)
            return status, json.loads(body)

        status, health = await asked("/ready")
        assert (status, health["reasons"]) == (503, ["the program has not entered a group yet"])
        assert (await asked("/live"))[0] == 200
        async with harness() as here:
            await here.append(5)
            # The probes read the clock in their own thread, where trio's has no time.
            runtime = attrs.evolve(memory_runtime(here.broker), clock=SuspendAwareClock())
            group = ConsumerGroup(here.config(), runtime=runtime, on_event=on_event)
            async with group, trio.open_nursery() as nursery:
                nursery.start_soon(kgroup.serve, group, worker.handle)
                while (found := await asked("/ready"))[0] != 200:
                    await trio.lowlevel.checkpoint()
                assert found[1]["status"]["phase"] == "running"
                _, text = await get("/metrics")
                assert 'kgroup_ready{group="group"} 1.0' in text
                group.shutdown()
        status, health = await asked("/live")
        assert (status, health["ready"]) == (200, False)
    assert "GET /ready" not in capfd.readouterr().out
