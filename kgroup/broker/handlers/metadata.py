"""Metadata, DescribeCluster, FindCoordinator: brokers, topics, leaders and coordinators.

Source: Kafka's ``KafkaApis.handleTopicMetadataRequest``, ``handleFindCoordinatorRequest``,
KIP-516 (topic ids), KIP-699 (several coordinators in one request), KIP-700.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final
from uuid import UUID

from kgroup.broker.authorization import (
    OPERATIONS_NOT_REQUESTED,
    authorized_operations,
    may,
    may_create_topic,
)
from kgroup.broker.cluster_state import ClusterState
from kgroup.broker.internal_topics import (
    OFFSETS_TOPIC,
    RESERVED,
    TRANSACTIONS_TOPIC,
    InternalTopic,
)
from kgroup.broker.node import Node
from kgroup.broker.replicas import NO_LEADER, LiveBrokers, PartitionReplicas
from kgroup.broker.request_context import RequestContext
from kgroup.broker.request_error import RequestError
from kgroup.broker.response_versions import ResponseFields
from kgroup.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from kgroup.broker.topics import Topic
from kgroup.error_codes import ErrorCode
from kgroup.types import topic_fault

_ALL_BY_EMPTY_LIST: Final = 0
"""In this version an empty list means all topics; later null does."""
_ALWAYS_CREATES_UP_TO: Final = 3
"""Up to this version a Metadata request cannot say that no topic may be created."""
_BROKERS: Final = 1
"""Endpoint type of brokers; 2 is controllers (KIP-919)."""
_BATCHED_FROM: Final = 4
_PORTLESS: Final = {"node_id": -1, "host": "", "port": -1}


async def metadata(context: RequestContext) -> ResponseFields:
    """Answer Metadata; creates topics if the request wants it and the settings allow it."""
    cluster, request = context.cluster, context.request
    if request.topics is None or (not request.topics and context.version == _ALL_BY_EMPTY_LIST):
        every = [*cluster.topics, *cluster.internal_topics.values()]
        topics = [await _topic(context, topic) async for topic in context.work.each(every)]
    else:
        # A topic that is named twice is answered once, as in Kafka.
        requested = {(one.name, getattr(one, "topic_id", None)): one for one in request.topics}
        topics = [
            await _requested(context, one) async for one in context.work.each(requested.values())
        ]
    if getattr(request, "include_topic_authorized_operations", False):
        topics = [
            await _with_operations(context, topic) async for topic in context.work.each(topics)
        ]
    return {
        "brokers": [
            {"node_id": node.node_id, "host": node.host, "port": node.port, "rack": node.rack}
            for node in cluster.nodes
        ],
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id,
        "topics": topics,
        "error_code": ErrorCode.NONE,
        "cluster_authorized_operations": await _cluster_operations(context),
    }


async def _with_operations(context: RequestContext, topic: dict[str, Any]) -> dict[str, Any]:
    """What is answered about a topic, and what the user may do with it (KIP-430)."""
    if topic["name"] is None:
        return topic
    found = await authorized_operations(context, ResourceType.TOPIC, topic["name"])
    return {**topic, "topic_authorized_operations": found}


async def _cluster_operations(context: RequestContext) -> int:
    if not getattr(context.request, "include_cluster_authorized_operations", False):
        return OPERATIONS_NOT_REQUESTED
    found = await authorized_operations(context, ResourceType.CLUSTER, CLUSTER_NAME)
    # As in Kafka, a user who may not describe the cluster sees no operations at all.
    return found if found & 1 << Operation.DESCRIBE.value else 0


async def describe_cluster(context: RequestContext) -> ResponseFields:
    """Answer DescribeCluster."""
    cluster = context.cluster
    answer: dict[str, Any] = {
        "error_code": ErrorCode.NONE,
        "endpoint_type": _BROKERS,
        "cluster_id": cluster.cluster_id,
        "controller_id": cluster.controller_id,
        "brokers": [
            {
                "broker_id": node.node_id,
                "host": node.host,
                "port": node.port,
                "rack": node.rack,
                "is_fenced": False,
            }
            for node in cluster.nodes
        ],
        "cluster_authorized_operations": await _cluster_operations(context),
    }
    if getattr(context.request, "endpoint_type", _BROKERS) != _BROKERS:
        answer |= {"error_code": ErrorCode.MISMATCHED_ENDPOINT_TYPE, "brokers": []}
    return answer


async def describe_topic_partitions(context: RequestContext) -> ResponseFields:
    """Answer DescribeTopicPartitions: as many partitions as the limit allows, and the next cursor.

    Topics are in the order of their names, from the cursor's topic on; without names, all topics.
    One that the user may not describe counts nothing, and no cursor points to it.
    """
    request = context.request
    requested = {topic.name for topic in request.topics}
    first, start = _cursor(request.cursor, requested)
    cluster = context.cluster
    names = sorted(
        requested or [*(topic.name for topic in cluster.topics), *cluster.internal_topics]
    )
    most = context.cluster.settings.describe_max_partitions
    left = max(1, min(request.response_partition_limit, most))
    topics: list[dict[str, Any]] = []
    refused: list[dict[str, Any]] = []
    async for name in context.work.each([name for name in names if name >= first]):
        if not await may(context, Operation.DESCRIBE, ResourceType.TOPIC, name):
            if requested:
                refused.append(_no_topic(name, None, ErrorCode.TOPIC_AUTHORIZATION_FAILED))
            continue
        if not left:
            return _page([*topics, *refused], name, 0)
        shown = await _topic_by_name(context, name)
        partitions = shown["partitions"][start if name == first else 0 :]
        topics.append({**shown, "partitions": partitions[:left]})
        if len(partitions) > left:
            return _page([*topics, *refused], name, partitions[left]["partition_index"])
        left -= len(partitions)
    return {"topics": [*topics, *refused], "next_cursor": None}


def _cursor(cursor: Any, requested: Collection[str]) -> tuple[str, int]:
    """Where a page of DescribeTopicPartitions begins: a topic, and one of its partitions.

    Raises:
        RequestError: there is no such place.
    """
    if cursor is None:
        return "", 0
    if requested and cursor.topic_name not in requested:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"the cursor is at topic {cursor.topic_name!r}, which the request does not name",
        )
    if cursor.partition_index < 0:
        raise RequestError(
            ErrorCode.INVALID_REQUEST,
            f"the cursor is at partition {cursor.partition_index}, which is negative",
        )
    return cursor.topic_name, cursor.partition_index


def _page(topics: list[dict[str, Any]], name: str, partition: int) -> ResponseFields:
    """A page of DescribeTopicPartitions, and where the next one begins."""
    return {
        "topics": topics,
        "next_cursor": {"topic_name": name, "partition_index": partition},
    }


async def _topic_by_name(context: RequestContext, name: str) -> dict[str, Any]:
    topic = context.cluster.topics.get(name) or context.cluster.internal_topics.get(name)
    if topic is None:
        return await _with_operations(context, _no_topic(name, None, _why_absent(name)))
    shown = await _with_operations(context, await _topic(context, topic))
    # The schema allows null, but Java's admin client fails on it.
    none_eligible = {"eligible_leader_replicas": (), "last_known_elr": ()}
    return {**shown, "partitions": [{**one, **none_eligible} for one in shown["partitions"]]}


async def find_coordinator(context: RequestContext) -> ResponseFields:
    """Answer FindCoordinator, for one key or for several."""
    request = context.request
    keys = request.coordinator_keys if context.version >= _BATCHED_FROM else (request.key,)
    key_type = getattr(request, "key_type", 0)
    found = [_coordinator(context, key_type, key) async for key in context.work.each(keys)]
    if context.version >= _BATCHED_FROM:
        return {"coordinators": found}
    return {name: value for name, value in found[0].items() if name != "key"}


def _coordinator(context: RequestContext, key_type: int, key: str) -> dict[str, Any]:
    if key_type not in _FINDERS:
        refused = {
            "error_code": ErrorCode.INVALID_REQUEST,
            "error_message": f"there is no coordinator of key type {key_type}",
        }
        return {"key": key, **_PORTLESS, **refused}
    find, its_topic = _FINDERS[key_type]
    context.cluster.use_internal_topic(its_topic)
    node = find(context.cluster, key)
    if node is None:
        refused = {
            "error_code": ErrorCode.COORDINATOR_NOT_AVAILABLE,
            "error_message": "the brokers that could coordinate it are down",
        }
        return {"key": key, **_PORTLESS, **refused}
    return {
        "key": key,
        "node_id": node.node_id,
        "host": node.address.host,
        "port": node.address.port,
        "error_code": ErrorCode.NONE,
        "error_message": "NONE",
    }


#: Type of key -> what finds its coordinator, and that one's topic: of a group, of a transactional
#: id. A share group, type 2, has no coordinator here.
_FINDERS: Final[Mapping[int, tuple[Callable[[ClusterState, str], Node | None], str]]] = {
    0: (ClusterState.coordinator_of, OFFSETS_TOPIC),
    1: (ClusterState.transaction_coordinator_of, TRANSACTIONS_TOPIC),
}


async def _requested(context: RequestContext, requested: Any) -> dict[str, Any]:
    topics, internal = context.cluster.topics, context.cluster.internal_topics
    name, topic_id = requested.name, getattr(requested, "topic_id", None)
    if name is None:
        by_id: dict[UUID | None, InternalTopic] = {one.topic_id: one for one in internal.values()}
        topic = topics.by_id(topic_id) or by_id.get(topic_id)
    else:
        topic = topics.get(name) or internal.get(name)
    if topic is not None:
        return await _topic(context, topic)
    if name is None:
        return _no_topic(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    return _no_topic(name, None, await _create_if_wanted(context, name))


async def _create_if_wanted(context: RequestContext, name: str) -> ErrorCode:
    """The error of a topic that is not there, also if the request creates it.

    As in Kafka, the response to that request does not have the topic: there the controller creates
    it afterwards.
    """
    topics = context.cluster.topics
    if name not in RESERVED and _creates_topics(context):
        if not await may_create_topic(context, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        if topics.get(name) is None:  # another request may have created it meanwhile
            try:
                topics.create(name)
            except RequestError as error:
                return error.code
    return _why_absent(name)


def _why_absent(name: str) -> ErrorCode:
    impossible = topic_fault(name) is not None
    return ErrorCode.INVALID_TOPIC_EXCEPTION if impossible else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _creates_topics(context: RequestContext) -> bool:
    wanted = context.version <= _ALWAYS_CREATES_UP_TO or context.request.allow_auto_topic_creation
    return bool(wanted and context.cluster.settings.auto_create_topics)


async def _topic(context: RequestContext, topic: Topic | InternalTopic) -> dict[str, Any]:
    live_brokers = context.cluster.live_brokers
    await context.work.include(len(topic.replicas))
    partitions = [
        _partition(live_brokers, number, replicas) for number, replicas in enumerate(topic.replicas)
    ]
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.is_internal,
        "partitions": partitions,
    }


def _partition(
    live_brokers: LiveBrokers, number: int, replicas: PartitionReplicas
) -> dict[str, Any]:
    led = replicas.leader != NO_LEADER
    return {
        "error_code": ErrorCode.NONE if led else ErrorCode.LEADER_NOT_AVAILABLE,
        "partition_index": number,
        "leader_id": replicas.leader,
        "leader_epoch": replicas.epoch,
        "replica_nodes": replicas.node_ids,
        "isr_nodes": replicas.isr,
        "offline_replicas": [one for one in replicas.node_ids if not live_brokers.is_up(one)],
    }


def _no_topic(name: str | None, topic_id: Any, code: ErrorCode) -> dict[str, Any]:
    return {
        "error_code": code,
        "name": name,
        "topic_id": topic_id,
        "is_internal": False,
        "partitions": (),
    }
