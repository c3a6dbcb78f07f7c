"""The conductor: starts the cluster and the workers, feeds them, waits, and gathers the evidence.

What it does to them, and in which order, is ``schedule``'s. It does everything in one task; while
it waits for anything it goes on reading journals, feeding lines and looking after the workers.
"""

from __future__ import annotations

import json
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final, final

import attrs
import trio

from kgroup.cli.demo.audit import Disturbance
from kgroup.cli.demo.cluster import DemoCluster
from kgroup.cli.demo.display import Display
from kgroup.cli.demo.errors import DemoError
from kgroup.cli.demo.journal import JournalReader
from kgroup.cli.demo.processes import Children
from kgroup.cli.demo.producer import BEAT, LineProducer
from kgroup.cli.demo.progress import Condition, Worker, WorkerProgress
from kgroup.cli.demo.worker import Task

SESSION_TIMEOUT: Final = 6.0
"""Seconds; the shortest that brokers allow unless they are told otherwise."""
STALLED: Final = 30.0
"""Seconds without progress after which lines that are still missing are lost."""
_LOOK: Final = 0.03
_HEADROOM: Final = 2.0
"""How much faster than lines come workers can go, so that they catch up after a hand-over."""


@final
@attrs.frozen(kw_only=True)
class Workers:
    """Those who do the work.

    Attributes:
        name: what one of them is called.
        module: of its process.
        in_time: seconds within which an event has to come about.
    """

    name: str
    module: str
    in_time: float


WORKERS: Final = Workers(name="worker", module="kgroup.cli.demo.worker", in_time=45.0)
DRIVERS: Final = Workers(name="driver", module="kgroup.cli.demo.spark_worker", in_time=180.0)
"""Spark drivers, whose JVMs take a while to start."""


@final
@attrs.frozen(kw_only=True)
class DemoPlan:
    """What the person who runs the demo asked for.

    Attributes:
        lines: the text.
        workers: how many begin.
        partitions: how many the topic begins with.
        bootstrap_servers: another cluster; None for the demo's own.
        crew: who works.
    """

    lines: Sequence[str]
    workers: int
    partitions: int
    bootstrap_servers: str | None
    crew: Workers = WORKERS


@final
@attrs.frozen
class DemoStage:
    """One event of the demo.

    Attributes:
        title: what happens.
        seconds: how long it takes on a machine at rest; lines are spread accordingly.
        play: makes it happen, and returns when it has come about.
    """

    title: str
    seconds: float
    play: Callable[[Director], Awaitable[None]]


