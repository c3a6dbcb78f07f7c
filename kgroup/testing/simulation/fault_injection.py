"""Injects faults: for each class of fault a context manager that begins and ends its effect.

``fault_generation`` and ``targeted_faults`` choose faults; how programs are frozen and killed is in
``programs`` and ``freezing``.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Final, final

import attrs
import trio

from kgroup.broker import EmbeddedCluster
from kgroup.testing.simulation import faults, history
from kgroup.testing.simulation.coordination import Coordination
from kgroup.testing.simulation.faults import ALL, Fault
from kgroup.testing.simulation.logins import SECOND, SimulatedLogins
from kgroup.testing.simulation.network import Network, Route
from kgroup.testing.simulation.observer import CoordinatorObserver, Recorder
from kgroup.testing.simulation.plan import Plan
from kgroup.testing.simulation.producers import RecordWriter
from kgroup.testing.simulation.programs import RunningPrograms
from kgroup.testing.simulation.states import States
from kgroup.testing.simulation.topics import SimulatedTopics
from kgroup.types import TopicPartition


@final
@attrs.define(eq=False, kw_only=True)
class InjectionContext:
    """The parts of a simulation that faults act on."""

    plan: Plan
    recorder: Recorder
    network: Network
    cluster: EmbeddedCluster
    coordination: Coordination
    coordinators: CoordinatorObserver
    programs: RunningPrograms
    topics: SimulatedTopics
    writer: RecordWriter
    states: States
    logins: SimulatedLogins
    brokers_down: set[int] = attrs.field(factory=set)

    def routes(self, process: str, broker: str) -> list[Route]:
        """The routes between a program and a broker, or all of either."""
        programs = [one.name for one in self.plan.members] if process == ALL else [process]
        brokers = map(broker_name, self.cluster.nodes) if broker == ALL else [broker]
        return [(name, one) for one in brokers for name in programs]

    def after(self, node_id: int | None) -> int | None:
        """The next running broker after this one, or None if there is no other."""
        up = [one for one in self.cluster.nodes if one not in self.brokers_down]
        later = [one for one in up if node_id is not None and one > node_id]
        found = next(iter(later or up), None)
        return None if found == node_id else found


async def inject(context: InjectionContext, fault: Fault) -> None:
    """Wait for a fault's time, and for its moment if it has one, and inject it.

    A fault whose moment does not come early enough for the fault to end within the plan's duration
    is not injected.
    """
    await trio.sleep_until(fault.at)
    affected = _affected(context, fault)
    if fault.when is not None:
        lasts = fault.seconds if isinstance(fault, faults.LastingFault) else 0.0
        with trio.move_on_at(context.plan.duration - lasts) as waiting:
            await context.states.wait_for(fault.when, affected)
        if waiting.cancelled_caught:
            return
    context.recorder.record(
        history.FaultBegan,
        fault=fault,
        members=tuple(map(context.states.of, affected)),
        coordinator=context.states.coordinator,
    )
    async with INJECTORS[type(fault)](context, fault):
        if isinstance(fault, faults.LastingFault):
            await trio.sleep(fault.seconds)
    context.recorder.record(history.FaultEnded, fault=fault)


def _affected(context: InjectionContext, fault: Fault) -> tuple[str, ...]:
    """The programs that a fault affects: the one that it names, or all."""
    process = getattr(fault, "process", ALL)
    return tuple(one.name for one in context.plan.members) if process == ALL else (process,)


def broker_name(node_id: int) -> str:
    """A broker's name in faults and in the history."""
    return f"b{node_id}"


def node_id_of(broker: str) -> int:
    """The node id of a broker's name."""
    return int(broker.removeprefix("b"))


# Members.


@asynccontextmanager
async def _freeze(context: InjectionContext, fault: faults.Freeze) -> AsyncIterator[None]:
    program = context.programs.running(fault.process)
    if program is None or not await context.programs.freeze(program):
        yield
        return
    with _routes_held(context, context.routes(fault.process, ALL)):
        yield
        context.programs.thaw(program)


@asynccontextmanager
async def _crash(context: InjectionContext, fault: faults.Crash) -> AsyncIterator[None]:
    async with context.programs.without_restarts(fault.process):
        if (program := context.programs.running(fault.process)) is not None:
            context.programs.crash(program)
        yield


@asynccontextmanager
async def _stop(context: InjectionContext, fault: faults.Stop) -> AsyncIterator[None]:
    async with context.programs.without_restarts(fault.process):
        if (program := context.programs.running(fault.process)) is not None:
            await context.programs.stop(program)
        yield


@asynccontextmanager
async def _second_program(
    context: InjectionContext, fault: faults.SecondProgram
) -> AsyncIterator[None]:
    """Start a second program with a static member's instance id; for a dynamic member, one more."""
    name = fault.process + SECOND
    instances = {one.name: one.group_instance_id for one in context.plan.members}
    if context.programs.running(name) is not None:
        yield
        return
    second = context.programs.begin(name, instances.get(fault.process))
    yield
    await context.programs.stop(second)


@asynccontextmanager
async def _slow_work(context: InjectionContext, fault: faults.SlowWork) -> AsyncIterator[None]:
    program = context.programs.running(fault.process)
    if program is not None:
        program.process.slowness = fault.times
    yield
    if program is not None:
        program.process.slowness = 1.0


# The network.


@asynccontextmanager
async def _split(context: InjectionContext, fault: faults.Split) -> AsyncIterator[None]:
    with _routes_held(context, context.routes(fault.process, fault.broker)):
        yield


@asynccontextmanager
async def _stall(context: InjectionContext, fault: faults.Stall) -> AsyncIterator[None]:
    routes = context.routes(fault.process, fault.broker)
    stalled = [end for route in routes for end in context.network.stall(route)]
    yield
    for end in stalled:
        end.resume()


