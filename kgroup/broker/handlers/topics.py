"""CreateTopics, DeleteTopics, CreatePartitions.

Source: Kafka's ``ReplicationControlManager``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from kgroup.broker.authorization import may
from kgroup.broker.broker_settings import MOST_PARTITIONS
from kgroup.broker.handlers.configs import topic_configs
from kgroup.broker.internal_topics import refuse_change
from kgroup.broker.request_context import RequestContext
from kgroup.broker.request_error import RequestError, shortened
from kgroup.broker.response_versions import ResponseFields
from kgroup.broker.security.acls import Operation, ResourceType
from kgroup.broker.topics import UNSET
from kgroup.error_codes import ErrorCode

_STEPS_OF_A_DELETION: Final = 50
_BY_ID_FROM: Final = 6
"""The first version of DeleteTopics that names topics by id or name."""


async def create_topics(context: RequestContext) -> ResponseFields:
    """Answer CreateTopics; each topic succeeds or fails by itself."""
    times = Counter(requested.name for requested in context.request.topics)
    once = {requested.name: requested for requested in context.request.topics}
    _refuse_excess(context, once.values())
    return {
        "topics": [
            await _create(context, requested, times[requested.name])
            async for requested in context.work.each(once.values())
        ]
    }


def _refuse_excess(context: RequestContext, topics: Iterable[Any]) -> None:
    default = context.cluster.settings.default_partitions
    total = 0
    for requested in topics:
        number = default if requested.num_partitions == UNSET else max(0, requested.num_partitions)
        total += len(requested.assignments) or number
    if total > MOST_PARTITIONS:
        raise RequestError(
            ErrorCode.POLICY_VIOLATION,
            f"{total} partitions in one request are too many; {MOST_PARTITIONS} are allowed",
        )


async def _create(context: RequestContext, requested: Any, times: int) -> dict[str, Any]:
    topics = context.cluster.topics
    await context.work.include(len(topics.config_defaults()))
    shows_configs = await may(
        context, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, requested.name
    )
    try:
        if times > 1:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"topic {requested.name!r} is named {times} times"
            )
        topic = topics.create(
            requested.name,
            requested.num_partitions,
            replication_factor=requested.replication_factor,
            assignments=_assignments(requested),
            configs={config.name: config.value for config in requested.configs},
            validate_only=context.request.validate_only,
        )
    except RequestError as error:
        return {
            "name": requested.name,
            "topic_id": None,
            "error_code": error.code,
            "error_message": error.message,
            "configs": (),
        }
    created = {
        "name": topic.name,
        "topic_id": topic.topic_id,
        "error_code": ErrorCode.NONE,
        "error_message": None,
    }
    if not shows_configs:
        refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return {**created, "topic_config_error_code": refused, "configs": ()}
    return {
        **created,
        "num_partitions": len(topic.logs),
        "replication_factor": topic.replication_factor,
        "configs": [
            {
                "name": name,
                "value": topic.configs.get(
                    name, config.value
                ),  # as given, unlike in DescribeConfigs
                "read_only": False,
                "config_source": config.source,
                "is_sensitive": False,
            }
            for name, config in topic_configs(context, topic.configs).items()
        ],
    }


def _assignments(requested: Any) -> list[tuple[int, ...]]:
    """The replicas of each partition, if the request chooses them."""
    if not requested.assignments:
        return []
    if (requested.num_partitions, requested.replication_factor) != (UNSET, UNSET):
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            "there are both an assignment and a number of partitions or replicas",
        )
    chosen = {one.partition_index: tuple(one.broker_ids) for one in requested.assignments}
    if sorted(chosen) != list(range(len(requested.assignments))):
        raise RequestError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, "each partition must be named once, from 0 on"
        )
    return [chosen[number] for number in range(len(chosen))]


async def delete_topics(context: RequestContext) -> ResponseFields:
    """Answer DeleteTopics, by name or by id; a topic that is named twice is not deleted."""
    request = context.request
    if context.version >= _BY_ID_FROM:
        requested = [(state.name, state.topic_id) for state in request.topics]
    else:
        requested = [(name, None) for name in request.topic_names]
    await context.work.spend(len(requested))
    times = Counter(requested)
    by_id = {topic_id for name, topic_id in times if name is None}
    # A name that is refused, with an id or twice, names no topic: its topic's own id still counts.
    named_once = [
        name
        for (name, topic_id), named in times.items()
        if name is not None and topic_id is None and named == 1
    ]
    found = {name: context.cluster.topics.get(name) for name in named_once}
    by_name = {topic.topic_id for topic in found.values() if topic is not None}
    responses = []
    async for (name, topic_id), named in context.work.each(times.items()):
        topic = None if name is None else found.get(name)
        if (name is None) is (topic_id is None):
            wrong = _refused_deletion(name, topic_id, "it needs either a name or an id")
            responses += [wrong] * named
        elif named > 1:
            responses.append(_refused_deletion(name, topic_id, f"it is named {named} times"))
        elif topic is not None and topic.topic_id in by_id:
            responses.append(_refused_deletion(name, topic.topic_id, "it is named by its id, too"))
        elif name is not None or topic_id not in by_name:
            responses.append(await _delete(context, name, topic_id))
    return {"responses": responses}


def _refused_deletion(name: str | None, topic_id: UUID | None, reason: str) -> dict[str, Any]:
    return {
        "name": name,
        "topic_id": topic_id,
        "error_code": ErrorCode.INVALID_REQUEST,
        "error_message": shortened(f"{reason}: topic {name or topic_id}"),
    }


async def _delete(context: RequestContext, name: str | None, topic_id: Any) -> dict[str, Any]:
    topics = context.cluster.topics
    topic = topics.by_id(topic_id) if name is None else topics.get(name)
    try:
        refuse_change(_internal_name(context, name, topic_id))
        if topic is None and name is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic of id {topic_id}")
        if topic is None:
            raise RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
        context.cluster.delete_topic(topic)
        await context.work.spend(_STEPS_OF_A_DELETION)  # every group and transaction is searched
    except RequestError as error:
        return {
            "name": name,
            "topic_id": topic_id,
            "error_code": error.code,
            "error_message": error.message,
        }
    return {"name": topic.name, "topic_id": topic.topic_id, "error_code": ErrorCode.NONE}


def _internal_name(context: RequestContext, name: str | None, topic_id: UUID | None) -> str:
    """The name, or that of the coordinator's topic with this id; empty for any other id."""
    internal = context.cluster.internal_topics.values()
    return name or next((one.name for one in internal if one.topic_id == topic_id), "")


