"""Which rights each request needs, as a table, and what happens to the parts that lack them.

A request about one resource is refused as a whole. Of a request about several, the handler gets
those that the user may use; the others get the error, in the form of ``ERROR_RESPONSES``. A request
about all topics or groups is answered without those that the user may not describe.

Rights are checked when a request arrives. One that waits (a Fetch, a JoinGroup) is answered even
if a right is taken away meanwhile, as in Kafka.

Source: Kafka's ``KafkaApis`` and the table of operations in its documentation of security.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import attrs

from kgroup.broker.error_responses import ERROR_RESPONSES
from kgroup.broker.request_context import Handler, NoResponse, RequestContext
from kgroup.broker.response_versions import ResponseFields
from kgroup.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from kgroup.error_codes import ErrorCode

_CODES: Final[Mapping[ResourceType, ErrorCode]] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_TOPIC, _GROUP = ResourceType.TOPIC, ResourceType.GROUP
_CLUSTER, _TRANSACTION = ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID
_NAMES: Final = ("name", "topic", "group_id")


@final
@attrs.frozen
class Whole:
    """A right without which the whole request is refused.

    Attributes:
        operation: what the user must be allowed.
        resource_type: on what.
        field: the request's field with the resource's name; None for the cluster. A request in
            whose version the field is missing or null is not about such a resource.
    """

    operation: Operation
    resource_type: ResourceType
    field: str | None = None


@final
@attrs.frozen
class Each:
    """A right for each item of a list.

    Attributes:
        operation: what the user must be allowed.
        resource_type: on what.
        items: the request's field with the list; an item is a name, or has one.
        results: the response's field with the results.
        shown: the field of a result that names it, if the request can be about all resources: of
            those the response shows only what the user may use.
    """

    operation: Operation
    resource_type: ResourceType
    items: str
    results: str
    shown: str | None = None


def _cluster(operation: Operation) -> tuple[Whole]:
    return (Whole(operation, _CLUSTER),)


_MEMBER: Final = (Whole(Operation.READ, _GROUP, "group_id"),)
_WRITES_TRANSACTION: Final = Whole(Operation.WRITE, _TRANSACTION, "transactional_id")

#: kio's name of the API -> the rights that it needs. An API that is not here needs none.
RIGHTS: Final[Mapping[str, tuple[Whole | Each, ...]]] = {
    "produce": (
        _WRITES_TRANSACTION,
        Each(Operation.WRITE, _TOPIC, "topic_data", "responses"),
    ),
    "fetch": (Each(Operation.READ, _TOPIC, "topics", "responses"),),
    "list_offsets": (Each(Operation.DESCRIBE, _TOPIC, "topics", "topics"),),
    "metadata": (Each(Operation.DESCRIBE, _TOPIC, "topics", "topics", "name"),),
    "describe_topic_partitions": (Each(Operation.DESCRIBE, _TOPIC, "topics", "topics", "name"),),
    "join_group": _MEMBER,
    "sync_group": _MEMBER,
    "heartbeat": _MEMBER,
    "leave_group": _MEMBER,
    "consumer_group_heartbeat": _MEMBER,
    "offset_commit": (*_MEMBER, Each(Operation.READ, _TOPIC, "topics", "topics")),
    "offset_fetch": (
        Whole(Operation.DESCRIBE, _GROUP, "group_id"),
        Each(Operation.DESCRIBE, _GROUP, "groups", "groups"),
        Each(Operation.DESCRIBE, _TOPIC, "topics", "topics", "name"),
    ),
    "offset_delete": (Whole(Operation.DELETE, _GROUP, "group_id"),),
    "describe_groups": (Each(Operation.DESCRIBE, _GROUP, "groups", "groups"),),
    "consumer_group_describe": (Each(Operation.DESCRIBE, _GROUP, "group_ids", "groups"),),
    "list_groups": (Each(Operation.DESCRIBE, _GROUP, "", "groups", "group_id"),),
    "delete_groups": (Each(Operation.DELETE, _GROUP, "groups_names", "results"),),
    "create_topics": (Each(Operation.CREATE, _TOPIC, "topics", "topics"),),
    "delete_topics": (
        Each(Operation.DELETE, _TOPIC, "topics", "responses"),
        Each(Operation.DELETE, _TOPIC, "topic_names", "responses"),
    ),
    "delete_records": (Each(Operation.DELETE, _TOPIC, "topics", "topics"),),
    "create_partitions": (Each(Operation.ALTER, _TOPIC, "topics", "results"),),
    "offset_for_leader_epoch": (Each(Operation.DESCRIBE, _TOPIC, "topics", "topics"),),
    "init_producer_id": (_WRITES_TRANSACTION,),
    "add_partitions_to_txn": (
        Whole(Operation.WRITE, _TRANSACTION, "v3_and_below_transactional_id"),
        Each(Operation.WRITE, _TOPIC, "v3_and_below_topics", "results_by_topic_v3_and_below"),
    ),
    "add_offsets_to_txn": (_WRITES_TRANSACTION, *_MEMBER),
    "end_txn": (_WRITES_TRANSACTION,),
    "txn_offset_commit": (
        _WRITES_TRANSACTION,
        *_MEMBER,
        Each(Operation.READ, _TOPIC, "topics", "topics"),
    ),
    "describe_producers": (Each(Operation.READ, _TOPIC, "topics", "topics"),),
    "describe_transactions": (
        Each(Operation.DESCRIBE, _TRANSACTION, "transactional_ids", "transaction_states"),
    ),
    "list_transactions": (
        Each(Operation.DESCRIBE, _TRANSACTION, "", "transaction_states", "transactional_id"),
    ),
    "describe_acls": _cluster(Operation.DESCRIBE),
    "create_acls": _cluster(Operation.ALTER),
    "delete_acls": _cluster(Operation.ALTER),
    "describe_configs": _cluster(Operation.DESCRIBE_CONFIGS),
    "alter_configs": _cluster(Operation.ALTER_CONFIGS),
    "incremental_alter_configs": _cluster(Operation.ALTER_CONFIGS),
    "list_config_resources": _cluster(Operation.DESCRIBE_CONFIGS),
    "describe_client_quotas": _cluster(Operation.DESCRIBE_CONFIGS),
    "describe_log_dirs": _cluster(Operation.DESCRIBE),
    "describe_user_scram_credentials": _cluster(Operation.DESCRIBE),
    "elect_leaders": _cluster(Operation.ALTER),
    "list_partition_reassignments": _cluster(Operation.DESCRIBE),
}
FREE: Final = frozenset({"api_versions", "describe_cluster", "sasl_authenticate", "sasl_handshake"})
"""APIs that need no right."""
_FETCHES_OFFSETS: Final = "offset_fetch"
_NO_OFFSET: Final = {
    "committed_offset": -1,
    "committed_leader_epoch": -1,
    "metadata": "",
    "error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED,
}
_FINDS: Final = "find_coordinator"
_COORDINATED: Final[Mapping[int, ResourceType]] = {0: _GROUP, 1: _TRANSACTION}
"""Type of key in FindCoordinator -> what the keys name."""
_BY_CLUSTER: Final[Mapping[str, Operation]] = {
    "create_topics": Operation.CREATE,
    "list_groups": Operation.DESCRIBE,
}
"""APIs that need no right for each item if the user has this one on the cluster."""


async def authorized(
    context: RequestContext, handler: Handler
) -> ResponseFields | NoResponse | None:
    """Serve what the user of a request may do of it, and refuse the rest."""
    if not context.cluster.security.authorizer.enabled:
        return await handler(context)
    rights = _rights(context)
    for right in rights:
        if isinstance(right, Whole) and not _may_all(context, right):
            code = _CODES[right.resource_type]
            return ERROR_RESPONSES[context.api](context.request, code)
    by_cluster = _BY_CLUSTER.get(context.api)
    if by_cluster is not None and _may(context, by_cluster, _CLUSTER, CLUSTER_NAME):
        return await handler(context)
    lists = [right for right in rights if isinstance(right, Each)]
    return await _served(context, handler, lists)


def _rights(context: RequestContext) -> tuple[Whole | Each, ...]:
    if context.api != _FINDS:
        return RIGHTS.get(context.api, ())
    found = _COORDINATED.get(getattr(context.request, "key_type", 0))
    if found is None:
        return ()
    return (
        Whole(Operation.DESCRIBE, found, "key"),
        Each(Operation.DESCRIBE, found, "coordinator_keys", "coordinators"),
    )


async def _served(
    context: RequestContext, handler: Handler, rights: Sequence[Each]
) -> ResponseFields | NoResponse | None:
    context, refused = await _permitted(context, rights)
    response = await handler(context)
    if response is None and refused:
        raise ConnectionAbortedError("produce with acks=0 to a topic without the right to write")
    if response is None or isinstance(response, NoResponse):
        return response
    for right in rights:
        if right.shown is not None and right.results in response:
            response = {**response, right.results: _visible(context, right, response)}
    if context.api == _FETCHES_OFFSETS and "groups" in response:
        response = {**response, "groups": [_described(context, one) for one in response["groups"]]}
    for right, refusal in refused:
        # To some handlers an empty list means everything; this request had named its resources.
        found = response[right.results] if getattr(context.request, right.items) else ()
        response = {**response, right.results: [*found, *refusal[right.results]]}
    return response


async def _permitted(
    context: RequestContext, rights: Sequence[Each]
) -> tuple[RequestContext, list[tuple[Each, ResponseFields]]]:
    """The request without what its user may not use, and the refusals of that."""
    refused: list[tuple[Each, ResponseFields]] = []
    for right in rights:
        request: Any = context.request
        items = getattr(request, right.items, None) if right.items else None
        kept: list[Any] = []
        denied: list[Any] = []
        async for item in context.work.each(items or ()):
            (kept if _may_item(context, right, item) else denied).append(item)
        if not denied:
            continue
        only_denied = dataclasses.replace(request, **{right.items: tuple(denied)})
        code = _CODES[right.resource_type]
        refused.append((right, ERROR_RESPONSES[context.api](only_denied, code)))
        only_kept = dataclasses.replace(request, **{right.items: tuple(kept)})
        context = attrs.evolve(context, request=only_kept)
    return context, refused


def _described(context: RequestContext, group: Mapping[str, Any]) -> Mapping[str, Any]:
    """A group's offsets, with an error for the topics that the user may not describe."""
    named = any(
        one.group_id == group["group_id"] and one.topics is not None
        for one in context.request.groups
    )
    topics = []
    for topic in group["topics"]:
        if _may(context, Operation.DESCRIBE, _TOPIC, topic["name"]):
            topics.append(topic)
        elif named:
            parts = [{**part, **_NO_OFFSET} for part in topic["partitions"]]
            topics.append({**topic, "partitions": parts})
    return {**group, "topics": topics}