@final
class Director:
    """Runs a demo. Its attributes are what stages work with.

    Attributes:
        watch: the workers.
        partitions: how many the topic has now.
        kill: who was killed.
        freeze: who was frozen.
    """

    def __init__(
        self,
        plan: DemoPlan,
        folder: Path,
        cluster: DemoCluster,
        feed: LineProducer,
        children: Children,
        display: Display,
        seconds: float,
    ) -> None:
        self._plan = plan
        self._folder = folder
        self._cluster = cluster
        self._feed = feed
        self._children = children
        self._display = display
        self._seconds = seconds
        self._later = 0.0
        self._stage_ends = 0.0
        self._next_beat = 0.0
        self.watch = WorkerProgress()
        self.partitions = plan.partitions
        self.kill: Disturbance | None = None
        self.freeze: Disturbance | None = None

    async def run(self, stages: Sequence[DemoStage]) -> None:
        """Play the stages, one after the other.

        Raises:
            DemoError: one did not come about, or something broke.
        """
        await self._feed.spread_over(self.partitions)
        self._later = sum(stage.seconds for stage in stages)
        for stage in stages:
            self._later -= stage.seconds
            self._stage_ends = trio.current_time() + stage.seconds
            self._display.say(stage.title)
            await stage.play(self)

    # What stages do.

    async def start_worker(self) -> Worker:
        """Start one more worker."""
        crew = self._plan.crew
        name = f"{crew.name}-{len(self.watch.workers) + 1}"
        journal = self._folder / f"{name}.journal"
        task = Task(
            name=name,
            bootstrap_servers=self._cluster.bootstrap_servers,
            topic=self._cluster.topic,
            group_id=self._cluster.group_id,
            session_timeout=SESSION_TIMEOUT,
            seconds_per_line=self._seconds_per_line(),
            journal=str(journal),
        )
        child = await self._children.start(name, crew.module, json.dumps(attrs.asdict(task)))
        worker = Worker(child=child, journal=JournalReader(journal))
        self.watch.workers.append(worker)
        return worker

    async def start_first_workers(self) -> None:
        """Start as many as the plan says."""
        for _ in range(self._plan.workers):
            await self.start_worker()

    async def stop_worker(self, worker: Worker) -> None:
        """Ask a worker to end, and wait until it has."""
        worker.condition = Condition.STOPPED
        worker.child.terminate()
        self.say(f"{worker.name} is asked to stop (SIGTERM)")
        await self.until(
            lambda: worker.child.status is not None, f"{worker.name} did not end after SIGTERM"
        )
        if worker.child.status != 0:
            raise DemoError(
                f"{worker.name} ended with status {worker.child.status} after SIGTERM:"
                f" {worker.child.last_words()}"
            )

    def kill_worker(self, worker: Worker) -> None:
        """End a worker without a word."""
        worker.condition = Condition.KILLED
        worker.child.kill()
        self.kill = Disturbance(worker=worker.name, time=time.monotonic())
        self.say(f"{worker.name} is killed (SIGKILL) with a batch half done")

    async def freeze_worker(self, worker: Worker) -> None:
        """Stop a worker where it stands."""
        worker.condition = Condition.FROZEN
        await worker.child.freeze()
        self.freeze = Disturbance(worker=worker.name, time=time.monotonic())
        self.say(f"{worker.name} is frozen (SIGSTOP) with a batch half done")

    async def wake_worker(self, worker: Worker) -> None:
        """Let a frozen worker go on."""
        assert self.freeze is not None  # it was frozen
        self.freeze = attrs.evolve(self.freeze, woken=time.monotonic())
        worker.condition = Condition.RUNNING
        await worker.child.wake()
        self.say(f"{worker.name} is woken (SIGCONT); its session is over and its partitions gone")

    async def add_partitions(self, number: int) -> None:
        """Let the topic have more partitions, and lines go there too."""
        self.partitions += number
        await trio.to_thread.run_sync(self._cluster.add_partitions, self.partitions)
        await self._feed.spread_over(self.partitions)
        self.say(f"the topic has {self.partitions} partitions now")

    async def one_halfway(self) -> Worker:
        """Wait for a worker that has processed a part of a batch; it is the one to strike.

        Nobody is struck twice: it could not be told which blow excuses what.
        """

        def halfway() -> Worker | None:
            struck = self.freeze.worker if self.freeze is not None else None
            running = (worker for worker in self.watch.running if worker.name != struck)
            return next((worker for worker in running if worker.halfway), None)

        await self.until(lambda: halfway() is not None, "no worker had a batch half done")
        worker = halfway()
        assert worker is not None  # nothing was read since
        return worker

    async def settled(self, seconds: float = 1.0) -> None:
        """Wait until the running workers share all partitions in one generation; work goes on."""
        await self.until(
            lambda: self.watch.settled(self.partitions),
            f"the running workers did not come to share {self.partitions} partitions",
        )
        generation = self.watch.running[0].generation
        owners = ", ".join(
            f"{worker.name} has {', '.join(map(str, sorted(worker.owned))) or 'nothing'}"
            for worker in self.watch.running
        )
        self.say(f"generation {generation}: {owners}")
        over = trio.current_time() + seconds
        await self.until(lambda: trio.current_time() >= over, "time stands still")

    async def all_lines_done(self) -> None:
        """Send what is left of the lines, and wait until every one is processed and committed.

        Where nothing goes on any more it returns: what is missing is for the account to say.
        """
        while self._feed.left:
            self._feed.send(self._feed.left)
            await trio.sleep(_LOOK)
        await self._feed.flush()
        progress, since = -1, trio.current_time()

        def done_or_stalled() -> bool:
            nonlocal progress, since
            now = sum(self.watch.committed.values())
            if now != progress:
                progress, since = now, trio.current_time()
            stalled = trio.current_time() - since > STALLED
            return stalled or self.watch.all_committed(self._feed.placed)

        await self.until(done_or_stalled, "lines were still being processed", float("inf"))

    def say(self, text: str) -> None:
        """Tell the person who watches."""
        self._display.say(f"  {text}")

    async def until(
        self, holds: Callable[[], bool], otherwise: str, seconds: float | None = None
    ) -> None:
        """Wait for something, the crew's time by default, and meanwhile keep everything going.

        Raises:
            DemoError: it did not happen in time, or a worker ended by itself.
        """
        seconds = self._plan.crew.in_time if seconds is None else seconds
        deadline = trio.current_time() + seconds
        while True:
            self._keep_going()
            if holds():
                return
            if trio.current_time() > deadline:
                raise DemoError(f"{otherwise} within {seconds:g} s")
            await trio.sleep(_LOOK)

    def _keep_going(self) -> None:
        self.watch.read()
        for worker in self.watch.running:
            if worker.child.status is not None:
                worker.condition = Condition.FAILED
                raise DemoError(
                    f"{worker.name} ended by itself with status {worker.child.status}:"
                    f" {worker.child.last_words()}"
                )
        now = trio.current_time()
        if now >= self._next_beat:
            self._next_beat = now + BEAT
            self._feed.send(self._portion(now))
        self._display.show(self.watch, self._feed.sent, len(self._plan.lines), self.partitions)

    def _portion(self, now: float) -> int:
        """How many lines go out at this beat: the rest is spread over the time that is left.

        A stage that takes longer than expected slows the lines down; they never run out.
        """
        left = self._later + max(self._stage_ends - now, BEAT)
        return round(self._feed.left * BEAT / max(left, BEAT))

    def _seconds_per_line(self) -> float:
        lines_per_second = len(self._plan.lines) / self._seconds * _HEADROOM
        return self._plan.partitions / lines_per_second