async def create_partitions(context: RequestContext) -> ResponseFields:
    """Answer CreatePartitions; each topic succeeds or fails by itself."""
    times = Counter(requested.name for requested in context.request.topics)
    once = {requested.name: requested for requested in context.request.topics}
    return {
        "results": [
            await _grow(context, requested, times[requested.name])
            async for requested in context.work.each(once.values())
        ]
    }


async def _grow(context: RequestContext, requested: Any, times: int) -> dict[str, Any]:
    have = context.cluster.topics.partitions(requested.name) or 0
    # Each partition gets replicas, even if the request is only validated.
    await context.work.spend(max(0, min(requested.count, MOST_PARTITIONS) - have))
    try:
        if times > 1:
            raise RequestError(
                ErrorCode.INVALID_REQUEST, f"{requested.name!r} is in the request {times} times"
            )
        refuse_change(requested.name)
        chosen = requested.assignments
        context.cluster.topics.grow(
            requested.name,
            requested.count,
            assignments=None if chosen is None else [one.broker_ids for one in chosen],
            validate_only=context.request.validate_only,
        )
    except RequestError as error:
        return {
            "name": requested.name,
            "error_code": error.code,
            "error_message": error.message,
        }
    return {"name": requested.name, "error_code": ErrorCode.NONE}
