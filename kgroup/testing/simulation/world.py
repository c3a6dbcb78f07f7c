"""Runs one plan: brokers, network, programs, records, faults, and the quiet at the end.

INVARIANTS: every task here belongs to nobody that can be frozen; a program that crashes is cut
off before it is cancelled, so that no shield of it commits or leaves; after the plan's duration
nothing new goes wrong, and the groups have a bounded time to settle.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Final, final

import attrs
import trio

from kgroup.broker.server import Broker, in_memory
from kgroup.clocks import TrioClock
from kgroup.config import GroupConfig
from kgroup.environment import Environment, surroundings
from kgroup.model import TopicPartition
from kgroup.protocols import RecordSource
from kgroup.records.memory import MemorySource
from kgroup.testing.simulation import facts, faults
from kgroup.testing.simulation.faults import EVERYBODY, Fault
from kgroup.testing.simulation.freezing import Freezer, owned_by
from kgroup.testing.simulation.network import Network, Plug, Route
from kgroup.testing.simulation.observer import CoordinatorObserver, MemberObserver, Recorder
from kgroup.testing.simulation.plan import MemberPlan, Plan
from kgroup.testing.simulation.process import Process, Worker

_LOOK_EVERY: Final = 0.5
"""Seconds between two looks at whether everything has settled."""
_STOPPING: Final = 60.0
"""Seconds that a program has to end once it was asked to; then it is killed."""
_AFTER_AN_ERROR: Final = (0.5, 5.0)
"""Seconds after which a program that failed by itself is started again."""


@final
@attrs.define(eq=False)
class _Life:
    """One run of a program."""

    process: Process
    observer: MemberObserver
    plug: Plug
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    over: trio.Event = attrs.field(factory=trio.Event)
    crashed: bool = False


@final
class World:
    """What a plan becomes. Made and run once, inside of one run of trio."""

    def __init__(self, plan: Plan, worker: Worker, recorder: Recorder) -> None:
        self._plan = plan
        self._worker = worker
        self._recorder = recorder
        self._network = Network(self._random("network"), plan.latency)
        self._freezer = Freezer()
        self._lives: dict[str, _Life] = {}
        self._counts: Counter[str] = Counter()
        self._wanted: Counter[str] = Counter()
        self._changed = trio.Event()
        self._stopping = False

    async def run(self) -> None:
        """Run the plan to its end."""
        plan = self._plan
        async with (
            in_memory(plan.broker_settings, random=self._random("brokers")) as self._broker,
            trio.open_nursery() as self._nursery,
        ):
            self._connect()
            self._nursery.start_soon(self._network.run)
            for topic, partitions in plan.topics.items():
                await self._broker.create_topic(topic, partitions)
                self._note(facts.TopicChanged, topic=topic, partitions=partitions)
            async with trio.open_nursery() as programs:
                async with trio.open_nursery() as trouble:
                    for member in plan.members:
                        programs.start_soon(self._supervise, member)
                    trouble.start_soon(self._feed)
                    for fault in plan.faults:
                        trouble.start_soon(self._happen, fault)
                    trouble.start_soon(trio.sleep_until, plan.duration)
                self._note(facts.Quiet, running=tuple(sorted(self._lives)))
                await self._settle()
                self._stopping = True
                self._wake()
                for life in list(self._lives.values()):
                    programs.start_soon(self._stop, life)
            self._note(facts.Over)
            self._nursery.cancel_scope.cancel()

    # Brokers.

    def _connect(self) -> None:
        broker = self._broker
        observer = CoordinatorObserver(self._recorder, self._partitions_of)
        desk = broker.cluster.groups
        desk.watch = observer.watching(1, desk.coordinator)
        self._network.listen(broker.host, broker.port, "b1", broker.accept)

    def _partitions_of(self, topic: str) -> int | None:
        return self._broker.cluster.topics.partitions(topic)

    async def _feed(self) -> None:
        """Write records until the plan's time is over."""
        chance = self._random("records")
        plan, number = self._plan, 0
        while True:
            await trio.sleep(chance.expovariate(1 / plan.records_every))
            if trio.current_time() >= plan.duration:
                return
            topic = chance.choice(sorted(plan.topics))
            partition = TopicPartition(topic, chance.randrange(self._partitions_of(topic) or 1))
            count = chance.randint(1, plan.records_at_once)
            values = [b"%d" % one for one in range(number, number + count)]
            number += count
            first = await self._broker.append(partition.topic, partition.partition, values)
            self._note(facts.Appended, partition=partition, first=first, next_offset=first + count)

    # Programs.

    async def _supervise(self, member: MemberPlan) -> None:
        """Keep a program running, as a service manager does, until the simulation ends."""
        chance = self._random(f"restarts of {member.name}")
        await trio.sleep_until(member.start_at)
        while not self._stopping:
            while self._wanted[member.name] and not self._stopping:
                await self._changed.wait()
            if self._stopping:
                return
            life = self._begin(member.name, member.group_instance_id)
            failed = await self._live(life)
            if failed and not self._stopping:
                await trio.sleep(chance.uniform(*_AFTER_AN_ERROR))

    def _begin(self, name: str, group_instance_id: str | None) -> _Life:
        self._counts[name] += 1
        number = self._counts[name]
        observer = MemberObserver(self._recorder, name, number)
        process = Process(
            name=name,
            life=number,
            plan=self._plan,
            bootstrap_servers=self._broker.bootstrap_servers,
            group_instance_id=group_instance_id,
            random=self._random(f"work of {name}, life {number}"),
            observer=observer,
        )
        life = _Life(process, observer, self._network.plug_in(name))
        self._lives[name] = life
        observer.note(facts.ProcessStarted, group_instance_id=group_instance_id)
        self._nursery.start_soon(self._run_program, life)
        return life

    async def _live(self, life: _Life) -> bool:
        """Wait for the end of a life; whether it ended by a failure of its own."""
        await life.over.wait()
        if self._lives.get(life.process.name) is life:
            del self._lives[life.process.name]
        return not life.crashed

    async def _run_program(self, life: _Life) -> None:
        process = life.process
        environment = self._environment(life)
        surroundings.set(lambda: environment)
        error: str | None = None
        with owned_by(process.name), life.scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(self._guarded, life)
        if not life.crashed:
            life.over.set()

    async def _guarded(self, life: _Life) -> None:
        error: str | None = None
        try:
            await self._worker(life.process)
        except Exception as raised:  # noqa: BLE001 # a program may fail as it likes
            error = _told(raised)
        life.observer.note(facts.ProcessEnded, error=error)

    def _environment(self, life: _Life) -> Environment:
        log = self._broker.log

        def source(config: GroupConfig, on_fault: Callable[..., None]) -> RecordSource:
            return MemorySource(config, on_fault, log)

        process = life.process
        return Environment(
            open_stream=life.plug.open_stream,
            clock=TrioClock(),
            random=self._random(f"choices of {process.name}, life {process.life}"),
            record_source=source,
            observer=life.observer,
        )

    def _crash(self, life: _Life) -> None:
        """A program is gone: cut off first, so that no shield of it reaches a broker."""
        if life.over.is_set():
            return
        life.plug.pull_out()
        life.observer.note(facts.ProcessCrashed)
        life.observer.gone = life.crashed = True
        life.scope.cancel()
        life.over.set()

    async def _stop(self, life: _Life) -> None:
        """Ask a program to end, and kill it if it does not."""
        life.observer.shut_down("the program is asked to end")
        with trio.move_on_after(_STOPPING):
            await life.over.wait()
        self._crash(life)

    # Faults.

    async def _happen(self, fault: Fault) -> None:
        await trio.sleep_until(fault.at)
        self._note(facts.FaultBegan, fault=fault)
        async with _HAPPENINGS[type(fault)](self, fault):
            await trio.sleep(getattr(fault, "seconds", 0.0))
        self._note(facts.FaultEnded, fault=fault)

    @asynccontextmanager
    async def _freeze(self, fault: faults.Freeze) -> AsyncIterator[None]:
        life = self._lives.get(fault.process)
        if life is None or self._freezer.is_frozen(fault.process):
            yield
            return
        routes = self._routes(fault.process, EVERYBODY)
        for route in routes:
            self._network.hold(route)
        await self._freezer.freeze(fault.process)
        life.observer.note(facts.ProcessFrozen)
        yield
        life.observer.note(facts.ProcessThawed)
        self._freezer.thaw(fault.process)
        for route in routes:
            self._network.release(route)

    @asynccontextmanager
    async def _crash_for_a_while(self, fault: faults.Crash) -> AsyncIterator[None]:
        async with self._without(fault.process):
            if (life := self._lives.get(fault.process)) is not None:
                self._crash(life)
            yield

    @asynccontextmanager
    async def _stop_for_a_while(self, fault: faults.Stop) -> AsyncIterator[None]:
        async with self._without(fault.process):
            if (life := self._lives.get(fault.process)) is not None:
                await self._stop(life)
            yield

    @asynccontextmanager
    async def _without(self, name: str) -> AsyncIterator[None]:
        """Keep a program from being started again."""
        self._wanted[name] += 1
        try:
            yield
        finally:
            self._wanted[name] -= 1
            self._wake()

    @asynccontextmanager
    async def _slow_work(self, fault: faults.SlowWork) -> AsyncIterator[None]:
        life = self._lives.get(fault.process)
        if life is not None:
            life.process.slowness = fault.times
        yield
        if life is not None:
            life.process.slowness = 1.0

    @asynccontextmanager
    async def _split(self, fault: faults.Split) -> AsyncIterator[None]:
        routes = self._routes(fault.process, fault.broker)
        for route in routes:
            self._network.hold(route)
        yield
        for route in routes:
            self._network.release(route)

    @asynccontextmanager
    async def _cut(self, fault: faults.Cut) -> AsyncIterator[None]:
        for route in self._routes(fault.process, fault.broker):
            self._network.cut(route)
        yield

    @asynccontextmanager
    async def _slow_network(self, fault: faults.SlowNetwork) -> AsyncIterator[None]:
        routes = self._routes(fault.process, fault.broker)
        for route in routes:
            self._network.slow_down(route, fault.delay)
        yield
        for route in routes:
            self._network.slow_down(route, 0.0)

    @asynccontextmanager
    async def _more_partitions(self, fault: faults.MorePartitions) -> AsyncIterator[None]:
        partitions = (self._partitions_of(fault.topic) or 0) + fault.by
        await self._broker.add_partitions(fault.topic, partitions)
        self._note(facts.TopicChanged, topic=fault.topic, partitions=partitions)
        yield

    def _routes(self, process: str, broker: str) -> list[Route]:
        brokers = ["b1"] if broker == EVERYBODY else [broker]
        names = [one.name for one in self._plan.members] if process == EVERYBODY else [process]
        return [(name, one) for name in names for one in brokers]

    # The end.

    async def _settle(self) -> None:
        """Wait until nothing is left to do, as long as it may take."""
        deadline = trio.current_time() + self._patience()
        while not await self._is_settled() and trio.current_time() < deadline:
            await trio.sleep(_LOOK_EVERY)
        committed = await self._broker.committed("group")
        self._note(
            facts.Settled,
            stable=await self._is_stable(),
            committed={name: at.offset for name, at in sorted(committed.items())},
            ends=self._ends(),
        )

    def _patience(self) -> float:
        config = Process.config
        del config
        return 120.0

    async def _is_stable(self) -> bool:
        return all(group.state in ("Stable", "Empty") for group in await self._broker.groups())

    async def _is_settled(self) -> bool:
        if not await self._is_stable():
            return False
        committed = await self._broker.committed("group")
        return all(
            name in committed and committed[name].offset >= end
            for name, end in self._ends().items()
            if end
        )

    def _ends(self) -> dict[TopicPartition, int]:
        return {
            name: self._broker.log.end_offset(name)
            for topic in sorted(self._plan.topics)
            for name in (
                TopicPartition(topic, number) for number in range(self._partitions_of(topic) or 0)
            )
        }

    # Within.

    def _note(self, kind: Callable[..., facts.Fact], **fields: Any) -> None:
        self._recorder.note(kind, **fields)

    def _random(self, of: str) -> random.Random:
        """A generator of its own for each purpose, so that one does not disturb the others."""
        return random.Random(f"{self._plan.seed} {of}")

    def _wake(self) -> None:
        self._changed.set()
        self._changed = trio.Event()


def _told(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return "; ".join(_told(one) for one in error.exceptions)
    return f"{type(error).__name__}: {error}"


_Happening = Callable[[World, Any], AbstractAsyncContextManager[None]]
_HAPPENINGS: Final[dict[type[Fault], _Happening]] = {
    faults.Freeze: World._freeze,
    faults.Crash: World._crash_for_a_while,
    faults.Stop: World._stop_for_a_while,
    faults.SlowWork: World._slow_work,
    faults.Split: World._split,
    faults.Cut: World._cut,
    faults.SlowNetwork: World._slow_network,
    faults.MorePartitions: World._more_partitions,
}
"""What each fault does: entered as it begins, left as it ends."""
