"""Which broker leads a partition: its replicas, those in sync, and elections among them.

Decisions without I/O, the same for partitions of topics and for the shards of the coordinators.
There is one copy of every log, whatever number of replicas is told: replicas decide who can take
over, and nothing else. Who tells a leader that it leads is for others.

Invariants: a leader is up and in sync; the leader epoch rises with every change of the leader,
also with the change to none; some replica is always in sync, if need be one that is down.

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
    """Where a partition is.

    Attributes:
        node_ids: the ids of its brokers; the first is the preferred leader.
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
    """The brokers of a cluster by id, which of them are up, and what follows from that."""

    def __init__(self, node_ids: Iterable[int]) -> None:
        self._up: dict[int, bool] = dict.fromkeys(node_ids, True)

    @property
    def node_ids(self) -> tuple[int, ...]:
        """All brokers."""
        return tuple(self._up)

    @property
    def up(self) -> tuple[int, ...]:
        """Those that are up."""
        return tuple(node_id for node_id, is_up in self._up.items() if is_up)

    def is_up(self, node_id: int) -> bool:
        """Whether a broker is up."""
        return self._up.get(node_id, False)

    def set_up(self, node_id: int, *, is_up: bool) -> None:
        """A broker has come, or gone; its partitions are to be told."""
        self._up[node_id] = is_up

    # Placing.

    def place_replicas(self, rotation: int, replication_factor: int) -> PartitionReplicas:
        """The place of the partition whose turn it is: leaders go round the brokers that are up.

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
        """The place of a partition whose replicas somebody has chosen.

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

    # What happens to a place. Each says whether its leader has changed.

    def broker_stopped(self, replicas: PartitionReplicas, node_id: int) -> bool:
        """A broker has gone."""
        return self._settle(replicas, changed=replicas.leader == node_id and self._elect(replicas))

    def broker_started(self, replicas: PartitionReplicas) -> bool:
        """A broker has come: with a leader to learn from it is in sync at once."""
        return self._settle(
            replicas, changed=replicas.leader == NO_LEADER and self._elect(replicas)
        )

    def elect_preferred(self, replicas: PartitionReplicas) -> bool:
        """Give the preferred replica the lead, if it is in sync."""
        first = replicas.node_ids[0]
        return first in replicas.isr and self.is_up(first) and _lead(replicas, first)

    def move_leader(self, replicas: PartitionReplicas, node_id: int) -> bool:
        """Give a broker that is up the lead; one that is no replica takes the leader's place."""
        if node_id not in replicas.node_ids:
            gone = replicas.node_ids[0] if replicas.leader == NO_LEADER else replicas.leader
            replicas.node_ids = tuple(node_id if one == gone else one for one in replicas.node_ids)
        return self._settle(replicas, changed=_lead(replicas, node_id))

    def _elect(self, replicas: PartitionReplicas) -> bool:
        able = (one for one in replicas.node_ids if one in replicas.isr and self.is_up(one))
        return _lead(replicas, next(able, NO_LEADER))

    def _settle(self, replicas: PartitionReplicas, *, changed: bool) -> bool:
        # Without a leader those stay in sync that were last: one of them has to come first.
        if replicas.leader != NO_LEADER:
            replicas.isr = tuple(one for one in replicas.node_ids if self.is_up(one))
        return changed


def _lead(replicas: PartitionReplicas, node_id: int) -> bool:
    if replicas.leader == node_id:
        return False
    replicas.leader, replicas.epoch = node_id, replicas.epoch + 1
    return True