def _visible(context: RequestContext, right: Each, response: ResponseFields) -> list[Any]:
    """The results that the user may see: a request about all resources has named none."""
    return [
        one
        for one in response[right.results]
        if one[right.shown] is None
        or _may(context, right.operation, right.resource_type, one[right.shown])
    ]


def _may_all(context: RequestContext, right: Whole) -> bool:
    if right.field is None:
        return _may(context, right.operation, right.resource_type, CLUSTER_NAME)
    name = getattr(context.request, right.field, None)
    return name is None or _may(context, right.operation, right.resource_type, name)


def _may_item(context: RequestContext, right: Each, item: Any) -> bool:
    name = item if isinstance(item, str) else _name_of(context, item)
    return name is None or _may(context, right.operation, right.resource_type, name)


def _name_of(context: RequestContext, item: Any) -> str | None:
    """The name of an item's resource; None for the id of a topic that does not exist."""
    for field in _NAMES:
        if (name := getattr(item, field, None)) is not None:
            return str(name)
    topic = context.cluster.topics.by_id(item.topic_id)
    return None if topic is None else topic.name


def _may(
    context: RequestContext, operation: Operation, resource_type: ResourceType, name: str
) -> bool:
    authorizer = context.cluster.security.authorizer
    return authorizer.allows(context.user, operation, resource_type, name)
