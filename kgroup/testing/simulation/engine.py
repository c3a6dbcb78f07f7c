"""Runs one plan: brokers, network, programs, records, faults, and the quiet at the end.

INVARIANTS: every task here belongs to nobody that can be frozen; after the plan's duration
nothing new goes wrong, and the groups have a bounded time to settle.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final, final

import trio

from kgroup.broker import EmbeddedCluster, in_memory_cluster
from kgroup.broker.groups.validation import Shard
from kgroup.testing.simulation import history
from kgroup.testing.simulation.fault_injection import InjectionContext, broker_name, inject
from kgroup.testing.simulation.network import Network
from kgroup.testing.simulation.observer import CoordinatorObserver, Recorder
from kgroup.testing.simulation.plan import Plan
from kgroup.testing.simulation.process import Worker
from kgroup.testing.simulation.producers import RecordWriter
from kgroup.testing.simulation.programs import RunningPrograms
from kgroup.testing.simulation.states import AWAY, DEAD, LOADING, States
from kgroup.testing.simulation.topics import SimulatedTopics
from kgroup.testing.simulation.virtual_time import call_at
from kgroup.types import IsolationLevel, TopicPartition

_COMMITTED: Final = IsolationLevel.READ_COMMITTED.value
_SETTLED: Final = frozenset({"Stable", "Empty"})
_PATIENCE: Final = 600.0
"""Seconds that the groups have at the end to be stable and to have processed everything."""
_LOOK_EVERY: Final = 0.5
"""Seconds between two looks at whether everything has settled."""


@final
class Engine:
    """What a plan becomes. Made and run once, inside of one run of trio."""

    def __init__(self, plan: Plan, worker: Worker, recorder: Recorder) -> None:
        self._plan = plan
        self._worker = worker
        self._recorder = recorder

    async def run(self) -> None:
        """Run the plan to its end."""
        plan = self._plan
        network = Network(self._random("network"), plan.latency, call_at)
        async with (
            in_memory_cluster(
                brokers=plan.brokers,
                settings=plan.broker_settings,
                random=self._random("brokers"),
            ) as cluster,
            trio.open_nursery() as nursery,
        ):
            committed_only = plan.config.get("isolation_level") == _COMMITTED
            topics = SimulatedTopics(cluster, self._recorder, committed_only=committed_only)
            cluster.cluster.on_transaction_end = topics.transaction_ended
            coordinators = CoordinatorObserver(self._recorder, cluster.cluster.topics.partitions)
            states = States(lambda: _state_of_coordinator(cluster, coordinators.group_ids))
            self._recorder.react(states.reactions)
            programs = RunningPrograms(
                plan=plan,
                worker=self._worker,
                recorder=self._recorder,
                network=network,
                log=cluster.log,
                topics=topics,
                servers=cluster.bootstrap_servers,
                nursery=nursery,
                new_random=self._random,
            )
            stage = InjectionContext(
                plan=plan,
                recorder=self._recorder,
                network=network,
                cluster=cluster,
                coordinators=coordinators,
                programs=programs,
                topics=topics,
                writer=RecordWriter(plan, self._random("records"), topics, cluster),
                states=states,
            )
            _connect(stage)
            try:
                await self._play(stage)
            finally:
                programs.thaw_all()  # a task that is frozen would never end
            nursery.cancel_scope.cancel()

    async def _play(self, stage: InjectionContext) -> None:
        plan, note = self._plan, self._recorder.note
        for topic, partitions in plan.topics.items():
            await stage.topics.create(topic, partitions)
        async with trio.open_nursery() as programs:
            for member in plan.members:
                programs.start_soon(stage.programs.keep_running, member)
            async with trio.open_nursery() as troubles:
                troubles.start_soon(stage.writer.run)
                for fault in plan.faults:
                    troubles.start_soon(inject, stage, fault)
                troubles.start_soon(trio.sleep_until, plan.duration)
            note(history.Quiet, running=stage.programs.running)
            await self._settle(stage)
            await stage.programs.end()
        note(history.Over)

    async def _settle(self, stage: InjectionContext) -> None:
        """Wait until nothing is left to do, as long as it may take."""
        deadline = trio.current_time() + _PATIENCE
        while not await _is_settled(stage) and trio.current_time() < deadline:  # noqa: ASYNC110
            await trio.sleep(_LOOK_EVERY)
        stable, ends = await _is_stable(stage), stage.topics.ends()
        for group_id in stage.coordinators.group_ids:
            self._recorder.note(
                history.Settled,
                group_id=group_id,
                stable=stable,
                committed=await _committed(stage.cluster, group_id),
                ends=ends,
            )

    def _random(self, purpose: str) -> random.Random:
        """A generator for each purpose, so that one does not disturb the others."""
        return random.Random(f"{self._plan.seed} {purpose}")


def _state_of_coordinator(cluster: EmbeddedCluster, group_ids: Sequence[str]) -> str:
    """The state of the first group at its coordinator; see ``states``."""
    if not group_ids:
        return DEAD
    group_id = group_ids[0]
    node_id = cluster.coordinator_of(group_id)
    if node_id is None:
        return AWAY
    coordinator = cluster.cluster.brokers[node_id].groups.coordinator
    if (shard := coordinator.shard(group_id)) is not Shard.ACTIVE:
        return LOADING if shard is Shard.LOADING else AWAY
    group = coordinator.group(group_id)
    return DEAD if group is None else group.state.value


def _connect(stage: InjectionContext) -> None:
    """Put every broker on the network, and look on at its coordinator."""
    for node_id, broker in stage.cluster.nodes.items():
        desk = stage.cluster.cluster.brokers[node_id].groups
        desk.observer = stage.coordinators.watching(node_id, desk.coordinator)
        stage.network.listen(broker.host, broker.port, broker_name(node_id), broker.accept)


async def _is_settled(stage: InjectionContext) -> bool:
    if not await _is_stable(stage):
        return False
    ends = stage.topics.ends()
    for group_id in stage.coordinators.group_ids:
        committed = await _committed(stage.cluster, group_id)
        if any(committed.get(name, 0) < end for name, end in ends.items()):
            return False
    return True


async def _is_stable(stage: InjectionContext) -> bool:
    states = {group.group_id: group.state for group in await stage.cluster.groups()}
    return all(states.get(name) in _SETTLED for name in stage.coordinators.group_ids)


async def _committed(cluster: EmbeddedCluster, group_id: str) -> dict[TopicPartition, int]:
    offsets = await cluster.committed(group_id)
    return {name: at.offset for name, at in sorted(offsets.items())}
