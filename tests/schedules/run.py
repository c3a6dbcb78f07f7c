"""Random schedules of worker processes under steady load, and the audit of their journals.

The counts come from what the workers wrote down, not from kgroup. The workers are those of
``kgroup demo``; their work takes time, so that some is always in progress.
"""

from __future__ import annotations

import json
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Final, final

import attrs
import trio

from kgroup.cli.demo.cluster import DemoCluster, LineProducer
from kgroup.cli.demo.journal import (
    CommitDone,
    Ended,
    JournalEntry,
    JournalReader,
    RecordProcessed,
    Started,
)
from kgroup.cli.demo.processes import Child, Children
from kgroup.cli.demo.progress import Condition, Worker, WorkerProgress
from kgroup.cli.demo.worker import Task
from kgroup.errors import short_list
from kgroup.types import Cause

EVENTS: Final = ("join", "leave", "grow", "restart", "kill")
"""The events of every schedule; each happens once, in random order."""
WORKERS: Final = 3
PARTITIONS: Final = 6
LINES: Final = 1440
BEAT: Final = 0.1
PORTION: Final = 24
SECONDS_PER_LINE: Final = 0.004
LOOK: Final = 0.05
IN_TIME: Final = 60.0
LOST: Final = tuple(cause.value for cause in Cause if not cause.can_commit)

Record = tuple[int, int]
Restart = Callable[[], Awaitable[None]]


@final
@attrs.frozen(kw_only=True)
class Account:
    """The result of one schedule.

    Attributes:
        missing: records that were produced and never processed.
        strange: records that were processed and never produced.
        planned: records that were processed again although their first worker was neither
            killed nor lost its membership.
        after_kill: records that were processed again because a worker was killed.
        after_loss: records that were processed again because a member lost its membership.
        disordered: records that a generation processed after a later one of their partition.
        losses: the ends of generations by which membership was lost.
        generations: how many there were.
    """

    missing: list[Record]
    strange: list[Record]
    planned: list[Record]
    after_kill: list[Record]
    after_loss: list[Record]
    disordered: list[Record]
    losses: list[str]
    generations: int


@final
class Run:
    """One schedule, generated from a seed."""

    def __init__(
        self,
        seed: int,
        cluster: DemoCluster,
        children: Children,
        folder: Path,
        *,
        session_timeout: float,
        restart: Restart,
    ) -> None:
        self._random = random.Random(seed)
        self._cluster = cluster
        self._children = children
        self._folder = folder
        self._session_timeout = session_timeout
        self._restart = restart
        self._feed = LineProducer(cluster.bootstrap_servers, cluster.topic, _lines())
        self._partitions = PARTITIONS
        self._watch = WorkerProgress()
        self._next_beat = 0.0
        self._killed: str | None = None
        self.story: list[str] = []

    async def play(self) -> Account:
        """Play a schedule, wait until everything is committed, and audit it."""
        await trio.to_thread.run_sync(self._cluster.create_topic, PARTITIONS)
        await self._feed.spread_over(PARTITIONS)
        for _ in range(WORKERS):
            await self._join()
        await self._until(lambda: self._watch.settled(self._partitions), "the first generation")
        events: dict[str, Callable[[], Awaitable[None]]] = {
            "join": self._join,
            "leave": self._leave,
            "grow": self._grow,
            "restart": self._restart,
            "kill": self._kill,
        }
        for event in self._random.sample(EVENTS, len(EVENTS)):
            await self._work_for(self._random.uniform(0.1, 1.5))
            self.story.append(f"{event} at {len(self._watch.done)} records")
            await self._meanwhile(events[event])
        await self._until(lambda: self._feed.left == 0, "all lines to be sent")
        await self._feed.flush()
        await self._all_committed()
        for worker in self._watch.running:
            worker.condition = Condition.STOPPED
            worker.child.terminate()
        for worker in self._watch.workers:
            await _ended(worker.child)
        self._watch.read()
        journals = {worker.name: worker.entries for worker in self._watch.workers}
        return count(self._feed.placed, journals, self._killed)

    async def _all_committed(self) -> None:
        """Wait until the coordinator has committed offsets up to the end of every partition.

        The journals are not enough: a killed worker may not have written down a commit that was
        accepted in its last moment, and no other worker repeats it.
        """
        await self._until(
            lambda: self._feed.placed.keys() <= self._watch.done, "all records to be processed"
        )
        ends: dict[int, int] = {}
        for partition, offset in self._feed.placed:
            ends[partition] = max(offset + 1, ends.get(partition, 0))
        deadline = trio.current_time() + IN_TIME
        while True:
            found = await trio.to_thread.run_sync(self._cluster.committed, self._partitions)
            committed = {partition: offset for partition, offset in found.items() if offset}
            if committed == ends:
                return
            late = f"after {IN_TIME:g} s {committed} of {ends} is committed"
            assert trio.current_time() < deadline, self._report(late)
            await self._work_for(BEAT)

    async def _join(self) -> None:
        name = f"worker-{len(self._watch.workers) + 1}"
        journal = self._folder / f"{name}.journal"
        task = Task(
            name=name,
            bootstrap_servers=self._cluster.bootstrap_servers,
            topic=self._cluster.topic,
            group_id=self._cluster.group_id,
            session_timeout=self._session_timeout,
            drain_timeout=25.0,
            seconds_per_line=SECONDS_PER_LINE,
            journal=str(journal),
        )
        child = await self._children.start(
            name, "kgroup.cli.demo.worker", json.dumps(attrs.asdict(task))
        )
        self._watch.workers.append(Worker(child=child, journal=JournalReader(journal)))

    async def _leave(self) -> None:
        # One that is still starting has no handler for SIGTERM yet.
        at_work = [worker for worker in self._watch.running if worker.generation >= 0]
        worker = self._random.choice(at_work)
        worker.condition = Condition.STOPPED
        worker.child.terminate()
        await _ended(worker.child)
        assert worker.child.status == 0, worker.child.last_error_line()

    async def _grow(self) -> None:
        self._partitions += 2
        await trio.to_thread.run_sync(self._cluster.add_partitions, self._partitions)
        await self._feed.spread_over(self._partitions)

    async def _kill(self) -> None:
        await trio.lowlevel.checkpoint()
        worker = self._random.choice(self._watch.running)
        self._killed = worker.name
        worker.condition = Condition.KILLED
        worker.child.kill()

    async def _meanwhile(self, event: Callable[[], Awaitable[None]]) -> None:
        """Let the load continue for some seconds."""
        async with trio.open_nursery() as nursery:

            async def happen() -> None:
                await event()
                nursery.cancel_scope.cancel()

            nursery.start_soon(happen)
            await self._until(lambda: False, "the event to be over")

    async def _work_for(self, seconds: float) -> None:
        over = trio.current_time() + seconds
        await self._until(lambda: trio.current_time() >= over, "time to pass")

    def _report(self, missed: str) -> str:
        """For a failed test: what is missing, which events came, what each worker was doing."""
        workers = (
            f"{one.name} ({one.condition.value}) had {sorted(one.owned)} in generation"
            f" {one.generation} and said last: {one.child.last_error_line()}"
            for one in self._watch.workers
        )
        missing = sorted(self._feed.placed.keys() - self._watch.done)
        total = len(self._feed.placed)
        records = (
            f"{len(missing)} of {total} records were not processed: {short_list(missing, str)}"
        )
        return "\n".join([f"{missed}: {', '.join(self.story)}", records, *workers])

    async def _until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = trio.current_time() + IN_TIME
        while not holds():
            self._watch.read()
            for worker in self._watch.running:
                assert worker.child.status is None, worker.child.last_error_line()
            now = trio.current_time()
            if now >= self._next_beat:
                self._next_beat = now + BEAT
                self._feed.send(PORTION)
            assert now < deadline, self._report(f"waited {IN_TIME:g} s for {what}")
            await trio.sleep(LOOK)


