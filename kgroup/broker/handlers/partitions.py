"""The log of a partition for the broker that leads it: the checks that such requests share.

Only leaders answer: reading from followers (KIP-392) is not offered.

Source: Kafka's ``ReplicaManager.getPartitionOrError``, ``Partition.getLocalLog``, KIP-320.
"""

from __future__ import annotations

from typing import Final

from kio.schema.errors import ErrorCode

from kgroup.broker.call import Call
from kgroup.broker.log import PartitionLog
from kgroup.broker.placement import Place
from kgroup.broker.refusal import RefusedError

NO_EPOCH: Final = -1
"""What a client that knows no leader epoch sends."""


def check_led(node_id: int, place: Place, epoch: int = NO_EPOCH) -> None:
    """Whether this broker leads, in the leader epoch that the client knows of, if any.

    Raises:
        RefusedError: FENCED_LEADER_EPOCH for an epoch that is over, UNKNOWN_LEADER_EPOCH for one
            that has not begun, NOT_LEADER_OR_FOLLOWER.
    """
    if epoch not in (NO_EPOCH, place.epoch) and node_id in place.replicas:
        over = epoch < place.epoch
        code = ErrorCode.fenced_leader_epoch if over else ErrorCode.unknown_leader_epoch
        raise RefusedError(code, f"leader epoch {epoch}; it is {place.epoch}")
    if place.leader != node_id:
        raise RefusedError(
            ErrorCode.not_leader_or_follower, f"broker {node_id} does not lead this partition"
        )


def led_log(call: Call, name: str, number: int, epoch: int = NO_EPOCH) -> PartitionLog:
    """The log of a partition, if this broker leads it.

    Raises:
        RefusedError: UNKNOWN_TOPIC_OR_PARTITION, and as ``check_led``.
    """
    log = call.cluster.topics.log(name, number)
    check_led(call.node.node_id, call.cluster.topics.place(name, number), epoch)
    return log
