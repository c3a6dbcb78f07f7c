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
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, final

import attrs

from kgroup.broker import batches
from kgroup.broker.error_responses import (
    ERROR_RESPONSES,
    PARTIAL_ERRORS,
    WITHOUT_RIGHT,
    with_message,
)
from kgroup.broker.request_context import NO_ACKS, Handler, NoResponse, RequestContext
from kgroup.broker.response_versions import ResponseFields
from kgroup.broker.security.acls import CLUSTER_NAME, Operation, ResourceType
from kgroup.error_codes import ErrorCode

_CODES: Final[Mapping[ResourceType, ErrorCode]] = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
_SUBJECTS: Final[Mapping[ResourceType, str]] = {
    ResourceType.TOPIC: "Topic",
    ResourceType.GROUP: "Group",
    ResourceType.CLUSTER: "Cluster",
    ResourceType.TRANSACTIONAL_ID: "Transactional Id",
}
_NEEDS: Final = "Request {request} needs {operation} permission."
_FAILED: Final = "{subject} authorization failed."
"""Kafka's texts beside the errors; in the first one Kafka shows all of the request."""
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
        text: what is said beside the error; empty for nothing.
    """

    operation: Operation
    resource_type: ResourceType
    field: str | None = None
    text: str = ""


@final
@attrs.frozen
class Each:
    """A right for each item of a list.

    Attributes:
        operation: what the user must be allowed.
        resource_type: on what; None if each item says it, as a resource that has configs.
        items: the request's field with the list; an item is a name, or has one.
        results: the response's field with the results.
        shown: the field of a result that names it, if the request can be about all resources: of
            those the response shows only what the user may use.
        text: what is said beside the error; empty for nothing.
    """

    operation: Operation
    resource_type: ResourceType | None
    items: str
    results: str
    shown: str | None = None
    text: str = ""


def _cluster(operation: Operation, text: str = "") -> tuple[Whole]:
    return (Whole(operation, _CLUSTER, text=text),)


def _configs(operation: Operation, results: str) -> tuple[Each]:
    return (Each(operation, None, "resources", results, text=_FAILED),)


_MEMBER: Final = (Whole(Operation.READ, _GROUP, "group_id"),)
_WRITES_TRANSACTION: Final = Whole(Operation.WRITE, _TRANSACTION, "transactional_id")

#: kio's name of the API -> the rights that it needs. An API that is not here needs none.
RIGHTS: Final[Mapping[str, tuple[Whole | Each, ...]]] = {
    "produce": (Each(Operation.WRITE, _TOPIC, "topic_data", "responses"),),
    "fetch": (Each(Operation.READ, _TOPIC, "topics", "responses"),),
    "list_offsets": (Each(Operation.DESCRIBE, _TOPIC, "topics", "topics"),),
    "metadata": (Each(Operation.DESCRIBE, _TOPIC, "topics", "topics", "name"),),
    # Its handler checks the right to describe each topic: only it knows which ones it reaches.
    "describe_topic_partitions": (),
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
    "offset_delete": (
        Whole(Operation.DELETE, _GROUP, "group_id"),
        Each(Operation.READ, _TOPIC, "topics", "topics"),
    ),
    "describe_groups": (Each(Operation.DESCRIBE, _GROUP, "groups", "groups"),),
    "consumer_group_describe": (Each(Operation.DESCRIBE, _GROUP, "group_ids", "groups"),),
    "list_groups": (Each(Operation.DESCRIBE, _GROUP, "", "groups", "group_id"),),
    "delete_groups": (Each(Operation.DELETE, _GROUP, "groups_names", "results"),),
    "create_topics": (
        Each(Operation.CREATE, _TOPIC, "topics", "topics", text="Authorization failed."),
    ),
    "delete_topics": (
        Each(Operation.DELETE, _TOPIC, "topics", "responses"),
        Each(Operation.DELETE, _TOPIC, "topic_names", "responses"),
    ),
    "delete_records": (Each(Operation.DELETE, _TOPIC, "topics", "topics"),),
    "create_partitions": (Each(Operation.ALTER, _TOPIC, "topics", "results"),),
    "offset_for_leader_epoch": (Each(Operation.DESCRIBE, _TOPIC, "topics", "topics"),),
    "init_producer_id": (_WRITES_TRANSACTION,),
    # Its handler checks the right to write to each topic: all are added, or none.
    "add_partitions_to_txn": (
        Whole(Operation.WRITE, _TRANSACTION, "v3_and_below_transactional_id"),
    ),
    "add_offsets_to_txn": (_WRITES_TRANSACTION, *_MEMBER),
    "end_txn": (_WRITES_TRANSACTION,),
    "txn_offset_commit": (
        _WRITES_TRANSACTION,
        *_MEMBER,
        Each(Operation.READ, _TOPIC, "topics", "topics"),
    ),
    "describe_producers": (Each(Operation.READ, _TOPIC, "topics", "topics", text=_FAILED),),
    "describe_transactions": (
        Each(Operation.DESCRIBE, _TRANSACTION, "transactional_ids", "transaction_states"),
    ),
    "list_transactions": (
        Each(Operation.DESCRIBE, _TRANSACTION, "", "transaction_states", "transactional_id"),
    ),
    "describe_acls": _cluster(Operation.DESCRIBE, _NEEDS),
    "create_acls": _cluster(Operation.ALTER, _NEEDS),
    "delete_acls": _cluster(Operation.ALTER, _NEEDS),
    "describe_configs": _configs(Operation.DESCRIBE_CONFIGS, "results"),
    "alter_configs": _configs(Operation.ALTER_CONFIGS, "responses"),
    "incremental_alter_configs": _configs(Operation.ALTER_CONFIGS, "responses"),
    "list_config_resources": _cluster(Operation.DESCRIBE_CONFIGS),
    "describe_client_quotas": _cluster(Operation.DESCRIBE_CONFIGS),
    "describe_log_dirs": _cluster(Operation.DESCRIBE),
    "describe_user_scram_credentials": _cluster(Operation.DESCRIBE),
    "alter_user_scram_credentials": _cluster(Operation.ALTER, _NEEDS),
    "elect_leaders": _cluster(Operation.ALTER, _NEEDS),
    "alter_partition_reassignments": _cluster(Operation.ALTER, _NEEDS),
    "list_partition_reassignments": _cluster(Operation.DESCRIBE, _NEEDS),
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
_CONFIGURED: Final[Mapping[int, ResourceType]] = {2: _TOPIC, 32: _GROUP}
"""Type of a resource that has configs -> the type that rules are about; otherwise the cluster."""
_INITIALIZES: Final = "init_producer_id"
_PRODUCES: Final = "produce"
_BY_CLUSTER: Final[Mapping[str, Operation]] = {
    "create_topics": Operation.CREATE,
    "delete_topics": Operation.DELETE,
    "list_groups": Operation.DESCRIBE,
    "offset_for_leader_epoch": Operation.CLUSTER_ACTION,
}
"""APIs that need no right for each item if the user has this one on the cluster."""


#: Type of a resource -> the operations that there are on it.
_OPERATIONS: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
}
OPERATIONS_NOT_REQUESTED: Final = -(1 << 31)
"""Instead of ``authorized_operations``."""


async def may(
    context: RequestContext, operation: Operation, resource_type: ResourceType, name: str
) -> bool:
    """Whether the user of a request may do this.

    Cancellation: as ``Work.spend``.
    """
    return bool(await _allowed(context, (operation,), resource_type, name))


async def may_create_topic(context: RequestContext, name: str) -> bool:
    """Whether the user of a request may create this topic, or any.

    Cancellation: as ``Work.spend``.
    """
    return await may(context, Operation.CREATE, _CLUSTER, CLUSTER_NAME) or await may(
        context, Operation.CREATE, _TOPIC, name
    )


async def authorized_operations(
    context: RequestContext, resource_type: ResourceType, name: str
) -> int:
    """What the user may do with a resource, as bits by Kafka's numbers (KIP-430).

    Cancellation: as ``Work.spend``.
    """
    found = await _allowed(context, _OPERATIONS[resource_type], resource_type, name)
    return sum(1 << one.value for one in found)


async def _allowed(
    context: RequestContext,
    operations: Collection[Operation],
    resource_type: ResourceType,
    name: str,
) -> Collection[Operation]:
    authorizer = context.cluster.security.authorizer
    if not authorizer.enabled:
        return operations
    await context.work.spend(authorizer.steps(resource_type))
    return authorizer.allowed(context.user, _host(context), operations, resource_type, name)


async def authorized(
    context: RequestContext, handler: Handler
) -> ResponseFields | NoResponse | None:
    """Serve what the user of a request may do of it, and refuse the rest."""
    if not context.cluster.security.authorizer.enabled:
        return await handler(context)
    rights = _rights(context)
    for right in rights:
        if isinstance(right, Whole) and not await _may_all(context, right):
            return _refusal(context, right)
    if context.api == _INITIALIZES and not await _may_be_idempotent(context):
        return _refusal(context, Whole(Operation.IDEMPOTENT_WRITE, _CLUSTER))
    if context.api == _PRODUCES and not await _may_write_batches(context):
        return _refusal(context, _WRITES_TRANSACTION)
    by_cluster = _BY_CLUSTER.get(context.api)
    if by_cluster is not None and await may(context, by_cluster, _CLUSTER, CLUSTER_NAME):
        return await handler(context)
    lists = [right for right in rights if isinstance(right, Each)]
    return await _served(context, handler, lists)


def _refusal(context: RequestContext, right: Whole) -> ResponseFields:
    if getattr(context.request, "acks", None) == NO_ACKS:
        raise ConnectionAbortedError("produce with acks=0 to a transaction without the right")
    refuse = WITHOUT_RIGHT.get(context.api, ERROR_RESPONSES[context.api])
    response = refuse(context.request, _CODES[right.resource_type])
    return _explained(context, response, right, right.resource_type)


def _explained(
    context: RequestContext,
    refusal: ResponseFields,
    right: Whole | Each,
    resource_type: ResourceType,
) -> ResponseFields:
    """A refusal with the text of the right that is missing."""
    if not right.text:
        return refusal
    text = right.text.format(
        request=f"{context.api.upper()} v{context.version}",
        operation=right.operation.name,
        subject=_SUBJECTS[resource_type],
    )
    explained: ResponseFields = with_message(refusal, text)
    return explained


def _rights(context: RequestContext) -> tuple[Whole | Each, ...]:
    if context.api != _FINDS:
        return RIGHTS.get(context.api, ())
    found = _COORDINATED.get(getattr(context.request, "key_type", 0))
    if found is None:
        return ()
    return (
        Whole(Operation.DESCRIBE, found, "key", _FAILED),
        Each(Operation.DESCRIBE, found, "coordinator_keys", "coordinators"),
    )


async def _served(
    context: RequestContext, handler: Handler, rights: Sequence[Each]
) -> ResponseFields | NoResponse | None:
    permitted = await _permitted(context, rights)
    response = await handler(permitted.context)
    if response is None and permitted.refused:
        raise ConnectionAbortedError("produce with acks=0 to a topic without the right to write")
    if response is None or isinstance(response, NoResponse):
        return response
    for right in rights:
        if right.shown is not None and right.results in response:
            response = {**response, right.results: await _visible(context, right, response)}
    if context.api == _FETCHES_OFFSETS and "groups" in response:
        response = {**response, "groups": await _described(context, response["groups"])}
    if response.get("error_code"):  # nothing was done, so nothing is said of the parts
        return response
    return {**response, **permitted.merged(response)}


@final
@attrs.frozen
class _Permitted:
    """What is left of a request.

    Attributes:
        context: the request without what its user may not use.
        refused: the results of that, by the response's field that they belong to.
        emptied: the fields whose results would be about nothing. To some handlers an empty list
            means everything, but this request had named its resources.
    """

    context: RequestContext
    refused: Mapping[str, Sequence[Any]]
    emptied: Collection[str]

    def merged(self, response: ResponseFields) -> ResponseFields:
        """The fields of a response in which something was refused."""
        return {
            field: [*(() if field in self.emptied else response[field]), *results]
            for field, results in self.refused.items()
        }


async def _permitted(context: RequestContext, rights: Sequence[Each]) -> _Permitted:
    refused: dict[str, list[Any]] = {}
    emptied: set[str] = set()
    for right in rights:
        request: Any = context.request
        kept: list[Any] = []
        denied: dict[ResourceType, list[Any]] = {}
        items = getattr(request, right.items, None) if right.items else None
        async for item in context.work.each(items or ()):
            if await _may_item(context, right, item):
                kept.append(item)
            else:
                refused_item = await _with_name(context, item)
                denied.setdefault(_type_of(right, item), []).append(refused_item)
        if not denied:
            continue
        refuse = PARTIAL_ERRORS.get(context.api, ERROR_RESPONSES[context.api])
        for resource_type, found in denied.items():
            only_denied = dataclasses.replace(request, **{right.items: tuple(found)})
            response = refuse(only_denied, _CODES[resource_type])
            explained = _explained(context, response, right, resource_type)
            refused.setdefault(right.results, []).extend(explained[right.results])
        if not kept:
            emptied.add(right.results)
        only_kept = dataclasses.replace(request, **{right.items: tuple(kept)})
        context = attrs.evolve(context, request=only_kept)
    return _Permitted(context, refused, emptied)


async def _with_name(context: RequestContext, item: Any) -> Any:
    """A refused item; a topic id becomes a name if the user may describe the topic."""
    if getattr(item, "name", "") is not None:
        return item
    topic = context.cluster.topics.by_id(item.topic_id)
    if topic is None or not await may(context, Operation.DESCRIBE, _TOPIC, topic.name):
        return item
    return dataclasses.replace(item, name=topic.name)


async def _described(
    context: RequestContext, groups: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The offsets of groups, with an error for the topics that the user may not describe."""
    named = {one.group_id for one in context.request.groups if one.topics is not None}
    described: list[Mapping[str, Any]] = []
    async for group in context.work.each(groups):
        topics = []
        async for topic in context.work.each(group["topics"]):
            if await may(context, Operation.DESCRIBE, _TOPIC, topic["name"]):
                topics.append(topic)
            elif group["group_id"] in named:
                parts = [{**part, **_NO_OFFSET} for part in topic["partitions"]]
                await context.work.spend(len(parts))
                topics.append({**topic, "partitions": parts})
        described.append({**group, "topics": topics})
    return described


