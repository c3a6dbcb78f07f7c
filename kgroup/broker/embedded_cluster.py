"""Several embedded brokers as one cluster: leaders and coordinators spread over them, that move.

``serve_cluster`` listens on a port for each broker, ``in_memory_cluster`` on none. What moves when
a broker goes is decided by the cluster's state; here are the brokers' lives, and what a test does
to them.

Replication is pretended: there is one copy of every log. How many replicas a topic has decides
who takes over when its leader goes, and no record is ever lost by that.

Source: KIP-500 (brokers come and go), KIP-320 (leader epochs); Kafka's
``ReplicationControlManager`` and ``BrokerServer.shutdown``.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Final, final

import trio

from kgroup.broker.admin import BrokerAdmin, as_usage_errors
from kgroup.broker.broker_settings import BrokerSettings
from kgroup.broker.cluster_state import ClusterState
from kgroup.broker.control import BrokerControl
from kgroup.broker.endpoint import Endpoint, refused_connection
from kgroup.broker.lifespan import (
    check_listener,
    random_or_default,
    read_settings,
    running,
    virtual_wall_clock,
)
from kgroup.broker.log import PartitionLog
from kgroup.broker.node import Node
from kgroup.broker.replicas import NO_LEADER, PartitionReplicas
from kgroup.errors import UsageError
from kgroup.interfaces import Random
from kgroup.types import TopicPartition

MEMORY_PORT: Final = 9092
STOPPING: Final = 5.0
"""Seconds that a broker which stops gives to the requests that it is serving."""


@final
class BrokerNode(BrokerControl):
    """One broker of an ``EmbeddedCluster``."""

    def __init__(
        self, cluster: ClusterState, node: Node, endpoint: Endpoint, nursery: trio.Nursery
    ) -> None:
        self._cluster = cluster
        self._node = node
        self._endpoint = endpoint
        self._nursery = nursery

    def __repr__(self) -> str:
        state = "up" if self.is_up else "down"
        return f"<broker {self.node_id} at {self._endpoint.bootstrap_server}, {state}>"

    @property
    def node_id(self) -> int:
        """Its id."""
        return self._node.node_id

    @property
    def is_up(self) -> bool:
        """Whether it runs."""
        return self._cluster.live_brokers.is_up(self.node_id)

    async def start(self, *, loading: float = 0.0) -> None:
        """Let it run again, on the same port.

        It takes what has no leader because only this broker can lead it. What others have taken
        over stays there until ``EmbeddedCluster.rebalance_leaders``. Of a broker that runs:
        nothing.

        Args:
            loading: seconds for which coordinators that move are loading.

        Raises:
            OSError: the address cannot be listened on.
        """
        if self._endpoint.is_listening:
            await trio.lowlevel.checkpoint()
            return
        await self._endpoint.open()
        if not self.is_up:
            hand_over = self._cluster.broker_started(self.node_id)
            self._cluster.shards.load_soon(self._nursery, hand_over, loading=loading)

    async def stop(self, *, loading: float = 0.0) -> None:
        """Shut it down in an orderly way.

        It takes no new connections. What it leads moves to replicas on other brokers, or has no
        leader until it starts again. Everybody who waits is sent to look elsewhere, requests that
        are being served are answered, and then its connections end. Of a broker that is stopped:
        nothing.

        Args:
            loading: seconds for which coordinators that move are loading.

        Cancellation: connections are cut at once; it is stopped.
        """
        if not self.is_up:
            await trio.lowlevel.checkpoint()
            return
        self._endpoint.close()
        hand_over = self._cluster.broker_stopped(self.node_id, answer=True)
        self._cluster.shards.load_soon(self._nursery, hand_over, loading=loading)
        await self._endpoint.finish(STOPPING)

    def kill(self, *, loading: float = 0.0) -> None:
        """End it at once: connections are cut, and nobody who waits is answered.

        Others take over as after ``stop``; a coordinator keeps what Kafka writes down. Of a
        broker that is stopped: nothing.

        Args:
            loading: seconds for which coordinators that move are loading.
        """
        if not self.is_up:
            return
        self._endpoint.close()
        self._endpoint.cut_connections()
        hand_over = self._cluster.broker_stopped(self.node_id, answer=False)
        self._cluster.shards.load_soon(self._nursery, hand_over, loading=loading)

    async def connect(self) -> trio.abc.Stream:
        """Open a connection to it in memory; as ``EmbeddedCluster.open_stream``."""
        return await self._endpoint.connect()


@final
class EmbeddedCluster(BrokerAdmin):
    """Running embedded brokers; ``serve_cluster`` and ``in_memory_cluster`` make them.

    Attributes:
        nodes: each broker by its id.
        log: reads records, for tests and in-memory consumers.
        cluster: the state behind it.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        random: Random,
        wall_clock: Callable[[], float],
        nursery: trio.Nursery,
        brokers: int,
        listen_on: tuple[str, int] | None,
    ) -> None:
        super().__init__(settings, random, wall_clock, brokers)
        self.nodes: Final[Mapping[int, BrokerNode]] = {
            node_id: BrokerNode(
                self.cluster,
                node,
                Endpoint(
                    self.cluster,
                    node,
                    nursery,
                    _address(node_id, number, listen_on),
                    in_memory=listen_on is None,
                ),
                nursery,
            )
            for number, (node_id, node) in enumerate(self.cluster.brokers.items())
        }

    def __repr__(self) -> str:
        return f"<kgroup.broker.EmbeddedCluster of {', '.join(map(repr, self.nodes.values()))}>"

    @property
    def bootstrap_servers(self) -> str:
        """What a client's ``bootstrap.servers`` takes: every broker, running or not."""
        return ",".join(
            f"[{node.host}]:{node.port}" if ":" in node.host else f"{node.host}:{node.port}"
            for node in self.nodes.values()
        )

    async def open_stream(self, host: str, port: int) -> trio.abc.Stream:
        """Open a connection in memory; a ``StreamOpener``.

        Raises:
            OSError: nobody is at this address, or who is is stopped.

        Cancellation: nothing is left open.
        """
        for node in self.nodes.values():
            if (host, port) == (node.host, node.port):
                return await node.connect()
        await trio.lowlevel.checkpoint()
        raise refused_connection(host, port)

    # Who has what.

    def leader_of(self, partition: TopicPartition) -> int | None:
        """The id of the broker that leads a partition, or None.

        Raises:
            UsageError: there is no such partition.
        """
        return _or_none(self._log_and_replicas(partition)[1].leader)

    def coordinator_of(self, group_id: str) -> int | None:
        """The id of the broker that coordinates a group, or None.

        It is the leader of partition ``abs(hash) % partitions`` of the offsets topic, by Java's
        hash of the id. It may still be loading.
        """
        return _or_none(self.cluster.shards.replicas_of(group_id).leader)

    def coordinator_epoch(self, group_id: str) -> int:
        """How often the group's coordinator has changed hands; each time memory was lost."""
        return self.cluster.shards.replicas_of(group_id).epoch

    async def move_leader(self, partition: TopicPartition, node_id: int) -> None:
        """Let another broker lead a partition; if it has no replica, it takes the leader's.

        Fetches that wait at the old leader are answered.

        Raises:
            UsageError: there is no such partition or broker, or the broker is stopped.
        """
        await trio.lowlevel.checkpoint()
        log, replicas = self._log_and_replicas(partition)
        self._check_up(node_id)
        if self.cluster.live_brokers.move_leader(replicas, node_id):
            log.leader_changed(replicas.epoch)

    async def move_coordinator(
        self, group: str | int, node_id: int, *, away: float = 0.0, loading: float = 0.0
    ) -> None:
        """Let another broker coordinate a group, and all groups of its shard.

        Everybody who waits is sent to look for the coordinator. What Kafka writes down comes
        along, what it keeps in memory only is lost. A move to the broker that has it already is
        a failover to itself.

        Args:
            group: its id, or the number of a shard.
            node_id: to which broker.
            away: seconds in which nobody coordinates the group: requests are answered
                NOT_COORDINATOR.
            loading: seconds after that in which they are answered
                COORDINATOR_LOAD_IN_PROGRESS.

        Raises:
            UsageError: there is no such shard or broker, or the broker is stopped.

        Cancellation: the coordinator is loaded at once.
        """
        await trio.lowlevel.checkpoint()
        shards = self.cluster.shards
        shard = shards.shard_of(group) if isinstance(group, str) else group
        if not 0 <= shard < len(shards.replicas):
            raise UsageError(f"there is no shard {shard}; there are {len(shards.replicas)}")
        self._check_up(node_id)
        hand_over = shards.move(
            [shard], lambda replicas: self.cluster.live_brokers.move_leader(replicas, node_id)
        )
        await shards.load_after(hand_over, away=away, loading=loading)

    async def rebalance_leaders(self, *, loading: float = 0.0) -> None:
        """Give every partition and every coordinator back to its preferred broker, if it runs.

        Kafka does it by itself, every five minutes (``auto.leader.rebalance.enable``); here it
        happens when it is asked for.

        Args:
            loading: seconds for which coordinators that move are loading.

        Cancellation: coordinators are loaded at once.
        """
        await self.cluster.shards.load_after(self.cluster.rebalance_leaders(), loading=loading)

    # Life.

    async def start(self) -> None:
        """Let every broker run that does not.

        Raises:
            OSError: an address cannot be listened on.
        """
        for node in self.nodes.values():
            await node.start()

    def close(self) -> None:
        """Listen no more; connections stay."""
        for node in self.nodes.values():
            node.close()

    def _log_and_replicas(
        self, partition: TopicPartition
    ) -> tuple[PartitionLog, PartitionReplicas]:
        with as_usage_errors():
            return self.cluster.topics.log_and_replicas(partition.topic, partition.partition)

    def _check_up(self, node_id: int) -> None:
        if node_id not in self.nodes:
            raise UsageError(f"there is no broker {node_id}; there are {list(self.nodes)}")
        if not self.nodes[node_id].is_up:
            raise UsageError(f"broker {node_id} is stopped; start it before it can lead")


