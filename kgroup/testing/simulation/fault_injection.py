"""What each fault does to the world: a table from its class to what is entered and left again."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from typing import Any, Final, final

import attrs
import trio

from kgroup.broker import EmbeddedCluster
from kgroup.testing.simulation import faults, history
from kgroup.testing.simulation.faults import EVERYBODY, Fault
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
    """What faults happen to."""

    plan: Plan
    recorder: Recorder
    network: Network
    cluster: EmbeddedCluster
    coordinators: CoordinatorObserver
    programs: RunningPrograms
    topics: SimulatedTopics
    writer: RecordWriter
    states: States
    brokers_down: set[int] = attrs.field(factory=set)

    def routes(self, process: str, broker: str) -> list[Route]:
        """The routes between a program and a broker, or all of either."""
        programs = [one.name for one in self.plan.members] if process == EVERYBODY else [process]
        brokers = map(broker_name, self.cluster.nodes) if broker == EVERYBODY else [broker]
        return [(name, one) for one in brokers for name in programs]

    def after(self, node_id: int | None) -> int | None:
        """The next broker that is up after this one, or None if there is no other."""
        up = [one for one in self.cluster.nodes if one not in self.brokers_down]
        later = [one for one in up if node_id is not None and one > node_id]
        found = next(iter(later or up), None)
        return None if found == node_id else found


async def inject(stage: InjectionContext, fault: Fault) -> None:
    """Wait for a fault's time, and for its moment if it has one, and let it inject.

    A fault whose moment does not come while it could still be over in time does not inject.
    """
    await trio.sleep_until(fault.at)
    concerned = _concerned(stage, fault)
    if fault.when is not None:
        lasts = fault.seconds if isinstance(fault, faults.LastingFault) else 0.0
        with trio.move_on_at(stage.plan.duration - lasts) as waiting:
            await stage.states.wait_for(fault.when, concerned)
        if waiting.cancelled_caught:
            return
    stage.recorder.note(
        history.FaultBegan,
        fault=fault,
        members=tuple(map(stage.states.of, concerned)),
        coordinator=stage.states.coordinator,
    )
    async with HAPPENINGS[type(fault)](stage, fault):
        if isinstance(fault, faults.LastingFault):
            await trio.sleep(fault.seconds)
    stage.recorder.note(history.FaultEnded, fault=fault)


def _concerned(stage: InjectionContext, fault: Fault) -> tuple[str, ...]:
    """The programs that a fault is about: one, or all where it names none."""
    process = getattr(fault, "process", EVERYBODY)
    return tuple(one.name for one in stage.plan.members) if process == EVERYBODY else (process,)


def broker_name(node_id: int) -> str:
    """How faults and facts call a broker."""
    return f"b{node_id}"


def node_id_of(broker: str) -> int:
    """The broker of a name."""
    return int(broker.removeprefix("b"))


# Members.


@asynccontextmanager
async def _freeze(stage: InjectionContext, fault: faults.Freeze) -> AsyncIterator[None]:
    life = stage.programs.life_of(fault.process)
    if life is None or not await stage.programs.freeze(life):
        yield
        return
    with _held(stage, stage.routes(fault.process, EVERYBODY)):
        yield
        stage.programs.thaw(life)


@asynccontextmanager
async def _crash(stage: InjectionContext, fault: faults.Crash) -> AsyncIterator[None]:
    async with stage.programs.barred(fault.process):
        if (life := stage.programs.life_of(fault.process)) is not None:
            stage.programs.crash(life)
        yield


@asynccontextmanager
async def _stop(stage: InjectionContext, fault: faults.Stop) -> AsyncIterator[None]:
    async with stage.programs.barred(fault.process):
        if (life := stage.programs.life_of(fault.process)) is not None:
            await stage.programs.stop(life)
        yield


@asynccontextmanager
async def _twin(stage: InjectionContext, fault: faults.Twin) -> AsyncIterator[None]:
    """A second program under a static member's instance id; of another, just one more."""
    name = f"{fault.process}-twin"
    instances = {one.name: one.group_instance_id for one in stage.plan.members}
    if stage.programs.life_of(name) is not None:
        yield
        return
    twin = stage.programs.begin(name, instances.get(fault.process))
    yield
    await stage.programs.stop(twin)


@asynccontextmanager
async def _slow_work(stage: InjectionContext, fault: faults.SlowWork) -> AsyncIterator[None]:
    life = stage.programs.life_of(fault.process)
    if life is not None:
        life.process.slowness = fault.times
    yield
    if life is not None:
        life.process.slowness = 1.0


# The network.


