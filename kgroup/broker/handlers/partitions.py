"""The log of a partition that the broker leads: checks that several requests share.

Only leaders serve a partition: reading from followers (KIP-392) is not offered.

Source: Kafka's ``ReplicaManager.getPartitionOrError``, ``Partition.getLocalLog``, KIP-320,
KIP-951 (the error names the leader).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final, final

from kgroup.broker.log import PartitionLog
from kgroup.broker.replicas import NO_LEADER, PartitionReplicas
from kgroup.broker.request_context import RequestContext
from kgroup.broker.request_error import RequestError
from kgroup.error_codes import ErrorCode

NO_EPOCH: Final = -1
"""Sent by clients that know no leader epoch."""


@final
class WrongLeaderError(RequestError):
    """This broker does not lead, or not in the client's epoch; ``replicas`` has the leader."""

    def __init__(self, code: ErrorCode, message: str, replicas: PartitionReplicas) -> None:
        super().__init__(code, message)
        self.replicas: Final = replicas


def check_leader(node_id: int, replicas: PartitionReplicas, epoch: int = NO_EPOCH) -> None:
    """Check that this broker leads, in the leader epoch that the client knows, if any.

    Raises:
        RequestError: FENCED_LEADER_EPOCH for an epoch that is over, UNKNOWN_LEADER_EPOCH for one
            that has not begun, NOT_LEADER_OR_FOLLOWER.
    """
    if epoch not in (NO_EPOCH, replicas.epoch) and node_id in replicas.node_ids:
        message = f"the request has leader epoch {epoch}, but it is {replicas.epoch}"
        if epoch > replicas.epoch:
            raise RequestError(ErrorCode.UNKNOWN_LEADER_EPOCH, message)
        raise WrongLeaderError(ErrorCode.FENCED_LEADER_EPOCH, message, replicas)
    if replicas.leader != node_id:
        raise WrongLeaderError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker {node_id} does not lead this partition",
            replicas,
        )


#: API -> the first version whose errors name the leader (KIP-951).
_CURRENT_LEADER_FROM: Final[Mapping[str, int]] = {"produce": 10, "fetch": 16}


def current_leader(context: RequestContext, error: RequestError) -> dict[str, Any]:
    """The fields about a partition's leader in its response: only if the leader is the error."""
    if (
        not isinstance(error, WrongLeaderError)
        or context.version < _CURRENT_LEADER_FROM[context.api]
    ):
        return {}
    replicas = error.replicas
    return {"current_leader": {"leader_id": replicas.leader, "leader_epoch": replicas.epoch}}


def node_endpoints(
    context: RequestContext, partitions: Iterable[Mapping[str, Any]]
) -> dict[str, Any]:
    """The field with the addresses of the leaders that these partitions' responses name."""
    node_ids = [
        part["current_leader"]["leader_id"] for part in partitions if "current_leader" in part
    ]
    addresses = [
        context.cluster.brokers[node_id].address
        for node_id in dict.fromkeys(node_ids)
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


def leader_log(
    context: RequestContext, name: str, number: int, epoch: int = NO_EPOCH
) -> PartitionLog:
    """The log of a partition, if this broker leads it.

    Raises:
        RequestError: UNKNOWN_TOPIC_OR_PARTITION, and as ``check_leader``.
    """
    log, replicas = context.cluster.topics.log_and_replicas(name, number)
    check_leader(context.node.node_id, replicas, epoch)
    return log
