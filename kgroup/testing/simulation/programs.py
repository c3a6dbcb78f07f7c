"""The programs of a simulation: started, restarted, asked to end, frozen, killed.

INVARIANTS: the tasks of one run of a program belong to one owner, and only they are frozen or
killed with it. A program that crashes is disconnected before it is cancelled, so that no shielded
scope of it can still commit or leave. Nothing that it does afterwards is recorded.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from random import Random
from typing import Any, Final, final

import attrs
import trio

from kgroup.clocks import TrioClock
from kgroup.config import GroupConfig
from kgroup.functions import is_program_error
from kgroup.interfaces import RecordSource
from kgroup.notifier import Notifier
from kgroup.records.memory import MemorySource, ReadableLog
from kgroup.runtime import Runtime, default_runtime_factory
from kgroup.testing.simulation import history, program_errors
from kgroup.testing.simulation.freezing import Freezer, owned_by
from kgroup.testing.simulation.logins import SimulatedLogins
from kgroup.testing.simulation.network import Network, Plug
from kgroup.testing.simulation.observer import MemberObserver, Recorder
from kgroup.testing.simulation.plan import MemberPlan, Plan
from kgroup.testing.simulation.process import Process, Worker
from kgroup.testing.simulation.topics import SimulatedTopics
from kgroup.testing.simulation.wall_clock import DriftingWallClock
from kgroup.testing.simulation.workload import NotAsyncError
from kgroup.worker_thread import compute_inline

STOP_TIMEOUT: Final = 60.0
"""Seconds that a program has to end after it was asked to; then it is killed."""
_RESTART_DELAY: Final = (0.5, 5.0)
"""Seconds, at least and at most, until a program that ended by itself is started again."""


@final
@attrs.define(eq=False)
class ProgramRun:
    """One run of a program.

    Attributes:
        process: what the program was given.
        observer: records what it does.
        plug: its connection to the network.
        scope: holds all of its tasks.
        ended: set when it has ended or was killed.
        crashed: whether it was killed.
    """

    process: Process
    observer: MemberObserver
    plug: Plug
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    ended: trio.Event = attrs.field(factory=trio.Event)
    crashed: bool = False

    @property
    def owner(self) -> str:
        """The owner of its tasks; see ``freezing``."""
        return f"{self.process.name}, life {self.process.life}"


@final
class RunningPrograms:
    """All programs of one simulation.

    Args:
        plan: names the members.
        worker: the program that each of them runs.
        store: what they share.
        recorder: records what happens.
        network: where their connections go.
        log: the brokers' logs, from which records are read.
        topics: knows which creation of its topic a record belongs to.
        servers: the brokers' addresses.
        logins: how the programs log in there.
        nursery: where the programs run; cancelled only when the simulation is over.
        new_random: makes a generator for a purpose; see ``Engine``.
    """

    def __init__(
        self,
        *,
        plan: Plan,
        worker: Worker,
        store: Any,
        recorder: Recorder,
        network: Network,
        log: ReadableLog,
        topics: SimulatedTopics,
        servers: str,
        logins: SimulatedLogins,
        nursery: trio.Nursery,
        new_random: Callable[[str], Random],
    ) -> None:
        self._plan = plan
        self._worker = worker
        self._recorder = recorder
        self._network = network
        self._log = log
        self._topics = topics
        self._store = store
        self._servers = servers
        self._logins = logins
        self._nursery = nursery
        self._new_random = new_random
        self._freezer = Freezer()
        self._running: dict[str, ProgramRun] = {}
        self._starts: Counter[str] = Counter()
        self._held_back: Counter[str] = Counter()
        self._changed = Notifier()
        self._ending = False

    @property
    def running_names(self) -> tuple[str, ...]:
        """The names of the programs that run."""
        return tuple(sorted(self._running))

    def running(self, name: str) -> ProgramRun | None:
        """The program of this name that runs now, or None."""
        return self._running.get(name)

    async def keep_running(self, member: MemberPlan) -> None:
        """Start a program, and restart it whenever it ends, as a service manager does.

        Returns when the simulation ends its programs.
        """
        random = self._new_random(f"restarts of {member.name}")
        await trio.sleep_until(member.start_at)
        while not self._ending:
            if self._held_back[member.name]:
                await self._changed.wait()
                continue
            program = self.begin(member.name, member.group_instance_id)
            await program.ended.wait()
            if not program.crashed and not self._ending:
                await trio.sleep(random.uniform(*_RESTART_DELAY))

    def begin(self, name: str, group_instance_id: str | None) -> ProgramRun:
        """Start a program."""
        self._starts[name] += 1
        number = self._starts[name]
        observer = MemberObserver(self._recorder, name, number, self._topics.creation_of)
        plug = self._network.plug_in(name)
        process = Process(
            name=name,
            life=number,
            plan=self._plan,
            bootstrap_servers=self._servers,
            security=self._logins.of_program(name),
            group_instance_id=group_instance_id,
            random=self._new_random(f"work of {name}, life {number}"),
            observer=observer,
            log=self._log,
            open_stream=plug.open_stream,
            store=self._store,
        )
        program = ProgramRun(process, observer, plug)
        self._running[name] = program
        observer.record(history.ProcessStarted, group_instance_id=group_instance_id)
        self._nursery.start_soon(self._run, program)
        return program

    def crash(self, program: ProgramRun) -> None:
        """Kill a program, unless it has ended."""
        if program.ended.is_set():
            return
        program.plug.pull_out()
        program.observer.record(history.ProcessCrashed)
        program.observer.gone = program.crashed = True
        program.scope.cancel()
        self._freezer.thaw(program.owner)
        self._remove(program)

    async def stop(self, program: ProgramRun) -> None:
        """Ask a program to end, and kill it if it does not."""
        program.observer.shut_down("the program is asked to end")
        with trio.move_on_after(STOP_TIMEOUT):
            await program.ended.wait()
        self.crash(program)

    async def freeze(self, program: ProgramRun) -> bool:
        """Freeze a program; False if it has ended or is frozen already."""
        if self._freezer.is_frozen(program.owner) or program.ended.is_set():
            await trio.lowlevel.checkpoint()
            return False
        await self._freezer.freeze(program.owner)
        program.observer.record(history.ProcessFrozen)
        return True

    def thaw(self, program: ProgramRun) -> None:
        """Let a frozen program continue."""
        program.observer.record(history.ProcessThawed)
        self._freezer.thaw(program.owner)

    def thaw_all(self) -> None:
        """Let every frozen program continue, so that it can be cancelled."""
        self._freezer.thaw_all()

    @asynccontextmanager
    async def without_restarts(self, name: str) -> AsyncIterator[None]:
        """Do not start the program again while this lasts."""
        self._held_back[name] += 1
        try:
            yield
        finally:
            self._held_back[name] -= 1
            self._changed.notify()

    async def end(self) -> None:
        """Ask all programs to end, and wait until they have."""
        self._ending = True
        self._changed.notify()
        async with trio.open_nursery() as nursery:
            for program in list(self._running.values()):
                nursery.start_soon(self.stop, program)

    async def _run(self, program: ProgramRun) -> None:
        runtime = self._runtime(program)
        default_runtime_factory.set(lambda: runtime)
        try:
            with owned_by(program.owner), program.scope:
                # A nursery of its own: its tasks inherit the owner, and this task sees their end.
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(self._guarded, program)
        except BaseExceptionGroup as group:
            # A program that is killed while its tasks fail raises their errors together with the
            # cancellation. It no longer counts; only a cancellation from outside is passed on.
            outside = group.subgroup(trio.Cancelled) if program.crashed else group
            if outside is not None:
                raise outside from None
        if not program.crashed:
            self._remove(program)

    async def _guarded(self, program: ProgramRun) -> None:
        error: BaseException | None = None
        try:
            await self._worker(program.process)
        except NotAsyncError:
            raise  # no restart helps
        except BaseException as raised:
            if not is_program_error(raised):
                raise
            error = raised
        program.observer.record(history.ProcessEnded, **program_errors.described(error))

    def _runtime(self, program: ProgramRun) -> Runtime:
        def source(config: GroupConfig, on_fault: Callable[..., None]) -> RecordSource:
            program.observer.record(
                history.GroupOpened,
                group_id=config.group_id,
                auto_offset_reset=config.auto_offset_reset.value,
                drain_timeout=config.drain_timeout,
                heartbeat_interval=config.heartbeat_interval,
                partition_watch_interval=config.partition_watch_interval,
                rebalance_timeout=config.rebalance_timeout,
                request_timeout=config.request_timeout,
                isolation_level=config.isolation_level.value,
                own_starts=config.starts is not None,
            )
            return MemorySource(config, on_fault, self._log)

        return Runtime(
            open_stream=program.plug.open_stream,
            clock=TrioClock(),
            random=self._new_random(f"choices of {program.owner}"),
            record_source=source,
            compute=lambda: compute_inline,
            wall_clock=DriftingWallClock(
                self._new_random(f"wall clock of {program.owner}"), self._plan.wall_clock_error
            ),
            observer=program.observer,
        )

    def _remove(self, program: ProgramRun) -> None:
        if self._running.get(program.process.name) is program:
            del self._running[program.process.name]
        program.ended.set()
