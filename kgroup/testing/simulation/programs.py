"""The programs of a simulation: started, watched over, asked to end, frozen, killed.

INVARIANTS: a program's tasks belong to its life, which alone is frozen or killed; one that crashes
is cut off before it is cancelled, so that no shield of it commits or leaves; nothing that it does
afterwards is noted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Final, final

import attrs
import trio

from kgroup.clocks import TrioClock
from kgroup.config import GroupConfig
from kgroup.interfaces import RecordSource
from kgroup.records.memory import MemorySource, ReadableLog
from kgroup.runtime import Runtime, default_runtime_factory
from kgroup.testing.simulation import history
from kgroup.testing.simulation.freezing import Freezer, owned_by
from kgroup.testing.simulation.network import Network, Plug
from kgroup.testing.simulation.observer import MemberObserver, Recorder
from kgroup.testing.simulation.plan import MemberPlan, Plan
from kgroup.testing.simulation.process import Process, Worker
from kgroup.testing.simulation.topics import SimulatedTopics
from kgroup.types import TopicPartition
from kgroup.worker_thread import compute_inline

STOPPING: Final = 60.0
"""Seconds that a program has to end once it was asked to; then it is killed."""
_AFTER_AN_END: Final = (0.5, 5.0)
"""Seconds after which a program that ended by itself is started again."""


@final
@attrs.define(eq=False)
class ProgramRun:
    """One run of a program.

    Attributes:
        process: what the program was given.
        observer: looks on.
        plug: its way into the network.
        scope: holds all of its tasks.
        over: set when it has ended, or was killed.
        crashed: whether it was killed.
    """

    process: Process
    observer: MemberObserver
    plug: Plug
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    over: trio.Event = attrs.field(factory=trio.Event)
    crashed: bool = False

    @property
    def owner(self) -> str:
        """Whom its tasks belong to."""
        return f"{self.process.name}, life {self.process.life}"


@final
class RunningPrograms:
    """All programs of one simulation.

    Args:
        plan: says which there are.
        worker: what each of them runs.
        recorder: is told what happens.
        network: what they are plugged into.
        log: where records are read.
        topics: tells which creation of its topic a record belongs to.
        servers: the brokers.
        nursery: where they run; cancelled only when all is over.
        new_random: makes a generator of chance for a purpose.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        worker: Worker,
        recorder: Recorder,
        network: Network,
        log: ReadableLog,
        topics: SimulatedTopics,
        servers: str,
        nursery: trio.Nursery,
        new_random: Callable[[str], Random],
    ) -> None:
        self._plan = plan
        self._worker = worker
        self._recorder = recorder
        self._network = network
        self._log = log
        self._topics = topics
        self._store: dict[TopicPartition, int] = {}
        self._servers = servers
        self._nursery = nursery
        self._new_random = new_random
        self._freezer = Freezer()
        self._lives: dict[str, ProgramRun] = {}
        self._counts: Counter[str] = Counter()
        self._barred: Counter[str] = Counter()
        self._changed = trio.Event()
        self._ending = False

    @property
    def running(self) -> tuple[str, ...]:
        """The names of those that run."""
        return tuple(sorted(self._lives))

    def life_of(self, name: str) -> ProgramRun | None:
        """The program of this name that runs now, or None."""
        return self._lives.get(name)

    async def keep_running(self, member: MemberPlan) -> None:
        """Start a program, and again whenever it has ended, as a service manager does.

        It returns when all are to end.
        """
        chance = self._new_random(f"restarts of {member.name}")
        await trio.sleep_until(member.start_at)
        while not self._ending:
            if self._barred[member.name]:
                await self._changed.wait()
                continue
            life = self.begin(member.name, member.group_instance_id)
            await life.over.wait()
            if not life.crashed and not self._ending:
                await trio.sleep(chance.uniform(*_AFTER_AN_END))

    def begin(self, name: str, group_instance_id: str | None) -> ProgramRun:
        """Start a program."""
        self._counts[name] += 1
        number = self._counts[name]
        observer = MemberObserver(self._recorder, name, number, self._topics.creation_of)
        process = Process(
            name=name,
            life=number,
            plan=self._plan,
            bootstrap_servers=self._servers,
            group_instance_id=group_instance_id,
            random=self._new_random(f"work of {name}, life {number}"),
            observer=observer,
            log=self._log,
            store=self._store,
        )
        life = ProgramRun(process, observer, self._network.plug_in(name))
        self._lives[name] = life
        observer.note(history.ProcessStarted, group_instance_id=group_instance_id)
        self._nursery.start_soon(self._run, life)
        return life

    def crash(self, life: ProgramRun) -> None:
        """Kill a program. One that is over: nothing."""
        if life.over.is_set():
            return
        life.plug.pull_out()
        life.observer.note(history.ProcessCrashed)
        life.observer.gone = life.crashed = True
        life.scope.cancel()
        self._freezer.thaw(life.owner)
        self._over(life)

    async def stop(self, life: ProgramRun) -> None:
        """Ask a program to end, and kill it if it does not."""
        life.observer.shut_down("the program is asked to end")
        with trio.move_on_after(STOPPING):
            await life.over.wait()
        self.crash(life)

    async def freeze(self, life: ProgramRun) -> bool:
        """Freeze a program; False if it is over, or frozen already."""
        if self._freezer.is_frozen(life.owner) or life.over.is_set():
            await trio.lowlevel.checkpoint()
            return False
        await self._freezer.freeze(life.owner)
        life.observer.note(history.ProcessFrozen)
        return True

    def thaw(self, life: ProgramRun) -> None:
        """Let a program go on."""
        life.observer.note(history.ProcessThawed)
        self._freezer.thaw(life.owner)

    def thaw_all(self) -> None:
        """Let every frozen program go on, so that it can be cancelled."""
        self._freezer.thaw_all()

    @asynccontextmanager
    async def barred(self, name: str) -> AsyncIterator[None]:
        """While this lasts the program is not started again."""
        self._barred[name] += 1
        try:
            yield
        finally:
            self._barred[name] -= 1
            self._wake()

    async def end(self) -> None:
        """Ask all to end, and wait until they have."""
        self._ending = True
        self._wake()
        async with trio.open_nursery() as nursery:
            for life in list(self._lives.values()):
                nursery.start_soon(self.stop, life)

    async def _run(self, life: ProgramRun) -> None:
        runtime = self._runtime(life)
        default_runtime_factory.set(lambda: runtime)
        try:
            with owned_by(life.owner), life.scope:
                # A nursery of its own: its tasks inherit the owner, this one is told of the end.
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._guarded, life)
        except BaseExceptionGroup as group:
            # A program that is killed while its tasks fail raises what they failed with beside
            # the cancellation. It counts no more; only a cancellation from outside goes on.
            outside = group.subgroup(trio.Cancelled) if life.crashed else group
            if outside is not None:
                raise outside from None
        if not life.crashed:
            self._over(life)

    async def _guarded(self, life: ProgramRun) -> None:
        error: str | None = None
        try:
            await self._worker(life.process)
        except Exception as raised:  # noqa: BLE001 # a program may fail as it likes
            error = _told(raised)
        life.observer.note(history.ProcessEnded, error=error)

    def _runtime(self, life: ProgramRun) -> Runtime:
        def source(config: GroupConfig, on_fault: Callable[..., None]) -> RecordSource:
            life.observer.note(
                history.GroupOpened,
                group_id=config.group_id,
                auto_offset_reset=config.auto_offset_reset.value,
                drain_timeout=config.drain_timeout,
                heartbeat_interval=config.heartbeat_interval,
                partition_watch_interval=config.partition_watch_interval,
                rebalance_timeout=config.rebalance_timeout,
                isolation_level=config.isolation_level.value,
            )
            return MemorySource(config, on_fault, self._log)

        return Runtime(
            open_stream=life.plug.open_stream,
            clock=TrioClock(),
            random=self._new_random(f"choices of {life.owner}"),
            record_source=source,
            compute=lambda: compute_inline,
            observer=life.observer,
        )

    def _over(self, life: ProgramRun) -> None:
        if self._lives.get(life.process.name) is life:
            del self._lives[life.process.name]
        life.over.set()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _told(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_told(one) for one in error.exceptions)
    return f"{type(error).__name__}: {error}"