def _or_none(node_id: int) -> int | None:
    return None if node_id == NO_LEADER else node_id


def _address(node_id: int, number: int, listen_on: tuple[str, int] | None) -> tuple[str, int]:
    if listen_on is None:
        return f"broker-{node_id}", MEMORY_PORT
    host, port = listen_on
    return host, port + number if port else 0


@asynccontextmanager
async def serve_cluster(
    brokers: int = 3,
    host: str = "127.0.0.1",
    port: int = 0,
    *,
    settings: BrokerSettings | Mapping[str, object] | None = None,
    random: Random | None = None,
) -> AsyncIterator[EmbeddedCluster]:
    """Run a cluster on TCP ports for as long as the context lasts. Nothing is kept on disk.

    Args:
        brokers: how many. Their ids count from ``node.id``.
        host: the address to listen on, and to tell to clients.
        port: the first broker's port, the others have the following; 0 takes free ones.
        settings: ``BrokerSettings``, or Kafka's property names with their values, for all.
            ``default.replication.factor`` is 1 as in Kafka: then a topic's partitions are away
            while their broker is.
        random: makes every id; by default ids differ from run to run.

    Raises:
        OSError: an address cannot be listened on.
        ConfigError: a property is unknown or its value refused; too few or too many brokers; no
            host, or no port for every broker.

    Cancellation: connections are closed at once.
    """
    made = read_settings(settings)
    made.check_brokers(brokers)
    check_listener(host, port, brokers)
    async with running(
        lambda nursery: EmbeddedCluster(
            made, random_or_default(random), time.time, nursery, brokers, (host, port)
        )
    ) as cluster:
        yield cluster


@asynccontextmanager
async def in_memory_cluster(
    brokers: int = 3,
    settings: BrokerSettings | Mapping[str, object] | None = None,
    *,
    random: Random | None = None,
) -> AsyncIterator[EmbeddedCluster]:
    """Run a cluster without any socket; ``EmbeddedCluster.open_stream`` connects to it.

    Broker n is at ``broker-n:9092``. Under a MockClock, and with a seeded ``random``, everything
    it does is the same from run to run; see ``in_memory``.

    Raises:
        ConfigError: a property is unknown or its value refused; too few or too many brokers.
    """
    made, clock = read_settings(settings), virtual_wall_clock()
    made.check_brokers(brokers)
    async with running(
        lambda nursery: EmbeddedCluster(
            made, random_or_default(random), clock, nursery, brokers, None
        )
    ) as cluster:
        yield cluster
