"""Which broker leads a partition: its replicas, those in sync, and elections among them.

Decisions without I/O, the same for partitions of topics and for the shards of the coordinators.
There is one copy of every log, however many replicas a partition has: replicas only decide which
brokers can take over. The callers notify logs and coordinators of a new leader.

INVARIANTS: a leader is up and in sync; the leader epoch rises with every change of the leader,
also with the change to none; at least one replica is in sync, even if it is down.

Source: Kafka's ``ReplicationControlManager``, ``PartitionChangeBuilder`` (never unclean),
``StripedReplicaPlacer``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

import attrs

from kgroup.broker.request_error import RequestError
from kgroup.error_codes import ErrorCode

NO_LEADER: Final = -1


@final
@attrs.define(eq=False)
class PartitionReplicas:
    """The replicas of a partition, and its leader.

    Attributes:
        node_ids: the brokers that have a replica; the first is the preferred leader.
        isr: those of them that are in sync.
        leader: the id of the broker that leads it, or ``NO_LEADER``.
        epoch: how often the leader has changed.
    """

    node_ids: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    epoch: int = 0


@final
class LiveBrokers:
    """The brokers of a cluster by id, which of them are up, and the elections that follow."""

    def __init__(self, node_ids: Iterable[int]) -> None:
        self._up: dict[int, bool] = dict.fromkeys(node_ids, True)

    @property
    def node_ids(self) -> tuple[int, ...]:
        """All brokers."""
        return tuple(self._up)

    @property
    def up(self) -> tuple[int, ...]:
        """The brokers that are up."""
        return tuple(node_id for node_id, is_up in self._up.items() if is_up)

    def is_up(self, node_id: int) -> bool:
        """Whether a broker is up."""
        return self._up.get(node_id, False)

    def set_up(self, node_id: int, *, is_up: bool) -> None:
        """Note that a broker has started or stopped; the caller then updates every partition."""
        self._up[node_id] = is_up

    # Placement of replicas.

    def place_replicas(self, rotation: int, replication_factor: int) -> PartitionReplicas:
        """Replicas for a new partition: leaders rotate through the brokers that are up.

        Args:
            rotation: how far to rotate; one more for each partition.
            replication_factor: how many replicas.

        Raises:
            RequestError: INVALID_REPLICATION_FACTOR, if there are not as many brokers, or none
                is up.
        """
        up = self.up
        if not 1 <= replication_factor <= len(self._up) or not up:
            raise RequestError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"replication factor {replication_factor}; brokers: {len(self._up)}, {len(up)} up",
            )
        start = rotation % len(up)
        down = tuple(node_id for node_id in self._up if node_id not in up)
        return self._placed((*up[start:], *up[:start], *down)[:replication_factor])

    def place_on(self, replicas: Iterable[int]) -> PartitionReplicas:
        """Replicas for a new partition on given brokers, the preferred leader first.

        Raises:
            RequestError: INVALID_REPLICA_ASSIGNMENT.
        """
        chosen = tuple(replicas)
        if not chosen or len(set(chosen)) < len(chosen) or any(n not in self._up for n in chosen):
            raise RequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"replicas {list(chosen)}; the brokers are {list(self._up)}",
            )
        if not any(map(self.is_up, chosen)):
            raise RequestError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"none of brokers {list(chosen)} is up"
            )
        return self._placed(chosen)

    def _placed(self, replicas: tuple[int, ...]) -> PartitionReplicas:
        isr = tuple(node_id for node_id in replicas if self.is_up(node_id))
        return PartitionReplicas(replicas, isr, isr[0])

    # Changes of one partition. Each returns whether the leader has changed.

    def broker_stopped(self, replicas: PartitionReplicas, node_id: int) -> bool:
        """A broker has stopped."""
        return self._settle(replicas, changed=replicas.leader == node_id and self._elect(replicas))

    def broker_started(self, replicas: PartitionReplicas) -> bool:
        """A broker has started: if there is a leader, its replica is in sync at once."""
        return self._settle(
            replicas, changed=replicas.leader == NO_LEADER and self._elect(replicas)
        )

    def elect_preferred(self, replicas: PartitionReplicas) -> bool:
        """Let the preferred replica lead, if it is in sync."""
        first = replicas.node_ids[0]
        return first in replicas.isr and self.is_up(first) and _lead(replicas, first)

    def move_leader(self, replicas: PartitionReplicas, node_id: int) -> bool:
        """Let a broker that is up lead; without a replica it takes over the old leader's."""
        if node_id not in replicas.node_ids:
            gone = replicas.node_ids[0] if replicas.leader == NO_LEADER else replicas.leader
            replicas.node_ids = tuple(node_id if one == gone else one for one in replicas.node_ids)
        return self._settle(replicas, changed=_lead(replicas, node_id))

    def reassign(self, replicas: PartitionReplicas, node_ids: Iterable[int]) -> bool:
        """Move a partition to other brokers, at once: there is one copy of its log.

        Raises:
            RequestError: INVALID_REPLICA_ASSIGNMENT.
        """
        placed = self.place_on(node_ids)
        led_by = replicas.leader
        replicas.node_ids, replicas.isr = placed.node_ids, placed.isr
        if led_by != NO_LEADER and led_by in placed.isr:
            return False
        return _lead(replicas, placed.leader)

    def _elect(self, replicas: PartitionReplicas) -> bool:
        able = (one for one in replicas.node_ids if one in replicas.isr and self.is_up(one))
        return _lead(replicas, next(able, NO_LEADER))

    def _settle(self, replicas: PartitionReplicas, *, changed: bool) -> bool:
        # Without a leader the ISR stays as it was last: only a replica in it may lead next.
        if replicas.leader != NO_LEADER:
            replicas.isr = tuple(one for one in replicas.node_ids if self.is_up(one))
        return changed


def _lead(replicas: PartitionReplicas, node_id: int) -> bool:
    if replicas.leader == node_id:
        return False
    replicas.leader, replicas.epoch = node_id, replicas.epoch + 1
    return True
