"""One demo from beginning to end: its stages, and what is started before and removed afterwards.

A stage makes one thing happen to the group, and returns when the workers have settled in a new
generation and have worked on for a while. However a demo ends, the workers end first, then its
topic and group are removed from an existing cluster, then its own broker ends; only then are the
journals audited.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Final, final

import trio

from kgroup.cli.demo import DemoError
from kgroup.cli.demo.audit import AuditReport, Evidence, audit
from kgroup.cli.demo.cluster import DemoCluster, LineProducer
from kgroup.cli.demo.director import DRIVERS, WORKERS, DemoPlan, DemoStage, Director, WorkerKind
from kgroup.cli.demo.display import Display
from kgroup.cli.demo.processes import children
from kgroup.cli.options import security_of


async def workers_begin(director: Director) -> None:
    """The first workers join."""
    await director.start_first_workers()
    await director.wait_until_settled()


async def one_joins(director: Director) -> None:
    """One more worker joins."""
    await director.start_worker()
    await director.wait_until_settled()


async def one_stops(director: Director) -> None:
    """A worker gets SIGTERM; it finishes the batch that it holds, commits, and leaves."""
    await director.stop_worker(await director.worker_halfway())
    await director.wait_until_settled()


async def topic_grows(director: Director) -> None:
    """The topic's partitions are increased by half."""
    await director.add_partitions(max(1, director.partitions // 2))
    await director.wait_until_settled()


async def one_is_killed(director: Director) -> None:
    """A worker is killed in the middle of a batch; the group waits for its session to time out."""
    director.kill_worker(await director.worker_halfway())
    await director.wait_until_settled()


async def one_is_frozen(director: Director) -> None:
    """A worker is frozen until others own its partitions, and then woken."""
    worker = await director.worker_halfway()
    await director.freeze_worker(worker)
    await director.wait_until_settled()
    await director.wake_worker(worker)
    await director.wait_until_settled()


async def lines_end(director: Director) -> None:
    """The remaining lines are sent, processed and committed."""
    await director.finish_lines()


STAGES: Final = (
    DemoStage("The first workers join.", 3.0, workers_begin),
    DemoStage("A worker is added.", 4.0, one_joins),
    DemoStage("A worker is stopped gracefully.", 3.0, one_stops),
    DemoStage("Partitions are added.", 4.0, topic_grows),
    DemoStage("A worker is killed.", 13.0, one_is_killed),
    DemoStage("A worker is frozen past its session, and woken.", 15.0, one_is_frozen),
    DemoStage("The rest of the lines.", 3.0, lines_end),
)
SPARK_STAGES: Final = (
    DemoStage("The first Spark drivers join.", 9.0, workers_begin),
    DemoStage("A driver is added.", 7.0, one_joins),
    DemoStage("A driver is stopped gracefully.", 3.0, one_stops),
    DemoStage("A driver is frozen past its session, and woken.", 16.0, one_is_frozen),
    DemoStage("A driver is killed.", 13.0, one_is_killed),
    DemoStage("The rest of the lines.", 3.0, lines_end),
)
"""Spark drivers have fewer stages, because each driver starts a JVM."""
SCHEDULES: Final[Mapping[WorkerKind, Sequence[DemoStage]]] = {
    WORKERS: STAGES,
    DRIVERS: SPARK_STAGES,
}


def seconds_of(stages: Sequence[DemoStage]) -> float:
    """How long stages take on an idle machine."""
    return sum(stage.seconds for stage in stages)


async def run_demo(plan: DemoPlan, folder: Path, display: Display) -> AuditReport:
    """Run a demo, and audit it.

    Args:
        plan: the options.
        folder: where the journals and logs of the processes are written.
        display: shows the progress.

    Returns:
        The report. If the demo could not be run to its end, ``problems`` says why.

    Cancellation: all processes end, and the topic and the group are removed.
    """
    began = time.monotonic()
    demo = _DemoRun(plan, folder, display)
    await demo.run()
    return audit(demo.evidence(time.monotonic() - began))


@final
class _DemoRun:
    """Runs the demo, and collects the evidence for the audit as far as it gets."""

    def __init__(self, plan: DemoPlan, folder: Path, display: Display) -> None:
        self._plan = plan
        self._folder = folder
        self._display = display
        self._producer: LineProducer | None = None
        self._director: Director | None = None
        self._committed: Mapping[int, int] | None = None
        self.problems: list[str] = []

    async def run(self) -> None:
        """Run all of it; a `DemoError` is recorded among the problems."""
        try:
            await self._run()
        except DemoError as error:
            self._record(error)

    async def _run(self) -> None:
        name = f"kgroup-demo-{uuid.uuid4().hex[:12]}"
        async with _cluster(self._plan, self._folder) as bootstrap_servers:
            security = security_of(self._plan.config_file)
            cluster = await trio.to_thread.run_sync(
                DemoCluster, bootstrap_servers, name, name, security
            )
            await trio.to_thread.run_sync(cluster.create_topic, self._plan.partitions)
            try:
                await self._direct(cluster)
            finally:
                if self._plan.bootstrap_servers is not None:
                    await self._remove(cluster)

    def evidence(self, seconds: float) -> Evidence:
        """The input of the audit, as far as it was collected."""
        director = self._director
        return Evidence(
            lines=self._plan.lines,
            sent=self._producer.sent if self._producer else 0,
            placed=self._producer.placed if self._producer else {},
            journals={worker.name: worker.entries for worker in director.progress.workers}
            if director
            else {},
            kill=director.kill if director else None,
            freeze=director.freeze if director else None,
            committed=self._committed,
            problems=self.problems,
            seconds=seconds,
        )

    async def _direct(self, cluster: DemoCluster) -> None:
        self._producer = await trio.to_thread.run_sync(
            LineProducer,
            cluster.bootstrap_servers,
            cluster.topic,
            self._plan.lines,
            security_of(self._plan.config_file),
        )
        stages = SCHEDULES[self._plan.worker_kind]
        async with children(self._folder) as workers:
            director = self._director = Director(
                self._plan,
                self._folder,
                cluster,
                self._producer,
                workers,
                self._display,
                seconds_of(stages),
            )
            # Also after a failure the producer is flushed: the audit needs to know all lines that
            # were produced.
            for step in partial(director.run, stages), self._producer.flush:
                try:
                    await step()
                except DemoError as error:
                    self._record(error)
        self._check_exits()
        if not self.problems:
            self._committed = await trio.to_thread.run_sync(cluster.committed, director.partitions)

    async def _remove(self, cluster: DemoCluster) -> None:
        """Delete the topic and the group; a failure is recorded beside what happened before."""
        # Its deadline is that of the calls in `DemoCluster.remove`.
        with trio.CancelScope(shield=True):
            try:
                await trio.to_thread.run_sync(cluster.remove)
            except DemoError as error:
                self._record(error)

    def _record(self, error: DemoError) -> None:
        if str(error) not in self.problems:
            self.problems.append(str(error))
            self._display.say(str(error))

    def _check_exits(self) -> None:
        """Read the last entries of the journals, and record workers that did not end well."""
        assert self._director is not None  # it has just ended
        self._director.progress.read()
        for worker in self._director.progress.running:
            if worker.child.status != 0:
                self.problems.append(
                    f"{worker.name} ended with status {worker.child.status}:"
                    f" {worker.child.last_error_line()}"
                )


@asynccontextmanager
async def _cluster(plan: DemoPlan, folder: Path) -> AsyncIterator[str]:
    """The bootstrap servers of the existing cluster, or else of a broker that is started here."""
    if plan.bootstrap_servers is not None:
        yield plan.bootstrap_servers
        return
    async with children(folder) as processes:
        broker = await processes.start("broker", "kgroup.cli.demo.broker")
        yield await broker.first_line()