def count(
    placed: Mapping[Record, int], journals: Mapping[str, Sequence[JournalEntry]], killed: str | None
) -> Account:
    """Audit the journals."""
    tally = _Tally()
    for name, journal in journals.items():
        tally.read(name, journal)
    repeated = tally.repeated(killed)
    return Account(
        missing=sorted(placed.keys() - tally.processed.keys()),
        strange=sorted(tally.processed.keys() - placed.keys()),
        planned=repeated["planned"],
        after_kill=repeated["kill"],
        after_loss=repeated["loss"],
        disordered=tally.disordered + _late(tally.processed),
        losses=list(tally.losses.values()),
        generations=len(tally.generations),
    )


@final
class _Tally:
    """The journals' contents by record."""

    def __init__(self) -> None:
        self.processed: defaultdict[Record, list[tuple[float, str, int]]] = defaultdict(list)
        self.losses: dict[tuple[str, int], str] = {}
        self.generations: set[int] = set()
        self.disordered: list[Record] = []
        self._committed: defaultdict[tuple[str, int, int], int] = defaultdict(int)
        self._reached: dict[tuple[str, int, int], int] = {}
        self._last_epoch: dict[str, int] = {}

    def read(self, name: str, journal: Iterable[JournalEntry]) -> None:
        """Read one worker's journal."""
        for entry in journal:
            match entry:
                case Started():
                    self.generations.add(entry.generation)
                    self._last_epoch[name] = entry.epoch
                case Ended() if entry.why.startswith(LOST):
                    self.losses[name, entry.epoch] = entry.why
                case RecordProcessed():
                    self._process(name, entry)
                case CommitDone():
                    self._committed[name, entry.epoch, entry.partition] = entry.next
                case _:
                    pass

    def repeated(self, killed: str | None) -> dict[str, list[Record]]:
        """Records that were processed again, by what had happened to their first worker."""
        repeated: dict[str, list[Record]] = {"planned": [], "kill": [], "loss": []}
        for record, several in self.processed.items():
            for _, name, epoch in sorted(several)[:-1]:
                repeated[self._why(record, name, epoch, killed)].append(record)
        return repeated

    def _process(self, name: str, entry: RecordProcessed) -> None:
        record = entry.partition, entry.offset
        self.processed[record].append((entry.time, name, entry.epoch))
        lane = name, entry.epoch, entry.partition
        if entry.offset <= self._reached.get(lane, -1):
            self.disordered.append(record)
        self._reached[lane] = entry.offset

    def _why(self, record: Record, name: str, epoch: int, killed: str | None) -> str:
        if record[1] < self._committed[name, epoch, record[0]]:
            return "planned"
        if name == killed and epoch == self._last_epoch[name]:
            return "kill"
        return "loss" if (name, epoch) in self.losses else "planned"


def _late(processed: Mapping[Record, Iterable[tuple[float, str, int]]]) -> list[Record]:
    """Records that were first processed after a later record of their partition."""
    furthest: dict[int, int] = {}
    late = []
    for _, (partition, offset) in sorted(
        (min(several), record) for record, several in processed.items()
    ):
        if offset < furthest.get(partition, -1):
            late.append((partition, offset))
        furthest[partition] = max(offset, furthest.get(partition, -1))
    return late


async def _ended(child: Child) -> None:
    deadline = time.monotonic() + IN_TIME
    while child.status is None:
        assert time.monotonic() < deadline, f"{child.name} did not end"
        await trio.sleep(LOOK)


def _lines() -> list[str]:
    return [f"line {number}" for number in range(LINES)]
