"""CreateTopics, DeleteTopics, CreatePartitions: what admin clients ask for.

Source: Kafka's ``ReplicationControlManager``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kgroup.broker.broker_settings import MOST_PARTITIONS
from kgroup.broker.handlers.configs import topic_configs
from kgroup.broker.request_context import RequestContext
from kgroup.broker.request_error import RequestError
from kgroup.broker.response_versions import Answer
from kgroup.broker.topics import UNSET

_STEPS_OF_A_DELETION: Final = 50
_BY_ID_FROM: Final = 6
"""DeleteTopics names topics by id or name from this version on."""


async def create_topics(call: RequestContext) -> Answer:
    """Answer CreateTopics; each topic is judged for itself."""
    times = Counter(asked.name for asked in call.request.topics)
    once = {asked.name: asked for asked in call.request.topics}
    _refuse_excess(call, once.values())
    return {
        "topics": [
            await _create(call, asked, times[asked.name])
            async for asked in call.work.each(once.values())
        ]
    }


def _refuse_excess(call: RequestContext, topics: Iterable[Any]) -> None:
    default = call.cluster.settings.default_partitions
    total = 0
    for asked in topics:
        number = default if asked.num_partitions == UNSET else max(0, asked.num_partitions)
        total += len(asked.assignments) or number
    if total > MOST_PARTITIONS:
        raise RequestError(
            ErrorCode.policy_violation,
            f"{total} partitions in one request; it may ask for {MOST_PARTITIONS} at most",
        )


async def _create(call: RequestContext, asked: Any, times: int) -> dict[str, Any]:
    topics = call.cluster.topics
    await call.work.include(len(topics.config_defaults()))
    try:
        if times > 1:
            raise RequestError(
                ErrorCode.invalid_request, f"topic {asked.name!r} is named {times} times"
            )
        topic = topics.create(
            asked.name,
            asked.num_partitions,
            replication_factor=asked.replication_factor,
            assignments=_assignments(asked),
            configs={config.name: config.value for config in asked.configs},
            validate_only=call.request.validate_only,
        )
    except RequestError as refusal:
        return {
            "name": asked.name,
            "topic_id": None,
            "error_code": refusal.code,
            "error_message": refusal.message,
            "configs": (),
        }
    return {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "error_code": ErrorCode.none,
        "error_message": None,
        "num_partitions": len(topic.logs),
        "replication_factor": topic.replication_factor,
        "configs": [
            {
                "name": name,
                "value": config.value,
                "read_only": False,
                "config_source": config.source,
                "is_sensitive": False,
            }
            for name, config in topic_configs(call, topic.configs).items()
        ],
    }


def _assignments(asked: Any) -> list[tuple[int, ...]]:
    """The replicas of each partition, where they are chosen by hand."""
    if not asked.assignments:
        return []
    if (asked.num_partitions, asked.replication_factor) != (UNSET, UNSET):
        raise RequestError(
            ErrorCode.invalid_request, "both an assignment and a number of partitions"
        )
    chosen = {one.partition_index: tuple(one.broker_ids) for one in asked.assignments}
    if sorted(chosen) != list(range(len(asked.assignments))):
        raise RequestError(
            ErrorCode.invalid_replica_assignment, "partitions must be named once, from 0 on"
        )
    return [chosen[number] for number in range(len(chosen))]


async def delete_topics(call: RequestContext) -> Answer:
    """Answer DeleteTopics, by name or by id."""
    request = call.request
    if call.version >= _BY_ID_FROM:
        asked = [(state.name, state.topic_id) for state in request.topics]
    else:
        asked = [(name, None) for name in request.topic_names]
    return {
        "responses": [
            await _delete(call, name, topic_id) async for name, topic_id in call.work.each(asked)
        ]
    }


async def _delete(call: RequestContext, name: str | None, topic_id: Any) -> dict[str, Any]:
    topics = call.cluster.topics
    topic = topics.by_id(topic_id) if name is None else topics.get(name)
    try:
        if topic is None and name is None:
            raise RequestError(ErrorCode.unknown_topic_id, f"there is no topic of id {topic_id}")
        if topic is None:
            raise RequestError(ErrorCode.unknown_topic_or_partition, f"there is no topic {name!r}")
        call.cluster.delete_topic(topic)
        await call.work.spend(_STEPS_OF_A_DELETION)  # every group and transaction is looked through
    except RequestError as refusal:
        return {
            "name": name,
            "topic_id": topic_id,
            "error_code": refusal.code,
            "error_message": refusal.message,
        }
    return {"name": topic.name, "topic_id": topic.topic_id, "error_code": ErrorCode.none}


async def create_partitions(call: RequestContext) -> Answer:
    """Answer CreatePartitions; each topic is judged for itself."""
    times = Counter(asked.name for asked in call.request.topics)
    once = {asked.name: asked for asked in call.request.topics}
    return {
        "results": [
            await _grow(call, asked, times[asked.name])
            async for asked in call.work.each(once.values())
        ]
    }


async def _grow(call: RequestContext, asked: Any, times: int) -> dict[str, Any]:
    have = call.cluster.topics.partitions(asked.name) or 0
    # Each partition is given a place, also where the request is only judged.
    await call.work.spend(max(0, min(asked.count, MOST_PARTITIONS) - have))
    try:
        if times > 1:
            raise RequestError(
                ErrorCode.invalid_request, f"{asked.name!r} is in the request {times} times"
            )
        chosen = asked.assignments
        call.cluster.topics.grow(
            asked.name,
            asked.count,
            assignments=None if chosen is None else [one.broker_ids for one in chosen],
            validate_only=call.request.validate_only,
        )
    except RequestError as refusal:
        return {
            "name": asked.name,
            "error_code": refusal.code,
            "error_message": refusal.message,
        }
    return {"name": asked.name, "error_code": ErrorCode.none}
