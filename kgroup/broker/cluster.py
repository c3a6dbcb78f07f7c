"""The state that the broker's requests work on: topics, groups, transactions, addresses.

One object without I/O of its own (its clock is trio's, its waits are the desk's and the logs').
Requests reach it through the handlers, programs and tests through ``Broker``. Which broker
leads a partition or coordinates a group is asked here and nowhere else; today it is the one
that there is.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection
from typing import Final, final
from uuid import UUID

import trio

from kgroup.broker.desk import Alarm, GroupDesk
from kgroup.broker.groups.coordinator import Coordinator
from kgroup.broker.settings import BrokerSettings
from kgroup.broker.topics import Topic, Topics
from kgroup.broker.transactions import Transactions
from kgroup.model import Broker as Node
from kgroup.model import TopicPartition
from kgroup.protocols import Random

_UUID_BITS: Final = 128


@final
class Cluster:
    """What the embedded broker knows."""

    def __init__(
        self, settings: BrokerSettings, random: Random, wall_clock: Callable[[], float]
    ) -> None:
        """An empty cluster of one broker.

        Args:
            settings: see ``BrokerSettings``.
            random: makes every id.
            wall_clock: seconds since 1970, for time stamps.
        """
        self.settings: Final = settings
        self._random = random
        self._wall_clock = wall_clock
        identity = self.new_uuid()
        self.cluster_id: Final = base64.urlsafe_b64encode(identity.bytes).decode().rstrip("=")
        self.topics: Final = Topics(settings, self.new_uuid)
        self.groups: Final = GroupDesk(
            Coordinator(
                settings.groups,
                new_id=lambda: str(self.new_uuid()),
                topics=self.topics.partitions,
            )
        )
        self.transactions: Final = Transactions(
            settings.transaction_max_timeout, self._finish_transaction
        )
        self.transaction_alarm: Final = Alarm(
            lambda: self.transactions.next_timer,
            lambda: self.transactions.expire(trio.current_time()),
        )
        self._node = Node(settings.node_id, "", 0, settings.rack)

    def new_uuid(self) -> UUID:
        """A version 4 UUID from the injected random choices."""
        return UUID(int=self._random.getrandbits(_UUID_BITS), version=4)

    def now_ms(self) -> int:
        """Milliseconds since 1970, for time stamps."""
        return int(self._wall_clock() * 1000)

    # Brokers.

    @property
    def nodes(self) -> tuple[Node, ...]:
        """All brokers, by id."""
        return (self._node,)

    @property
    def controller(self) -> Node:
        """The broker that is told of as controller."""
        return self._node

    def move(self, host: str, port: int) -> None:
        """The broker is to be found at this address from now on."""
        self._node = Node(self._node.node_id, host, port, self._node.rack)

    def leader_of(self, partition: TopicPartition) -> Node:
        """The broker that leads a partition."""
        del partition
        return self._node

    def coordinator_of(self, key: str) -> Node:
        """The broker that coordinates a group or a transactional id."""
        del key
        return self._node

    # Topics.

    def delete_topic(self, topic: Topic) -> None:
        """Delete a topic, and with it what groups have committed of it.

        Raises:
            RefusedError: TOPIC_DELETION_DISABLED.
        """
        gone = self.topics.delete(topic)
        self.groups.coordinator.delete_partitions(gone)
        self.transactions.forget(gone)

    def _finish_transaction(
        self,
        producer_id: int,
        epoch: int,
        partitions: Collection[TopicPartition],
        groups: Collection[str],
        *,
        committed: bool,
    ) -> None:
        now = self.now_ms()
        for partition in partitions:
            log = self.topics.log(partition.topic, partition.partition)
            log.end_transaction(producer_id, epoch, now, committed=committed)
        if groups:
            self.groups.coordinator.complete_transaction(producer_id, committed=committed)