@asynccontextmanager
async def _cut(context: InjectionContext, fault: faults.Cut) -> AsyncIterator[None]:
    for route in context.routes(fault.process, fault.broker):
        context.network.cut(route)
    yield


@asynccontextmanager
async def _slow_network(
    context: InjectionContext, fault: faults.SlowNetwork
) -> AsyncIterator[None]:
    routes = context.routes(fault.process, fault.broker)
    for route in routes:
        context.network.slow_down(route, fault.delay)
    yield
    for route in routes:
        context.network.slow_down(route, 0.0)


@contextmanager
def _routes_held(context: InjectionContext, routes: list[Route]) -> Iterator[None]:
    for route in routes:
        context.network.hold(route)
    try:
        yield
    finally:
        for route in routes:
            context.network.release(route)


# Brokers.


@asynccontextmanager
async def _broker_stops(
    context: InjectionContext, fault: faults.BrokerStops
) -> AsyncIterator[None]:
    async with _down(context, fault.broker) as was_up:
        if was_up:
            context.coordination.broker_stops(node_id_of(fault.broker), killed=False)
            await context.cluster.nodes[node_id_of(fault.broker)].stop(loading=fault.loading)
        yield


@asynccontextmanager
async def _broker_dies(context: InjectionContext, fault: faults.BrokerDies) -> AsyncIterator[None]:
    async with _down(context, fault.broker) as was_up:
        if was_up:
            context.coordination.broker_stops(node_id_of(fault.broker), killed=True)
            context.cluster.nodes[node_id_of(fault.broker)].kill(loading=fault.loading)
        yield


@asynccontextmanager
async def _down(context: InjectionContext, broker: str) -> AsyncIterator[bool]:
    """Start a broker again at the end; yields False if another fault has it down already."""
    node_id = node_id_of(broker)
    if node_id in context.brokers_down:
        yield False
        return
    context.brokers_down.add(node_id)
    yield True
    context.brokers_down.remove(node_id)
    await context.cluster.nodes[node_id].start()
    context.coordination.broker_starts(node_id)


@asynccontextmanager
async def _slow_broker(context: InjectionContext, fault: faults.SlowBroker) -> AsyncIterator[None]:
    slowness = context.cluster.nodes[node_id_of(fault.broker)].slow(fault.delay)
    yield
    slowness.cancel()


@asynccontextmanager
async def _coordinator_moves(
    context: InjectionContext, fault: faults.CoordinatorMoves
) -> AsyncIterator[None]:
    await context.coordination.move_coordinator(fault, context.after)
    yield


@asynccontextmanager
async def _leader_moves(
    context: InjectionContext, fault: faults.LeaderMoves
) -> AsyncIterator[None]:
    partition = TopicPartition(fault.topic, fault.partition)
    if fault.partition >= context.topics.partitions(fault.topic):
        yield  # the topic was deleted, or recreated with fewer partitions
        return
    node_id = context.after(context.cluster.leader_of(partition))
    if node_id is not None:
        await context.cluster.move_leader(partition, node_id)
    yield


# Logins.


@asynccontextmanager
async def _sessions_end(
    context: InjectionContext, fault: faults.SessionsEnd
) -> AsyncIterator[None]:
    context.cluster.end_sessions(fault.process)
    yield


@asynccontextmanager
async def _user_revoked(
    context: InjectionContext, fault: faults.UserRevoked
) -> AsyncIterator[None]:
    with context.logins.user_revoked(context.cluster, fault.process):
        yield


@asynccontextmanager
async def _password_changes(
    context: InjectionContext, fault: faults.PasswordChanges
) -> AsyncIterator[None]:
    with context.logins.password_changes(context.cluster, fault.process):
        yield


@asynccontextmanager
async def _right_revoked(
    context: InjectionContext, fault: faults.RightRevoked
) -> AsyncIterator[None]:
    with context.logins.right_revoked(context.cluster, fault.process, fault.resource_type):
        yield


# Topics.


@asynccontextmanager
async def _more_partitions(
    context: InjectionContext, fault: faults.MorePartitions
) -> AsyncIterator[None]:
    if partitions := context.topics.partitions(fault.topic):
        await context.topics.grow(fault.topic, partitions + fault.by)
    yield


@asynccontextmanager
async def _topic_deleted(
    context: InjectionContext, fault: faults.TopicDeleted
) -> AsyncIterator[None]:
    if not context.topics.partitions(fault.topic):
        yield
        return
    await context.topics.delete(fault.topic)
    yield
    await context.topics.create(fault.topic, fault.partitions)


INJECTORS: Final[
    dict[type[Fault], Callable[[InjectionContext, Any], AbstractAsyncContextManager[None]]]
] = {
    faults.Freeze: _freeze,
    faults.Crash: _crash,
    faults.Stop: _stop,
    faults.SecondProgram: _second_program,
    faults.SlowWork: _slow_work,
    faults.Split: _split,
    faults.Stall: _stall,
    faults.Cut: _cut,
    faults.SlowNetwork: _slow_network,
    faults.BrokerStops: _broker_stops,
    faults.BrokerDies: _broker_dies,
    faults.SlowBroker: _slow_broker,
    faults.CoordinatorMoves: _coordinator_moves,
    faults.LeaderMoves: _leader_moves,
    faults.SessionsEnd: _sessions_end,
    faults.UserRevoked: _user_revoked,
    faults.PasswordChanges: _password_changes,
    faults.RightRevoked: _right_revoked,
    faults.MorePartitions: _more_partitions,
    faults.TopicDeleted: _topic_deleted,
}
"""For each class of fault its context manager: entered when it begins, left when it ends."""
