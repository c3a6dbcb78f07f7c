"""The state that all brokers share: topics, leaders, transactions, addresses.

One object without I/O of its own; only the purgatories and the logs make tasks wait. Handlers
serve requests from it, programs and tests reach it through what ``serve`` and its siblings yield.
It is the only place that knows which broker leads a partition or coordinates a group.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Final, final
from uuid import UUID

import trio

from kgroup.broker.broker_settings import BrokerSettings
from kgroup.broker.groups.coordinator import GroupCoordinatorService
from kgroup.broker.groups.java_hashing import shard_of
from kgroup.broker.internal_errors import InternalErrors
from kgroup.broker.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, InternalTopic
from kgroup.broker.node import Node
from kgroup.broker.records import marker
from kgroup.broker.replicas import NO_LEADER, LiveBrokers, PartitionReplicas
from kgroup.broker.security.settings import BrokerSecurity
from kgroup.broker.security.state import SecurityState
from kgroup.broker.shards import GroupShards, HandOver
from kgroup.broker.time_slices import TimeSlices
from kgroup.broker.topics import Topic, Topics
from kgroup.broker.transaction_coordinator import TransactionCoordinator, TransactionLog
from kgroup.error_codes import ErrorCode
from kgroup.interfaces import Random
from kgroup.types import BrokerAddress, TopicPartition

_UUID_BITS: Final = 128
_TRANSACTION_LOG_ROTATION: Final = 1
"""The rotation of the transaction log: its first leader is not that of the offsets topic."""


@final
class ClusterState:
    """The state of a cluster of embedded brokers.

    Attributes:
        brokers: every broker by its id, whether it is up or not.
        live_brokers: which of them are up.
        shards: the shards of the group coordinator.
        time_slices: how requests share the event loop.
        internal_errors: defects of the broker itself.
        security: users and access control.
        on_transaction_end: is called with each transaction that ends, for simulations: the
            producer's id, whether it was committed, and the offset of each marker; or None.
    """

    def __init__(
        self,
        settings: BrokerSettings,
        random: Random,
        wall_clock: Callable[[], float],
        brokers: int = 1,
        security: BrokerSecurity | None = None,
        hosts: Collection[str] = (),
    ) -> None:
        """An empty cluster.

        Args:
            settings: see ``BrokerSettings``.
            random: makes every id.
            wall_clock: seconds since 1970, for time stamps.
            brokers: how many; their ids count from ``settings.node_id``.
            security: see ``BrokerSecurity``; by default there is none.
            hosts: the names under which clients reach the brokers, for certificates.
        """
        self.settings: Final = settings
        self.time_slices: Final = TimeSlices()
        self.internal_errors: Final = InternalErrors()
        self.on_transaction_end: (
            Callable[[int, bool, Sequence[tuple[TopicPartition, int]]], None] | None
        ) = None
        self._random = random
        self._wall_clock = wall_clock
        self.security: Final = SecurityState(
            security or BrokerSecurity(), random, wall_clock, hosts
        )
        identity = self.new_uuid()
        self.cluster_id: Final = base64.urlsafe_b64encode(identity.bytes).decode().rstrip("=")
        self.live_brokers: Final = LiveBrokers(range(settings.node_id, settings.node_id + brokers))
        self.topics: Final = Topics(settings, self.new_uuid, self.live_brokers)
        replicas = self._place(
            settings.groups.offsets_topic_partitions, settings.offsets_topic_replication_factor
        )
        self._transaction_replicas = self._place(
            settings.transaction_log_partitions,
            settings.transaction_log_replication_factor,
            rotation=_TRANSACTION_LOG_ROTATION,
        )
        self._transaction_log = TransactionLog()
        self._internal_topics: set[str] = set()
        self.brokers: Final[Mapping[int, Node]] = {
            node_id: self._broker(node_id, replicas) for node_id in self.live_brokers.node_ids
        }
        self.shards: Final = GroupShards(
            replicas, {node_id: node.groups for node_id, node in self.brokers.items()}
        )

    def _place(
        self, partitions: int, replication_factor: int, rotation: int = 0
    ) -> list[PartitionReplicas]:
        """Replicas for a topic of Kafka's own: at most as many as there are brokers."""
        most = min(replication_factor, len(self.live_brokers.node_ids))
        return [
            self.live_brokers.place_replicas(rotation + shard, most) for shard in range(partitions)
        ]

    def _broker(self, node_id: int, replicas: Collection[PartitionReplicas]) -> Node:
        coordinator = GroupCoordinatorService(
            self.settings.groups,
            new_id=lambda: str(self.new_uuid()),
            topics=self.topics.partitions,
            shards=[shard for shard, replicas in enumerate(replicas) if replicas.leader == node_id],
            max_batch_bytes=self.settings.max_message_bytes,
        )
        transactions = TransactionCoordinator(
            self.settings.transaction_max_timeout,
            self.settings.max_transactional_ids,
            self._finish_transaction,
            transaction_log=self._transaction_log,
            coordinator_error=lambda name: self._transaction_coordinator_error(node_id, name),
            has_coordinator=lambda name: self._replicas_of_transaction(name).leader != NO_LEADER,
        )
        return Node(BrokerAddress(node_id, "", 0, self.settings.rack), coordinator, transactions)

    def start_alarms(self, nursery: trio.Nursery) -> None:
        """Start the tasks that run the timers of groups and transactions."""
        for node in self.brokers.values():
            for alarm in (node.groups.alarm, node.transaction_alarm):
                alarm.internal_errors = self.internal_errors
                nursery.start_soon(alarm.run)

    def new_uuid(self) -> UUID:
        """A version 4 UUID from the injected ``Random``."""
        return UUID(int=self._random.getrandbits(_UUID_BITS), version=4)

    def now_ms(self) -> int:
        """Milliseconds since 1970, for time stamps."""
        return int(self._wall_clock() * 1000)

    # Brokers and coordinators.

    @property
    def nodes(self) -> tuple[BrokerAddress, ...]:
        """The brokers that are up, by id."""
        return tuple(self.brokers[node_id].address for node_id in self.live_brokers.up)

    @property
    def controller_id(self) -> int:
        """The broker that responses name as controller, or -1; any broker does its work."""
        return next(iter(self.live_brokers.up), NO_LEADER)

    def coordinator_of(self, group_id: str) -> Node | None:
        """The broker that coordinates a group, or None while there is none."""
        return self.brokers.get(self.shards.replicas_of(group_id).leader)

    def transaction_coordinator_of(self, transactional_id: str) -> Node | None:
        """The broker that coordinates a transactional id, or None while there is none."""
        return self.brokers.get(self._replicas_of_transaction(transactional_id).leader)

    def _replicas_of_transaction(self, transactional_id: str) -> PartitionReplicas:
        return self._transaction_replicas[
            shard_of(transactional_id, len(self._transaction_replicas))
        ]

    def _transaction_coordinator_error(
        self, node_id: int, transactional_id: str
    ) -> ErrorCode | None:
        elsewhere = self._replicas_of_transaction(transactional_id).leader != node_id
        return ErrorCode.NOT_COORDINATOR if elsewhere else None

    # Brokers that stop and start, leaders that change.

    def broker_stopped(self, node_id: int, *, answer: bool) -> HandOver:
        """A broker has stopped: others take over what they have replicas of.

        Args:
            node_id: which.
            answer: whether requests parked at its coordinator are answered NOT_COORDINATOR.
        """
        self.live_brokers.set_up(node_id, is_up=False)
        return self._elect(
            lambda replicas: self.live_brokers.broker_stopped(replicas, node_id), answer=answer
        )

    def broker_started(self, node_id: int) -> HandOver:
        """A broker has started again: it leads what no other broker could."""
        self.live_brokers.set_up(node_id, is_up=True)
        return self._elect(self.live_brokers.broker_started)

    def rebalance_leaders(self) -> HandOver:
        """Give every partition and shard to its preferred replica, where that is in sync."""
        return self._elect(self.live_brokers.elect_preferred)

    def _elect(
        self, elect: Callable[[PartitionReplicas], bool], *, answer: bool = True
    ) -> HandOver:
        for topic in self.topics:
            for replicas, log in zip(topic.replicas, topic.logs, strict=True):
                if elect(replicas):
                    log.leader_changed(replicas.epoch)
        for replicas in self._transaction_replicas:
            elect(replicas)
        for node in self.brokers.values():
            node.transaction_alarm.reschedule()
        return self.shards.change(range(len(self.shards.replicas)), elect, answer=answer)

    # Topics.

    @property
    def internal_topics(self) -> Mapping[str, InternalTopic]:
        """Kafka's own topics, by name, as far as they are in use."""
        return {
            name: InternalTopic(name, replicas)
            for name, replicas in (
                (OFFSETS_TOPIC, self.shards.replicas),
                (TRANSACTIONS_TOPIC, self._transaction_replicas),
            )
            if name in self._internal_topics
        }

    def use_internal_topic(self, name: str) -> None:
        """List one of Kafka's own topics from now on."""
        self._internal_topics.add(name)

    def delete_topic(self, topic: Topic) -> None:
        """Delete a topic, and the offsets that groups have committed for it.

        Raises:
            RequestError: TOPIC_DELETION_DISABLED.
        """
        gone = self.topics.delete(topic)
        self.shards.delete_partitions(gone)

    def _finish_transaction(
        self,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        shards: Collection[int],
        *,
        committed: bool,
    ) -> None:
        now = self.now_ms()
        # Built once, before any log has changed: if it cannot be, the transaction stays open.
        data = marker(producer_id, epoch, committed=committed, now=now)
        markers = []
        for partition in partitions:
            if not self.topics.has(partition):
                continue  # its topic was deleted meanwhile
            log = self.topics.log(partition.topic, partition.partition)
            markers.append((partition, log.end_offset))
            log.end_transaction(producer_id, epoch, data, committed=committed)
        if shards:
            self.shards.complete_transaction(producer_id, committed=committed)
        if self.on_transaction_end is not None:
            self.on_transaction_end(producer_id, committed, markers)
