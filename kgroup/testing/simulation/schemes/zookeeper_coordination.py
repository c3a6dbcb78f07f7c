"""What runs beside the members of the earlier protocols: ZooKeeper, and what brokers write there.

A broker's host has a ZooKeeper server too, which stops and starts with the broker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

import trio

from kgroup.testing.simulation import history
from kgroup.testing.simulation.coordination import CoordinationContext
from kgroup.testing.simulation.fault_injection import broker_name
from kgroup.testing.simulation.faults import CoordinatorMoves
from kgroup.testing.simulation.observer import Recorder
from kgroup.testing.simulation.schemes.commanding import SESSION_TIMEOUT, BrokerCoordinator
from kgroup.testing.simulation.schemes.member import (
    BROKERS,
    GROUP_PATH,
    IDS,
    TOPICS,
    partition_of,
)
from kgroup.testing.simulation.schemes.owners import Owners
from kgroup.testing.simulation.schemes.streams import GROUP
from kgroup.testing.simulation.zookeeper.messages import EnsembleSettings, GetMany, Read
from kgroup.testing.simulation.zookeeper.servers import ZooKeeperServers
from kgroup.testing.simulation.zookeeper.tree import (
    Create,
    EndSession,
    OpenSession,
    SetData,
    Write,
    ZnodeChange,
    ZooKeeperError,
)
from kgroup.types import TopicPartition

_OFFSETS: Final = f"{GROUP_PATH}/offsets"
_PATHS: Final = ("/consumers", GROUP_PATH, IDS, f"{GROUP_PATH}/owners", _OFFSETS)
_MOST_LAG: Final = 2.0
"""Kafka 0.8's ``zookeeper.sync.time.ms``, in seconds: how far a follower may be behind."""
_BROKER_PATHS: Final = ("/brokers", BROKERS, TOPICS)


@final
class ZooKeeperObserver:
    """Records what an ensemble does for members; an ``EnsembleObserver``."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder

    def wrote(self, client: str, write: Write, refusal: ZooKeeperError | None) -> None:
        """See ``EnsembleObserver``."""
        if not client or isinstance(write, OpenSession | EndSession):
            return
        self._record(client, "write", 1, write.path)
        stores = isinstance(write, SetData | Create) and write.path.startswith(f"{_OFFSETS}/")
        if refusal is None and stores:
            assert isinstance(write, SetData | Create)
            self._recorder.record(
                history.OffsetStored,
                process=client,
                partition=partition_of(write.path),
                offset=int(write.data),
            )

    def read(self, client: str, read: Read) -> None:
        """See ``EnsembleObserver``."""
        if isinstance(read, GetMany):
            self._record(client, "read", len(read.paths), read.paths[0])
        else:
            self._record(client, "read", 1, read.path)

    def notified(self, client: str, change: ZnodeChange) -> None:
        """See ``EnsembleObserver``."""
        self._record(client, "notification", 1, change.path)

    def _record(self, client: str, what: str, count: int, about: str) -> None:
        self._recorder.record(
            history.CoordinationMessages, process=client, what=what, count=count, about=about
        )


@final
class ZooKeeperCoordination:
    """Scheme 1's: ZooKeeper alone; a ``Coordination``."""

    def __init__(self, context: CoordinationContext) -> None:
        self._nodes = list(context.cluster.nodes)
        self.servers: Final = ZooKeeperServers(
            [broker_name(node_id) for node_id in self._nodes],
            context.network,
            context.nursery,
            settings_of(context),
            context.new_random("zookeeper"),
            ZooKeeperObserver(context.recorder),
        )
        self._owners = Owners()
        context.recorder.subscribe(self._owners.handlers)
        context.recorder.subscribe({history.TopicChanged: self._topic_changed})
        for path in (*_PATHS, *_BROKER_PATHS):
            self._write(Create(path, ""))
        for node_id in self._nodes:
            self._write(Create(f"{BROKERS}/{node_id}", broker_name(node_id)))

    @property
    def group_ids(self) -> tuple[str, ...]:
        """See ``Coordination``."""
        return (GROUP,)

    async def is_stable(self) -> bool:
        """See ``Coordination``: every partition has one owner."""
        return self._owners.are_settled()

    async def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """See ``Coordination``."""
        del group_id
        tree, found = self.servers.ensemble.tree, {}
        for partition in self._owners.partitions:
            node = tree.get(f"{_OFFSETS}/{partition.topic}/{partition.partition}")
            if node is not None:
                found[partition] = int(node.data)
        return found

    async def move_coordinator(
        self, fault: CoordinatorMoves, after: Callable[[int | None], int | None]
    ) -> None:
        """See ``Coordination``: another ZooKeeper server leads."""
        del after
        self.servers.move_leader(fault.away)

    def broker_stops(self, node_id: int, *, killed: bool) -> None:
        """See ``Coordination``."""
        del killed
        self.servers.stop(self._nodes.index(node_id))

    def broker_starts(self, node_id: int) -> None:
        """See ``Coordination``."""
        self.servers.start(self._nodes.index(node_id))

    def _topic_changed(self, entry: history.TopicChanged) -> None:
        """The controller writes how many partitions a topic has."""
        for parent in (f"{GROUP_PATH}/owners", _OFFSETS, TOPICS):
            self._write(Create(f"{parent}/{entry.topic}", "0"))
        self._write(SetData(f"{TOPICS}/{entry.topic}", str(entry.partitions)))

    def _write(self, write: Write) -> None:
        self.servers.ensemble.write(trio.current_time(), write)


