"""Random schedules of processes: no record is lost, and none is repeated without need."""

from __future__ import annotations

import random
import sys
from functools import partial
from pathlib import Path
from typing import Final

import pytest
import trio

from kgroup.broker import serve
from kgroup.cli.demo.cluster import DemoCluster
from kgroup.cli.demo.processes import children
from kgroup.testing.kafka import RealKafka
from tests.brokers import unique
from tests.schedules.run import Account, Restart, Run

EMBEDDED: Final = range(6)
REAL: Final = range(100, 101)
EMBEDDED_SESSION: Final = 10.0
"""Seconds, on the embedded broker: a busy machine pauses a process for some seconds."""
SESSION: Final = 20.0
"""Seconds, on the real Kafka: a restart takes a third of it where the machine is not too busy."""
SETTINGS: Final = {
    "group.initial.rebalance.delay.ms": "300",
    "group.min.session.timeout.ms": "1000",
    "auto.create.topics.enable": "false",
}


async def played(
    seed: int, servers: str, folder: Path, *, session_timeout: float, restart: Restart
) -> Account:
    """Play one schedule, and report what happened if the test fails."""
    name = unique(f"schedule-{seed}")
    cluster = DemoCluster(servers, topic=name, group_id=name)
    async with children(folder) as workers:
        run = Run(seed, cluster, workers, folder, session_timeout=session_timeout, restart=restart)
        try:
            return await run.play()
        finally:
            sys.stdout.write("\n".join([f"seed {seed}", *run.story, ""]))


def assert_right(account: Account) -> None:
    """Check that every record was processed, repeated only after the kill, and in order."""
    assert account.missing == []
    assert account.strange == []
    assert account.planned == []
    assert account.disordered == []


@pytest.mark.timeout(500)
@pytest.mark.parametrize("seed", EMBEDDED)
async def test_a_schedule_on_the_embedded_broker(seed: int, tmp_path: Path) -> None:
    """Joins, a leave, growth and a moving coordinator repeat no record; only the SIGKILL may."""
    rng = random.Random(seed)
    async with serve(settings=SETTINGS) as broker:
        restart = partial(
            broker.restart_coordinator, away=rng.uniform(0, 1), loading=rng.uniform(0, 0.5)
        )
        account = await played(
            seed,
            broker.bootstrap_servers,
            tmp_path,
            session_timeout=EMBEDDED_SESSION,
            restart=restart,
        )
    assert_right(account)
    assert account.after_loss == []


@pytest.mark.real_kafka
@pytest.mark.timeout(500)
@pytest.mark.parametrize("seed", REAL)
async def test_a_schedule_on_a_real_kafka(seed: int, tmp_path: Path) -> None:
    """The same with a broker that restarts; only a lease that ran out may repeat more."""
    kafka = await trio.to_thread.run_sync(_started)
    away = 0.0

    async def restart() -> None:
        nonlocal away
        began = trio.current_time()
        await trio.to_thread.run_sync(kafka.restart)
        away = trio.current_time() - began

    try:
        account = await played(
            seed,
            kafka.bootstrap_servers,
            tmp_path,
            session_timeout=SESSION,
            restart=restart,
        )
    finally:
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(kafka.close)
    assert_right(account)
    if away < SESSION / 2:
        assert account.after_loss == [], account.losses


def _started() -> RealKafka:
    kafka = RealKafka({"group.min.session.timeout.ms": "1000"})
    kafka.start()
    return kafka
