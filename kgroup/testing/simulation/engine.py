"""Runs one plan: brokers, network, programs, producers and faults, then the wait for the end.

Theory of operation
-------------------
Everything lives in one process and one run of trio. The brokers are kgroup's embedded brokers,
the members are the user's program with kgroup's own client, and between them is `Network`, whose
connections are objects in memory. The engine makes these parts, connects them, and then plays the
plan in three stages:

1. Until ``plan.duration`` the programs run, the record writer appends records, and each fault of
   the plan has one task that waits for its time (and its state of the group) and injects it.
2. Then nothing new goes wrong and nothing more is written (``WorkloadEnded``). The groups get
   some virtual time to become stable and to commit everything that can be read (``settling``); the
   result is recorded as ``FinalGroupState``, which several invariants are judged by.
3. The programs are asked to end, and killed if they do not (``SimulationEnded``).

Nothing is judged here. Observers record what coordinators, members and programs do as entries of
one history; the checks read it when the run is over.

Virtual time. ``virtual_time`` runs all of this under a clock that stands still while any task can
run and jumps to the next deadline when every task waits. An hour of heartbeats therefore costs
the CPU time of its messages and nothing else. ``trio_internals`` holds all that is private to trio.

Same seed, same trace. Everything that happens is decided by the plan's seed:

- trio shuffles its runnable tasks with a generator of its own; it is seeded for the run;
- every random choice comes from a generator made by `_random`, one for each purpose, so that a
  fault that is left out does not shift the choices of latencies or of another program. The texts
  of the purposes are part of the seeds: changing one changes every simulation;
- all times come from trio's clock, and nothing depends on the order of a set or on an ``id()``.

What breaks it: a program or a library that uses the ``random`` module, the wall clock, real
sockets (which are refused) or several worker threads at once; iteration over a set; a timer that
reads ``time.monotonic``. The trap: such a fault shows only as a trace that differs now and then.
``tests/testing/simulation/test_determinism.py`` compares processes with different hash seeds.

Freezing. A frozen member must not take a single step, as if the kernel had stopped its process,
while everything around it continues. Each program's tasks carry its name in a context variable;
``freezing`` takes the tasks of one program out of trio's queue of runnable tasks and puts them
back when the program thaws. Bytes on their way to it are held by the network. The trap: a task
that is frozen can never end, so the nursery of this run could never be left. `Engine.run` thaws
every program before it leaves, whatever ended the run.

INVARIANTS: every random choice comes from the plan's seed, and nothing depends on the order of a
set. The tasks started here belong to no program, so no fault can freeze or kill them. After the
plan's duration no fault begins and no record is written.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Final, final

import trio

from kgroup.broker import EmbeddedCluster, in_memory_cluster
from kgroup.broker.groups.validation import Shard
from kgroup.testing.simulation import history
from kgroup.testing.simulation.checks.assertions import ProgramErrors
from kgroup.testing.simulation.coordination import (
    ClassicCoordination,
    CoordinationContext,
    NewCoordination,
)
from kgroup.testing.simulation.fault_injection import InjectionContext, broker_name, inject
from kgroup.testing.simulation.logins import SimulatedLogins
from kgroup.testing.simulation.network import Network
from kgroup.testing.simulation.observer import CoordinatorObserver, Recorder
from kgroup.testing.simulation.plan import Plan
from kgroup.testing.simulation.producers import RecordWriter
from kgroup.testing.simulation.programs import RunningPrograms
from kgroup.testing.simulation.settling import ReadingGroups, settle
from kgroup.testing.simulation.states import AWAY, DEAD, LOADING, States
from kgroup.testing.simulation.topics import SimulatedTopics
from kgroup.testing.simulation.virtual_time import call_at, end_by
from kgroup.testing.simulation.workload import Workload
from kgroup.types import IsolationLevel

_READ_COMMITTED: Final = IsolationLevel.READ_COMMITTED.value
_LEFT_OVER: Final = 3600.0
"""Virtual seconds in which the tasks of a program that was killed have to end."""


@final
class Engine:
    """Runs one plan, once, inside one run of trio."""

    def __init__(
        self,
        plan: Plan,
        workload: Workload,
        recorder: Recorder,
        new_coordination: NewCoordination = ClassicCoordination,
    ) -> None:
        self._plan = plan
        self._workload = workload
        self._recorder = recorder
        self._new_coordination = new_coordination

    async def run(self) -> None:
        """Run the plan to its end."""
        plan = self._plan
        network = Network(self._random("network"), plan.latency, call_at)
        logins = SimulatedLogins(plan)
        async with (
            in_memory_cluster(
                brokers=plan.brokers,
                settings=plan.broker_settings,
                security=logins.of_brokers,
                random=self._random("brokers"),
            ) as cluster,
            self._workload.store() as store,
            trio.open_nursery() as nursery,
        ):
            committed_only = plan.config.get("isolation_level") == _READ_COMMITTED
            topics = SimulatedTopics(
                cluster,
                self._recorder,
                committed_only=committed_only,
                value=self._workload.value and self._workload.value_of,
            )
            cluster.cluster.on_transaction_end = topics.transaction_ended
            coordinators = CoordinatorObserver(self._recorder, cluster.cluster.topics.partitions)
            states = States(lambda: _coordinator_state(cluster, coordinators.group_ids))
            self._recorder.subscribe(states.handlers)
            errors = ProgramErrors()

            def end_if_decided(entry: history.HistoryEntry) -> None:
                # The rest would prove nothing, and shrinking would run it again and again.
                if errors.add(entry) is not None:
                    nursery.cancel_scope.cancel()

            self._recorder.subscribe(
                {history.Processed: end_if_decided, history.ProcessEnded: end_if_decided}
            )
            programs = RunningPrograms(
                plan=plan,
                worker=self._workload,
                store=store,
                recorder=self._recorder,
                network=network,
                log=cluster.log,
                topics=topics,
                servers=cluster.bootstrap_servers,
                logins=logins,
                nursery=nursery,
                new_random=self._random,
            )
            coordination = self._new_coordination(
                CoordinationContext(
                    plan=plan,
                    recorder=self._recorder,
                    cluster=cluster,
                    network=network,
                    coordinators=coordinators,
                    nursery=nursery,
                    new_random=self._random,
                )
            )
            groups = ReadingGroups()
            self._recorder.subscribe(groups.handlers)
            context = InjectionContext(
                plan=plan,
                coordination=coordination,
                recorder=self._recorder,
                network=network,
                cluster=cluster,
                coordinators=coordinators,
                programs=programs,
                topics=topics,
                writer=RecordWriter(plan, self._random("records"), topics, cluster),
                states=states,
                logins=logins,
            )
            _connect(context)
            try:
                await self._play(context, groups)
            finally:
                programs.thaw_all()  # the nursery could not be left while a task is frozen
            end_by(
                trio.current_time() + _LEFT_OVER,
                f"a program goes on {_LEFT_OVER:g} virtual seconds after it was cancelled: it is"
                " shielded from cancellation. Give every shielded scope a deadline",
            )
            nursery.cancel_scope.cancel()

    async def _play(self, context: InjectionContext, groups: ReadingGroups) -> None:
        plan, record = self._plan, self._recorder.record
        for topic, partitions in plan.topics.items():
            await context.topics.create(topic, partitions)
        async with trio.open_nursery() as programs:
            for member in plan.members:
                programs.start_soon(context.programs.keep_running, member)
            async with trio.open_nursery() as workload:
                workload.start_soon(context.writer.run)
                for fault in plan.faults:
                    workload.start_soon(inject, context, fault)
                workload.start_soon(trio.sleep_until, plan.duration)
            record(history.WorkloadEnded, running=context.programs.running_names)
            await settle(context.coordination, context.topics, groups, self._recorder)
            await context.programs.end()
        record(history.SimulationEnded)

    def _random(self, purpose: str) -> Random:
        """A generator of its own for each purpose, so that one does not disturb the others."""
        return Random(f"{self._plan.seed} {purpose}")


def _coordinator_state(cluster: EmbeddedCluster, group_ids: Sequence[str]) -> str:
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


def _connect(context: InjectionContext) -> None:
    """Put every broker on the network and observe its coordinator."""
    for node_id, broker in context.cluster.nodes.items():
        purgatory = context.cluster.cluster.brokers[node_id].groups
        purgatory.observer = context.coordinators.for_broker(node_id, purgatory.coordinator)
        context.network.listen(broker.host, broker.port, broker_name(node_id), broker.accept)
