"""ElectLeaders: the preferred replica leads again, or any that can where nobody does.

Source: Kafka's ``ReplicationControlManager.electLeaders``, KIP-460.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kgroup.broker.replicas import NO_LEADER
from kgroup.broker.request_context import RequestContext
from kgroup.broker.request_error import RequestError
from kgroup.broker.response_versions import Answer
from kgroup.types import TopicPartition

_PREFERRED: Final = 0
_UNCLEAN: Final = 1


async def elect_leaders(call: RequestContext) -> Answer:
    """Answer ElectLeaders; asked for all partitions, it tells of those where there was need."""
    request = call.request
    if getattr(request, "election_type", _PREFERRED) not in (_PREFERRED, _UNCLEAN):
        return {"error_code": ErrorCode.invalid_request, "replica_election_results": ()}
    everywhere = request.topic_partitions is None
    topics: dict[str, list[dict[str, Any]]] = {}
    async for partition in call.work.each(_asked(call)):
        code, message = _elect(call, partition)
        if not (everywhere and code is ErrorCode.election_not_needed):
            await call.work.include(1)
            topics.setdefault(partition.topic, []).append(
                {
                    "partition_id": partition.partition,
                    "error_code": code,
                    "error_message": message,
                }
            )
    return {
        "error_code": ErrorCode.none,
        "replica_election_results": [
            {"topic": topic, "partition_result": results} for topic, results in topics.items()
        ],
    }


def _asked(call: RequestContext) -> Iterator[TopicPartition]:
    if call.request.topic_partitions is None:
        for topic in call.cluster.topics:
            for number in range(len(topic.logs)):
                yield TopicPartition(topic.name, number)
        return
    for asked in call.request.topic_partitions:
        for number in asked.partitions:
            yield TopicPartition(asked.topic, number)


def _elect(call: RequestContext, partition: TopicPartition) -> tuple[ErrorCode, str | None]:
    try:
        log, place = call.cluster.topics.located(partition.topic, partition.partition)
    except RequestError as refusal:
        return refusal.code, refusal.message
    unclean = getattr(call.request, "election_type", _PREFERRED) == _UNCLEAN
    if place.leader == place.replicas[0] or (unclean and place.leader != NO_LEADER):
        return ErrorCode.election_not_needed, "the partition has the leader that it should have"
    if unclean:
        return ErrorCode.eligible_leaders_not_available, "no replica of the partition is up"
    if not call.cluster.fleet.prefer(place):
        return ErrorCode.preferred_leader_not_available, "the preferred replica is not in sync"
    log.led(place.epoch)
    return ErrorCode.none, None