@final
class BrokerCoordination:
    """Scheme 2's: ZooKeeper, and a coordinator on every broker, one of them elected."""

    def __init__(self, context: CoordinationContext) -> None:
        self._zookeeper = ZooKeeperCoordination(context)
        self._network = context.network
        self._nursery = context.nursery
        nodes = list(context.cluster.nodes)
        self._coordinators = {
            node_id: BrokerCoordinator(
                number,
                broker_name(node_id),
                len(nodes),
                context.network,
                context.recorder,
                context.new_random(f"coordinator of {broker_name(node_id)}"),
                tuple(sorted(context.plan.topics)),
            )
            for number, node_id in enumerate(nodes)
        }
        for coordinator in self._coordinators.values():
            self._nursery.start_soon(coordinator.run)

    @property
    def group_ids(self) -> tuple[str, ...]:
        """See ``Coordination``."""
        return self._zookeeper.group_ids

    async def is_stable(self) -> bool:
        """See ``Coordination``."""
        return await self._zookeeper.is_stable()

    async def committed(self, group_id: str) -> dict[TopicPartition, int]:
        """See ``Coordination``."""
        return await self._zookeeper.committed(group_id)

    async def move_coordinator(
        self, fault: CoordinatorMoves, after: Callable[[int | None], int | None]
    ) -> None:
        """See ``Coordination``: the coordinator is cut off from ZooKeeper until it is replaced."""
        del after
        leading = [one for one in self._coordinators.values() if one.leads]
        if leading:
            ticks = 2 * EnsembleSettings().tick
            seconds = SESSION_TIMEOUT + ticks + fault.away
            self._nursery.start_soon(self._cut_off, leading[0].name, seconds)

    async def _cut_off(self, name: str, seconds: float) -> None:
        routes = [(name, one.name) for one in self._coordinators.values()]
        for route in routes:
            self._network.hold(route)
        await trio.sleep(seconds)
        for route in routes:
            self._network.release(route)

    def broker_stops(self, node_id: int, *, killed: bool) -> None:
        """See ``Coordination``; in good order, the broker's session ends at once."""
        coordinator = self._coordinators[node_id]
        if not killed:
            self._zookeeper.servers.expire(coordinator.session)
        coordinator.stop()
        self._zookeeper.broker_stops(node_id, killed=killed)

    def broker_starts(self, node_id: int) -> None:
        """See ``Coordination``."""
        self._zookeeper.broker_starts(node_id)
        self._nursery.start_soon(self._coordinators[node_id].run)


def settings_of(context: CoordinationContext) -> EnsembleSettings:
    """The ensemble of a plan: its servers lag behind more where the network is slower."""
    lag = min(20 * context.plan.latency.most, _MOST_LAG)
    return EnsembleSettings(servers=len(context.cluster.nodes), lag=lag)
