"""The log of a partition for the broker that leads it: the checks that such requests share.

Only leaders answer: reading from followers (KIP-392) is not offered.

Source: Kafka's ``ReplicaManager.getPartitionOrError``, ``Partition.getLocalLog``, KIP-320,
KIP-951 (who leads is told with the refusal).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, final

from kio.schema.errors import ErrorCode

from kgroup.broker.log import PartitionLog
from kgroup.broker.replicas import NO_LEADER, PartitionReplicas
from kgroup.broker.request_context import RequestContext
from kgroup.broker.request_error import RequestError

NO_EPOCH: Final = -1
"""What a client that knows no leader epoch sends."""


@final
class WrongLeaderError(RequestError):
    """Another broker leads, or this one does since; ``place`` says which, and in which epoch."""

    def __init__(self, code: ErrorCode, message: str, place: PartitionReplicas) -> None:
        super().__init__(code, message)
        self.place: Final = place


def check_led(node_id: int, place: PartitionReplicas, epoch: int = NO_EPOCH) -> None:
    """Whether this broker leads, in the leader epoch that the client knows of, if any.

    Raises:
        RequestError: FENCED_LEADER_EPOCH for an epoch that is over, UNKNOWN_LEADER_EPOCH for one
            that has not begun, NOT_LEADER_OR_FOLLOWER.
    """
    if epoch not in (NO_EPOCH, place.epoch) and node_id in place.replicas:
        message = f"leader epoch {epoch}; it is {place.epoch}"
        if epoch > place.epoch:
            raise RequestError(ErrorCode.unknown_leader_epoch, message)
        raise WrongLeaderError(ErrorCode.fenced_leader_epoch, message, place)
    if place.leader != node_id:
        raise WrongLeaderError(
            ErrorCode.not_leader_or_follower,
            f"broker {node_id} does not lead this partition",
            place,
        )


#: API -> the first version whose refusals tell who leads (KIP-951).
_TELLS_LEADER_FROM: Final[Mapping[str, int]] = {"produce": 10, "fetch": 16}


def leader_told(call: RequestContext, refusal: RequestError) -> dict[str, Any]:
    """What the answer for a partition says of its leader: something only if that is the fault."""
    if not isinstance(refusal, WrongLeaderError) or call.version < _TELLS_LEADER_FROM[call.api]:
        return {}
    place = refusal.place
    return {"current_leader": {"leader_id": place.leader, "leader_epoch": place.epoch}}


def endpoints_told(call: RequestContext, partitions: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Where the leaders are that the answers for these partitions tell of."""
    told = [part["current_leader"]["leader_id"] for part in partitions if "current_leader" in part]
    addresses = [
        call.cluster.brokers[node_id].address
        for node_id in dict.fromkeys(told)
        if node_id != NO_LEADER
    ]
    if not addresses:
        return {}
    return {
        "node_endpoints": [
            {"node_id": one.node_id, "host": one.host, "port": one.port, "rack": one.rack}
            for one in addresses
        ]
    }


def led_log(call: RequestContext, name: str, number: int, epoch: int = NO_EPOCH) -> PartitionLog:
    """The log of a partition, if this broker leads it.

    Raises:
        RequestError: UNKNOWN_TOPIC_OR_PARTITION, and as ``check_led``.
    """
    log, place = call.cluster.topics.located(name, number)
    check_led(call.node.node_id, place, epoch)
    return log