@asynccontextmanager
async def _split(stage: InjectionContext, fault: faults.Split) -> AsyncIterator[None]:
    with _held(stage, stage.routes(fault.process, fault.broker)):
        yield


@asynccontextmanager
async def _stall(stage: InjectionContext, fault: faults.Stall) -> AsyncIterator[None]:
    routes = stage.routes(fault.process, fault.broker)
    stalled = [end for route in routes for end in stage.network.stall(route)]
    yield
    for end in stalled:
        end.resume()


@asynccontextmanager
async def _cut(stage: InjectionContext, fault: faults.Cut) -> AsyncIterator[None]:
    for route in stage.routes(fault.process, fault.broker):
        stage.network.cut(route)
    yield


@asynccontextmanager
async def _slow_network(stage: InjectionContext, fault: faults.SlowNetwork) -> AsyncIterator[None]:
    routes = stage.routes(fault.process, fault.broker)
    for route in routes:
        stage.network.slow_down(route, fault.delay)
    yield
    for route in routes:
        stage.network.slow_down(route, 0.0)


@contextmanager
def _held(stage: InjectionContext, routes: list[Route]) -> Iterator[None]:
    for route in routes:
        stage.network.hold(route)
    try:
        yield
    finally:
        for route in routes:
            stage.network.release(route)


# Brokers.


@asynccontextmanager
async def _broker_stops(stage: InjectionContext, fault: faults.BrokerStops) -> AsyncIterator[None]:
    async with _down(stage, fault.broker) as goes:
        if goes:
            await stage.cluster.nodes[node_id_of(fault.broker)].stop(loading=fault.loading)
        yield


@asynccontextmanager
async def _broker_dies(stage: InjectionContext, fault: faults.BrokerDies) -> AsyncIterator[None]:
    async with _down(stage, fault.broker) as goes:
        if goes:
            stage.cluster.nodes[node_id_of(fault.broker)].kill(loading=fault.loading)
        yield


@asynccontextmanager
async def _down(stage: InjectionContext, broker: str) -> AsyncIterator[bool]:
    """A broker goes down, and is started again afterwards; False if it is down already."""
    node_id = node_id_of(broker)
    if node_id in stage.brokers_down:
        yield False
        return
    stage.brokers_down.add(node_id)
    yield True
    stage.brokers_down.remove(node_id)
    await stage.cluster.nodes[node_id].start()


@asynccontextmanager
async def _slow_broker(stage: InjectionContext, fault: faults.SlowBroker) -> AsyncIterator[None]:
    slowness = stage.cluster.nodes[node_id_of(fault.broker)].slow(fault.delay)
    yield
    slowness.cancel()


@asynccontextmanager
async def _coordinator_moves(
    stage: InjectionContext, fault: faults.CoordinatorMoves
) -> AsyncIterator[None]:
    for group_id in stage.coordinators.group_ids:
        node_id = stage.after(stage.cluster.coordinator_of(group_id))
        if node_id is not None:
            await stage.cluster.move_coordinator(
                group_id, node_id, away=fault.away, loading=fault.loading
            )
    yield


@asynccontextmanager
async def _leader_moves(stage: InjectionContext, fault: faults.LeaderMoves) -> AsyncIterator[None]:
    partition = TopicPartition(fault.topic, fault.partition)
    if fault.partition >= stage.topics.partitions(fault.topic):
        yield  # the topic does not exist now, or has fewer partitions than before
        return
    node_id = stage.after(stage.cluster.leader_of(partition))
    if node_id is not None:
        await stage.cluster.move_leader(partition, node_id)
    yield


# SimulatedTopics.


@asynccontextmanager
async def _more_partitions(
    stage: InjectionContext, fault: faults.MorePartitions
) -> AsyncIterator[None]:
    if partitions := stage.topics.partitions(fault.topic):
        await stage.topics.grow(fault.topic, partitions + fault.by)
    yield


@asynccontextmanager
async def _topic_deleted(
    stage: InjectionContext, fault: faults.TopicDeleted
) -> AsyncIterator[None]:
    if not stage.topics.partitions(fault.topic):
        yield
        return
    await stage.topics.delete(fault.topic)
    yield
    await stage.topics.create(fault.topic, fault.partitions)


HAPPENINGS: Final[
    dict[type[Fault], Callable[[InjectionContext, Any], AbstractAsyncContextManager[None]]]
] = {
    faults.Freeze: _freeze,
    faults.Crash: _crash,
    faults.Stop: _stop,
    faults.Twin: _twin,
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
    faults.MorePartitions: _more_partitions,
    faults.TopicDeleted: _topic_deleted,
}
"""What each kind of fault does: entered as it begins, left as it ends."""
