"""ElectLeaders: the preferred replica leads again, or any replica that can if none leads.

Source: Kafka's ``ReplicationControlManager.electLeaders``, KIP-460.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kgroup.broker.replicas import NO_LEADER
from kgroup.broker.request_context import RequestContext
from kgroup.broker.request_error import RequestError
from kgroup.broker.response_versions import ResponseFields
from kgroup.error_codes import ErrorCode
from kgroup.types import TopicPartition

_PREFERRED: Final = 0
_UNCLEAN: Final = 1


async def elect_leaders(context: RequestContext) -> ResponseFields:
    """Answer ElectLeaders; of all partitions, it lists only those that needed an election."""
    request = context.request
    if getattr(request, "election_type", _PREFERRED) not in (_PREFERRED, _UNCLEAN):
        return {"error_code": ErrorCode.INVALID_REQUEST, "replica_election_results": ()}
    everywhere = request.topic_partitions is None
    topics: dict[str, list[dict[str, Any]]] = {}
    async for partition in context.work.each(_requested(context)):
        code, message = _elect(context, partition)
        results = topics.setdefault(partition.topic, [])
        if not (everywhere and code is ErrorCode.ELECTION_NOT_NEEDED):
            await context.work.include(1)
            results.append(
                {
                    "partition_id": partition.partition,
                    "error_code": code,
                    "error_message": message,
                }
            )
    return {
        "error_code": ErrorCode.NONE,
        "replica_election_results": [
            {"topic": topic, "partition_result": results} for topic, results in topics.items()
        ],
    }


def _requested(context: RequestContext) -> Iterator[TopicPartition]:
    if context.request.topic_partitions is None:
        for topic in context.cluster.topics:
            for number in range(len(topic.logs)):
                yield TopicPartition(topic.name, number)
        return
    for requested in context.request.topic_partitions:
        for number in requested.partitions:
            yield TopicPartition(requested.topic, number)


def _elect(context: RequestContext, partition: TopicPartition) -> tuple[ErrorCode, str | None]:
    try:
        log, replicas = context.cluster.topics.log_and_replicas(
            partition.topic, partition.partition
        )
    except RequestError as error:
        return error.code, error.message
    unclean = getattr(context.request, "election_type", _PREFERRED) == _UNCLEAN
    if replicas.leader == replicas.node_ids[0] or (unclean and replicas.leader != NO_LEADER):
        return ErrorCode.ELECTION_NOT_NEEDED, "the partition has the right leader already"
    if unclean:
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "no replica of the partition is up"
    if not context.cluster.live_brokers.elect_preferred(replicas):
        return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "the preferred replica is not in sync"
    log.leader_changed(replicas.epoch)
    return ErrorCode.NONE, None