async def _visible(context: RequestContext, right: Each, response: ResponseFields) -> list[Any]:
    """The results that the user may see: a request about all resources has named none."""
    return [
        one
        async for one in context.work.each(response[right.results])
        if one[right.shown] is None
        or await may(context, right.operation, _type_of(right, one), one[right.shown])
    ]


async def _may_all(context: RequestContext, right: Whole) -> bool:
    if right.field is None:
        return await may(context, right.operation, right.resource_type, CLUSTER_NAME)
    name = getattr(context.request, right.field, None)
    return name is None or await may(context, right.operation, right.resource_type, name)


async def _may_item(context: RequestContext, right: Each, item: Any) -> bool:
    resource_type = _type_of(right, item)
    if resource_type is _CLUSTER:
        name: str | None = CLUSTER_NAME
    elif right.resource_type is None:
        name = item.resource_name
    else:
        name = item if isinstance(item, str) else _name_of(context, item)
    return name is None or await may(context, right.operation, resource_type, name)


def _type_of(right: Each, item: Any) -> ResourceType:
    if right.resource_type is not None:
        return right.resource_type
    return _CONFIGURED.get(item.resource_type, _CLUSTER)


async def _may_be_idempotent(context: RequestContext) -> bool:
    """Whether the user may write without duplicates and without a transaction (KIP-679)."""
    if context.request.transactional_id is not None:
        return True
    if await may(context, Operation.IDEMPOTENT_WRITE, _CLUSTER, CLUSTER_NAME):
        return True
    return context.cluster.security.authorizer.allows_somewhere(
        context.user, _host(context), Operation.WRITE, _TOPIC
    )


async def _may_write_batches(context: RequestContext) -> bool:
    """Whether no batch of a Produce belongs to a transaction, or the user may write to it."""
    transactional_id = context.request.transactional_id
    async for topic in context.work.each(context.request.topic_data):
        async for part in context.work.each(topic.partition_data):
            if batches.says_transactional(part.records):
                return transactional_id is not None and await may(
                    context, Operation.WRITE, _TRANSACTION, transactional_id
                )
    return True


def _host(context: RequestContext) -> str:
    return context.client_host.removeprefix("/")


def _name_of(context: RequestContext, item: Any) -> str | None:
    """The name of an item's resource; None for the id of a topic that does not exist."""
    for field in _NAMES:
        if (name := getattr(item, field, None)) is not None:
            return str(name)
    topic = context.cluster.topics.by_id(item.topic_id)
    return None if topic is None else topic.name
