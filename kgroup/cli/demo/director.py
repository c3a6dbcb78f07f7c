"""The director: starts, stops, kills, freezes and wakes workers, and sends them lines meanwhile.

The stages, and their order, are in ``run``. The director does everything in one task: whenever it
waits (`Director.wait_until`), it also reads the journals, sends lines, and checks that no worker
has ended by itself.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, final

import attrs
import trio

from kgroup.cli.demo import DemoError
from kgroup.cli.demo.audit import Disturbance
from kgroup.cli.demo.cluster import SEND_INTERVAL, DemoCluster, LineProducer
from kgroup.cli.demo.display import Display
from kgroup.cli.demo.journal import JournalReader
from kgroup.cli.demo.processes import Children
from kgroup.cli.demo.progress import Condition, Worker, WorkerProgress
from kgroup.cli.demo.worker import Task

SESSION_TIMEOUT: Final = 10.0
"""Seconds. The demo waits twice for the end of a session, so it is short; but if all processes
pause for longer, workers that the demo has not disturbed lose their sessions too."""
STALL_TIMEOUT: Final = 60.0
"""Seconds without a new commit after which lines that are not committed count as lost."""
_CHECK_INTERVAL: Final = 0.03
_HEADROOM: Final = 2.0
"""How much faster workers can process lines than lines arrive, so that they catch up after a
rebalance."""


@final
@attrs.frozen(kw_only=True)
class WorkerKind:
    """A kind of worker: plain workers, or Spark drivers.

    Attributes:
        name: the prefix of their names.
        module: the module that their processes run.
        timeout: seconds within which the group has to reach what a stage waits for.
        drain_timeout: seconds that they may take to finish a batch when a rebalance begins.
    """

    name: str
    module: str
    timeout: float
    drain_timeout: float


WORKERS: Final = WorkerKind(
    name="worker", module="kgroup.cli.demo.worker", timeout=180.0, drain_timeout=25.0
)
DRIVERS: Final = WorkerKind(
    name="driver", module="kgroup.cli.demo.spark_worker", timeout=180.0, drain_timeout=120.0
)
"""Spark drivers have longer timeouts: JVMs take a while to start, and on a busy machine Spark may
need half a minute for a batch. A batch that the drain leaves unfinished is processed twice."""


@final
@attrs.frozen(kw_only=True)
class DemoPlan:
    """The options of one demo.

    Attributes:
        lines: the text.
        workers: how many workers start at the beginning.
        partitions: how many partitions the topic is created with.
        bootstrap_servers: an existing cluster; None for the demo's own broker.
        worker_kind: plain workers or Spark drivers.
        config_file: properties of the connections to the existing cluster; its path, so that no
            secret is an argument of a process.
    """

    lines: Sequence[str]
    workers: int
    partitions: int
    bootstrap_servers: str | None
    worker_kind: WorkerKind = WORKERS
    config_file: str | None = None


@final
@attrs.frozen
class DemoStage:
    """One stage of the demo.

    Attributes:
        title: what happens, for the display.
        seconds: how long it takes on an idle machine; the lines are paced by that.
        play: makes it happen, and returns when the group has settled afterwards.
    """

    title: str
    seconds: float
    play: Callable[[Director], Awaitable[None]]


@final
class Director:
    """Runs the stages of a demo; its methods are what stages are made of.

    Attributes:
        progress: the workers and what they have done so far.
        partitions: how many partitions the topic has now.
        kill: the worker that was killed, if any.
        freeze: the worker that was frozen, if any.
    """

    def __init__(
        self,
        plan: DemoPlan,
        folder: Path,
        cluster: DemoCluster,
        producer: LineProducer,
        children: Children,
        display: Display,
        seconds: float,
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._cluster = cluster
        self._producer = producer
        self._children = children
        self._display = display
        self._seconds = seconds
        self._later = 0.0
        self._stage_ends = 0.0
        self._next_send = 0.0
        self.progress = WorkerProgress()
        self.partitions = plan.partitions
        self.kill: Disturbance | None = None
        self.freeze: Disturbance | None = None

    async def run(self, stages: Sequence[DemoStage]) -> None:
        """Run the stages one after the other.

        Raises:
            DemoError: a stage did not complete in time, a worker ended by itself, or the cluster
                refused something.
        """
        await self._producer.spread_over(self.partitions)
        self._later = sum(stage.seconds for stage in stages)
        for stage in stages:
            self._later -= stage.seconds
            self._stage_ends = trio.current_time() + stage.seconds
            self._display.say(stage.title)
            await stage.play(self)

    # What stages do.

    async def start_worker(self) -> Worker:
        """Start one more worker."""
        worker_kind = self._plan.worker_kind
        name = f"{worker_kind.name}-{len(self.progress.workers) + 1}"
        journal = self._folder / f"{name}.journal"
        task = Task(
            name=name,
            bootstrap_servers=self._cluster.bootstrap_servers,
            topic=self._cluster.topic,
            group_id=self._cluster.group_id,
            session_timeout=SESSION_TIMEOUT,
            drain_timeout=worker_kind.drain_timeout,
            seconds_per_line=self._seconds_per_line(),
            journal=str(journal),
            config_file=self._plan.config_file,
            events_to=str(self._folder / f"{name}.events"),
        )
        child = await self._children.start(name, worker_kind.module, json.dumps(attrs.asdict(task)))
        worker = Worker(child=child, journal=JournalReader(journal))
        self.progress.workers.append(worker)
        return worker

    async def start_first_workers(self) -> None:
        """Start as many workers as the plan says."""
        for _ in range(self._plan.workers):
            await self.start_worker()

    async def stop_worker(self, worker: Worker) -> None:
        """Send a worker SIGTERM, and wait until it has ended.

        Raises:
            DemoError: it did not end in time, or not with status 0.
        """
        worker.condition = Condition.STOPPED
        worker.child.terminate()
        self.say(f"{worker.name} is asked to stop (SIGTERM)")
        await self.wait_until(
            lambda: worker.child.status is not None, f"{worker.name} did not end after SIGTERM"
        )
        if worker.child.status != 0:
            raise DemoError(
                f"{worker.name} ended with status {worker.child.status} after SIGTERM:"
                f" {worker.child.last_error_line()}"
            )

    def kill_worker(self, worker: Worker) -> None:
        """Send a worker SIGKILL."""
        worker.condition = Condition.KILLED
        worker.child.kill()
        self.kill = Disturbance(worker=worker.name, time=time.monotonic())
        self.say(f"{worker.name} is killed (SIGKILL) with a batch half processed")

    async def freeze_worker(self, worker: Worker) -> None:
        """Send a worker SIGSTOP."""
        worker.condition = Condition.FROZEN
        await worker.child.freeze()
        self.freeze = Disturbance(worker=worker.name, time=time.monotonic())
        self.say(f"{worker.name} is frozen (SIGSTOP) with a batch half processed")

    async def wake_worker(self, worker: Worker) -> None:
        """Let a frozen worker continue."""
        assert self.freeze is not None  # it was frozen
        self.freeze = attrs.evolve(self.freeze, woken=time.monotonic())
        worker.condition = Condition.RUNNING
        await worker.child.wake()
        self.say(
            f"{worker.name} is woken (SIGCONT); its session has timed out and other workers have"
            " its partitions"
        )

    async def add_partitions(self, number: int) -> None:
        """Add partitions to the topic, and send lines to them too."""
        self.partitions += number
        await trio.to_thread.run_sync(self._cluster.add_partitions, self.partitions)
        await self._producer.spread_over(self.partitions)
        self.say(f"the topic has {self.partitions} partitions now")

    async def worker_halfway(self) -> Worker:
        """Wait for a worker that has processed a part of a batch: the one to disturb.

        No worker is disturbed twice: the audit could not say which disturbance explains what.
        """

        def halfway() -> Worker | None:
            frozen = self.freeze.worker if self.freeze is not None else None
            running = (worker for worker in self.progress.running if worker.name != frozen)
            return next((worker for worker in running if worker.halfway), None)

        await self.wait_until(lambda: halfway() is not None, "no worker had a batch half processed")
        worker = halfway()
        assert worker is not None  # no journal was read since
        return worker

    async def wait_until_settled(self, seconds: float = 1.0) -> None:
        """Wait until the running workers share all partitions in one generation.

        Args:
            seconds: how long they work on in it before this returns.
        """
        await self.wait_until(
            lambda: self.progress.settled(self.partitions),
            f"the running workers did not share all {self.partitions} partitions",
        )
        generation = self.progress.running[0].generation
        owners = ", ".join(
            f"{worker.name} has {', '.join(map(str, sorted(worker.owned))) or 'nothing'}"
            for worker in self.progress.running
        )
        self.say(f"generation {generation}: {owners}")
        end = trio.current_time() + seconds
        await self.wait_until(lambda: trio.current_time() >= end, "time did not pass")

    async def finish_lines(self) -> None:
        """Send the remaining lines, and wait until every line is processed and committed.

        If no new commit comes for `STALL_TIMEOUT` it returns: the audit finds what is missing.
        """
        while self._producer.left:
            self._producer.send(self._producer.left)
            await trio.sleep(_CHECK_INTERVAL)
        await self._producer.flush()
        committed, since = -1, trio.current_time()

        def done_or_stalled() -> bool:
            nonlocal committed, since
            now = sum(self.progress.committed.values())
            if now != committed:
                committed, since = now, trio.current_time()
            stalled = trio.current_time() - since > STALL_TIMEOUT
            return stalled or self.progress.all_committed(self._producer.placed)

        await self.wait_until(done_or_stalled, "lines were still being processed", float("inf"))

    def say(self, text: str) -> None:
        """Display a line below the current stage."""
        self._display.say(f"  {text}")

    async def wait_until(
        self, holds: Callable[[], bool], failure: str, seconds: float | None = None
    ) -> None:
        """Wait for a condition; meanwhile read journals, send lines and check the workers.

        Args:
            holds: the condition.
            failure: the text of the error if it does not hold in time.
            seconds: the timeout; the worker kind's by default.

        Raises:
            DemoError: the condition did not hold in time, or a worker ended by itself.
        """
        seconds = self._plan.worker_kind.timeout if seconds is None else seconds
        deadline = trio.current_time() + seconds
        while True:
            self._check_workers()
            if holds():
                return
            if trio.current_time() > deadline:
                raise DemoError(f"{failure} within {seconds:g} s")
            await trio.sleep(_CHECK_INTERVAL)

    def _check_workers(self) -> None:
        self.progress.read()
        for worker in self.progress.running:
            if worker.child.status is not None:
                worker.condition = Condition.FAILED
                raise DemoError(
                    f"{worker.name} ended by itself with status {worker.child.status}:"
                    f" {worker.child.last_error_line()}"
                )
        now = trio.current_time()
        if now >= self._next_send:
            self._next_send = now + SEND_INTERVAL
            self._producer.send(self._lines_to_send(now))
        self._display.show(
            self.progress, self._producer.sent, len(self._plan.lines), self.partitions
        )

    def _lines_to_send(self, now: float) -> int:
        """How many lines to send now, so that the rest lasts for the remaining time.

        A stage that takes longer than expected slows the lines down; they never run out.
        """
        left = self._later + max(self._stage_ends - now, SEND_INTERVAL)
        return round(self._producer.left * SEND_INTERVAL / max(left, SEND_INTERVAL))

    def _seconds_per_line(self) -> float:
        lines_per_second = len(self._plan.lines) / self._seconds * _HEADROOM
        return self._plan.partitions / lines_per_second
