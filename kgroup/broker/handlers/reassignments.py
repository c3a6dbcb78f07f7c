"""AlterPartitionReassignments, ListPartitionReassignments: which brokers have a partition.

There is one copy of every log, so a partition has moved before the request is answered: no
reassignment is ever in progress.

Source: Kafka's ``ReplicationControlManager.alterPartitionReassignments``, KIP-455.
"""

from __future__ import annotations

from typing import Any

from kgroup.broker.request_context import RequestContext
from kgroup.broker.request_error import RequestError
from kgroup.broker.response_versions import ResponseFields
from kgroup.error_codes import ErrorCode


async def alter_partition_reassignments(context: RequestContext) -> ResponseFields:
    """Answer AlterPartitionReassignments: partitions move at once, or the error says why not."""
    request = context.request
    topics = [
        {
            "name": topic.name,
            "partitions": [
                _moved(context, topic.name, requested)
                async for requested in context.work.each(topic.partitions)
            ],
        }
        async for topic in context.work.each(request.topics)
    ]
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "allow_replication_factor_change": getattr(
            request, "allow_replication_factor_change", True
        ),
        "responses": topics,
    }


def _moved(context: RequestContext, topic: str, requested: Any) -> dict[str, Any]:
    number = requested.partition_index
    code, message = ErrorCode.NONE, None
    try:
        _move(context, topic, number, requested.replicas)
    except RequestError as error:
        code, message = error.code, error.message
    return {"partition_index": number, "error_code": code, "error_message": message}


def _move(
    context: RequestContext, topic: str, number: int, node_ids: tuple[int, ...] | None
) -> None:
    """Move one partition; without brokers, the request wants to cancel a move.

    Raises:
        RequestError: UNKNOWN_TOPIC_OR_PARTITION, NO_REASSIGNMENT_IN_PROGRESS,
            INVALID_REPLICA_ASSIGNMENT, INVALID_REPLICATION_FACTOR.
    """
    cluster = context.cluster
    log, replicas = cluster.topics.log_and_replicas(topic, number)
    if node_ids is None:
        raise RequestError(
            ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
            "no reassignment of this partition is in progress",
        )
    keeps_number = not getattr(context.request, "allow_replication_factor_change", True)
    if keeps_number and len(node_ids) != len(replicas.node_ids):
        raise RequestError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the partition has {len(replicas.node_ids)} replicas, and the request allows no"
            f" change of their number to {len(node_ids)}",
        )
    if cluster.live_brokers.reassign(replicas, node_ids):
        log.leader_changed(replicas.epoch)


async def list_partition_reassignments(context: RequestContext) -> ResponseFields:
    """Answer ListPartitionReassignments with none."""
    del context
    return {"error_code": ErrorCode.NONE, "error_message": None, "topics": ()}
