"""One performance of the demo, from the cluster's start to the account.

Whatever happens on the way, the workers end first, then what was made on the cluster is removed,
then the cluster ends; only then is anything counted.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import final

import trio

from kgroup.cli.demo.audit import Evidence, audit
from kgroup.cli.demo.audit_report import AuditReport
from kgroup.cli.demo.cluster import DemoCluster
from kgroup.cli.demo.director import DemoPlan, Director
from kgroup.cli.demo.display import Display
from kgroup.cli.demo.errors import DemoError
from kgroup.cli.demo.processes import children
from kgroup.cli.demo.producer import LineProducer
from kgroup.cli.demo.schedule import SCHEDULES, seconds_of


async def perform(plan: DemoPlan, folder: Path, display: Display) -> AuditReport:
    """Perform, and count.

    Cancellation: all processes end, and what was made on the cluster is removed.
    """
    began = time.monotonic()
    performance = _Performance(plan, folder, display)
    await performance.run()
    return audit(performance.evidence(time.monotonic() - began))


@final
class _Performance:
    """Collects what the account is made from, as far as it comes."""

    def __init__(self, plan: DemoPlan, folder: Path, display: Display) -> None:
        self._plan = plan
        self._folder = folder
        self._display = display
        self._feed: LineProducer | None = None
        self._conductor: Director | None = None
        self._committed: Mapping[int, int] | None = None
        self.problems: list[str] = []

    async def run(self) -> None:
        """From the cluster's start to its end; what goes wrong is among the problems then."""
        try:
            await self._run()
        except DemoError as error:
            self._note(error)

    async def _run(self) -> None:
        name = f"kgroup-demo-{uuid.uuid4().hex[:12]}"
        async with _cluster(self._plan, self._folder) as bootstrap_servers:
            cluster = DemoCluster(bootstrap_servers, topic=name, group_id=name)
            await trio.to_thread.run_sync(cluster.create_topic, self._plan.partitions)
            try:
                await self._conduct(cluster)
            finally:
                if self._plan.bootstrap_servers is not None:
                    await self._remove(cluster)

    def evidence(self, seconds: float) -> Evidence:
        """What there is."""
        conductor = self._conductor
        return Evidence(
            lines=self._plan.lines,
            placed=self._feed.placed if self._feed else {},
            journals={worker.name: worker.entries for worker in conductor.watch.workers}
            if conductor
            else {},
            kill=conductor.kill if conductor else None,
            freeze=conductor.freeze if conductor else None,
            committed=self._committed,
            problems=self.problems,
            seconds=seconds,
        )

    async def _conduct(self, cluster: DemoCluster) -> None:
        self._feed = LineProducer(cluster.bootstrap_servers, cluster.topic, self._plan.lines)
        stages = SCHEDULES[self._plan.crew]
        async with children(self._folder) as workers:
            conductor = self._conductor = Director(
                self._plan,
                self._folder,
                cluster,
                self._feed,
                workers,
                self._display,
                seconds_of(stages),
            )
            # Where it broke off too, what the account calls produced has to be complete.
            for step in partial(conductor.run, stages), self._feed.flush:
                try:
                    await step()
                except DemoError as error:
                    self._note(error)
        self._look_after_the_end()
        if not self.problems:
            self._committed = await trio.to_thread.run_sync(cluster.committed, conductor.partitions)

    async def _remove(self, cluster: DemoCluster) -> None:
        """Leave the cluster as it was. What brought the demo to its end is told besides."""
        with trio.CancelScope(shield=True):
            try:
                await trio.to_thread.run_sync(cluster.remove)
            except DemoError as error:
                self._note(error)

    def _note(self, error: DemoError) -> None:
        if str(error) not in self.problems:
            self.problems.append(str(error))
            self._display.say(str(error))

    def _look_after_the_end(self) -> None:
        """The last entries of the journals, and how the workers ended."""
        assert self._conductor is not None  # it has just ended
        self._conductor.watch.read()
        for worker in self._conductor.watch.running:
            if worker.child.status != 0:
                self.problems.append(
                    f"{worker.name} ended with status {worker.child.status}:"
                    f" {worker.child.last_words()}"
                )


@asynccontextmanager
async def _cluster(plan: DemoPlan, folder: Path) -> AsyncIterator[str]:
    """The address of the cluster: the one that was asked for, or one of the demo's own."""
    if plan.bootstrap_servers is not None:
        yield plan.bootstrap_servers
        return
    async with children(folder) as processes:
        broker = await processes.start("broker", "kgroup.cli.demo.broker")
        yield await broker.first_line()
