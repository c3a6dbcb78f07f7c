"""Several embedded brokers as one cluster: leaders and coordinators are spread over them, and move.

``ClusterState`` decides which broker leads what. This module has what a test does to the cluster.

Replication is simulated: there is one copy of every log. The replicas of a topic only decide which
broker takes over when a leader stops; no record is lost then.

Source: KIP-500 (brokers come and go), KIP-320 (leader epochs); Kafka's
``ReplicationControlManager`` and ``BrokerServer.shutdown``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, final

import trio

from kgroup import arguments
from kgroup.broker.admin import BrokerAdmin, as_usage_errors
from kgroup.broker.cluster_state import ClusterState
from kgroup.broker.embedded_broker import EmbeddedBroker
from kgroup.broker.endpoint import Endpoint
from kgroup.broker.log import PartitionLog
from kgroup.broker.replicas import NO_LEADER, PartitionReplicas
from kgroup.errors import UsageError
from kgroup.types import TopicPartition


@final
class EmbeddedCluster(BrokerAdmin):
    """Running embedded brokers; ``serve_cluster`` and ``in_memory_cluster`` make them.

    Attributes:
        nodes: each broker by its id.
        log: reads records, for tests and in-memory consumers.
        cluster: the state that all brokers share.
    """

    _variable = "kafka.cluster"

    def __init__(
        self,
        cluster: ClusterState,
        nursery: trio.Nursery,
        addresses: Sequence[tuple[str, int]],
        *,
        in_memory: bool,
    ) -> None:
        """A cluster whose brokers do not listen yet.

        Args:
            cluster: the state, which knows how many brokers there are.
            nursery: where listeners and connections are served.
            addresses: for each broker the host and port to listen on, or to be known by in memory.
            in_memory: whether there are no sockets.
        """
        endpoints = {
            node_id: Endpoint(cluster, node, nursery, address, in_memory=in_memory)
            for (node_id, node), address in zip(cluster.brokers.items(), addresses, strict=True)
        }
        super().__init__(cluster, endpoints)
        self.nodes: Final[Mapping[int, EmbeddedBroker]] = {
            node_id: EmbeddedBroker(cluster, node_id, endpoints, nursery) for node_id in endpoints
        }

    def __repr__(self) -> str:
        return f"<EmbeddedCluster of {', '.join(map(repr, self.nodes.values()))}>"

    @property
    def bootstrap_servers(self) -> str:
        """All brokers, running or not, for a client's ``bootstrap.servers``."""
        return ",".join(node.bootstrap_servers for node in self.nodes.values())

    # Leaders and coordinators.

    def leader_of(self, partition: TopicPartition) -> int | None:
        """The id of the broker that leads a partition, or None.

        Raises:
            ArgumentError: ``partition`` is no `TopicPartition`.
            UsageError: there is no such partition.
        """
        return _or_none(self._log_and_replicas(partition)[1].leader)

    def coordinator_of(self, group_id: str) -> int | None:
        """The id of the broker that coordinates a group, or None.

        It is the leader of partition ``abs(hash) % partitions`` of the offsets topic, by Java's
        hash of the id. It may still be loading.

        Raises:
            ArgumentError: the id is no str.
        """
        arguments.instance("group_id", group_id, str)
        return _or_none(self.cluster.shards.replicas_of(group_id).leader)

    def coordinator_epoch(self, group_id: str) -> int:
        """How often the group's coordinator has moved; a move loses what was only in memory.

        Raises:
            ArgumentError: the id is no str.
        """
        arguments.instance("group_id", group_id, str)
        return self.cluster.shards.replicas_of(group_id).epoch

    async def move_leader(self, partition: TopicPartition, node_id: int) -> None:
        """Let another broker lead a partition; if it has no replica, it takes the old leader's.

        Fetches that wait at the old leader are answered.

        Raises:
            ArgumentError: ``partition`` is no `TopicPartition`.
            UsageError: there is no such partition or broker, or the broker is stopped.
        """
        self._check_loop("move_leader")
        await trio.lowlevel.checkpoint()
        log, replicas = self._log_and_replicas(partition)
        self._check_up(node_id)
        if self.cluster.live_brokers.move_leader(replicas, node_id):
            log.leader_changed(replicas.epoch)

    async def move_coordinator(
        self, group: str | int, node_id: int, *, away: float = 0.0, loading: float = 0.0
    ) -> None:
        """Let another broker coordinate a group, and all groups of its shard.

        Parked requests are answered NOT_COORDINATOR, so that their clients look for the
        coordinator again. What Kafka writes to its log moves along; what it keeps only in memory
        is lost. If the broker already coordinates the group, this is a failover to itself.

        Args:
            group: its id, or the number of a shard.
            node_id: the broker's id.
            away: seconds in which no broker coordinates the group: requests are answered
                NOT_COORDINATOR.
            loading: seconds after that in which they are answered
                COORDINATOR_LOAD_IN_PROGRESS.

        Raises:
            ArgumentError: ``group`` is neither a str nor an int, or a time is no number of seconds.
            UsageError: there is no such shard or broker, or the broker is stopped.

        Cancellation: the coordinator is loaded at once.
        """
        self._check_loop("move_coordinator")
        arguments.delay("away", away)
        arguments.delay("loading", loading)
        await trio.lowlevel.checkpoint()
        shards = self.cluster.shards
        shard = (
            shards.shard_of(group) if isinstance(group, str) else arguments.whole("group", group, 0)
        )
        if not 0 <= shard < len(shards.replicas):
            raise UsageError(f"there is no shard {shard}; there are {len(shards.replicas)}")
        self._check_up(node_id)
        hand_over = shards.move(
            [shard], lambda replicas: self.cluster.live_brokers.move_leader(replicas, node_id)
        )
        await shards.load_after(hand_over, away=away, loading=loading)

    async def rebalance_leaders(self, *, loading: float = 0.0) -> None:
        """Give every partition and every coordinator back to its preferred broker, if it runs.

        Kafka does this by itself every five minutes (``auto.leader.rebalance.enable``); the
        embedded brokers do it only in this call.

        Args:
            loading: seconds for which coordinators that move are loading.

        Raises:
            ArgumentError: the time is no number of seconds.

        Cancellation: coordinators are loaded at once.
        """
        self._check_loop("rebalance_leaders")
        arguments.delay("loading", loading)
        await self.cluster.shards.load_after(self.cluster.rebalance_leaders(), loading=loading)

    # Start and end.

    async def start(self) -> None:
        """Start every broker that does not listen.

        Raises:
            OSError: an address cannot be listened on.
        """
        self._check_loop("start")
        for node in self.nodes.values():
            await node.start()

    def close(self) -> None:
        """Stop listening; connections stay."""
        self._check_loop("close")
        for node in self.nodes.values():
            node.close()

    def _log_and_replicas(
        self, partition: TopicPartition
    ) -> tuple[PartitionLog, PartitionReplicas]:
        arguments.partition("partition", partition)
        with as_usage_errors():
            return self.cluster.topics.log_and_replicas(partition.topic, partition.partition)

    def _check_up(self, node_id: int) -> None:
        if node_id not in list(self.nodes):  # a list, because the id may not be hashable
            raise UsageError(f"there is no broker {node_id}; there are {list(self.nodes)}")
        if not self.nodes[node_id].is_up:
            raise UsageError(f"broker {node_id} is stopped; start it before it can lead")


def _or_none(node_id: int) -> int | None:
    return None if node_id == NO_LEADER else node_id
