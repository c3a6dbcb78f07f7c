"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, TxnOffsetCommit, EndTxn.

``kgroup.broker.transaction_coordinator`` decides; here requests and responses are translated.

Source: Kafka's ``KafkaApis``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import trio

from kgroup.broker.authorization import may
from kgroup.broker.groups import requests, responses
from kgroup.broker.handlers.grouping import seconds
from kgroup.broker.handlers.groups import offsets_of, results
from kgroup.broker.handlers.verification import verification_code
from kgroup.broker.internal_topics import INTERNAL_TOPICS
from kgroup.broker.request_context import RequestContext
from kgroup.broker.request_error import RequestError
from kgroup.broker.response_versions import ResponseFields
from kgroup.broker.security.acls import Operation, ResourceType
from kgroup.error_codes import ErrorCode
from kgroup.types import TopicPartition

#: The first version of each request whose clients know PRODUCER_FENCED; older ones are answered
#: INVALID_PRODUCER_EPOCH (KIP-588).
_KNOWS_FENCED_FROM: Final = {
    "init_producer_id": 4,
    "add_partitions_to_txn": 2,
    "add_offsets_to_txn": 2,
    "end_txn": 2,
}


def _code(context: RequestContext, error: RequestError) -> ErrorCode:
    fenced = error.code is ErrorCode.PRODUCER_FENCED
    if fenced and context.version < _KNOWS_FENCED_FROM[context.api]:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code


def _outcome(context: RequestContext, act: Callable[[], float | None]) -> ErrorCode:
    """The error code of an act, which returns the time at which its transaction expires or None."""
    try:
        deadline = act()
    except RequestError as error:
        return _code(context, error)
    context.node.transaction_alarm.reschedule_by(deadline)
    return ErrorCode.NONE


async def init_producer_id(context: RequestContext) -> ResponseFields:
    """Answer InitProducerId."""
    request = context.request
    try:
        producer_id, epoch = context.node.transactions.init_producer(
            request.transactional_id,
            seconds(request.transaction_timeout),
            getattr(request, "producer_id", -1),
            getattr(request, "producer_epoch", -1),
        )
    except RequestError as error:
        return {"error_code": _code(context, error), "producer_id": -1, "producer_epoch": -1}
    return {"error_code": ErrorCode.NONE, "producer_id": producer_id, "producer_epoch": epoch}


async def add_partitions_to_txn(context: RequestContext) -> ResponseFields:
    """Answer AddPartitionsToTxn: all of the partitions, or none."""
    request = context.request
    # As in Kafka, no user may add a coordinator's topic: AddOffsetsToTxn adds groups.
    refused = {
        name
        async for name in context.work.each({topic.name for topic in request.v3_and_below_topics})
        if name in INTERNAL_TOPICS
        or not await may(context, Operation.WRITE, ResourceType.TOPIC, name)
    }
    wanted = [
        TopicPartition(topic.name, number)
        for topic in request.v3_and_below_topics
        for number in topic.partitions
    ]
    await context.work.spend(len(wanted))
    topics = context.cluster.topics
    failed = {tp: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for tp in wanted if not topics.has(tp)}
    failed |= {tp: ErrorCode.TOPIC_AUTHORIZATION_FAILED for tp in wanted if tp.topic in refused}
    if failed:
        codes = {tp: failed.get(tp, ErrorCode.OPERATION_NOT_ATTEMPTED) for tp in wanted}
    else:
        code = _outcome(
            context,
            lambda: context.node.transactions.add_partitions(
                trio.current_time(),
                request.v3_and_below_transactional_id,
                request.v3_and_below_producer_id,
                request.v3_and_below_producer_epoch,
                wanted,
            ),
        )
        codes = dict.fromkeys(wanted, code)
    return {
        "results_by_topic_v3_and_below": [
            {
                "name": topic.name,
                "results_by_partition": [
                    {
                        "partition_index": number,
                        "partition_error_code": codes[TopicPartition(topic.name, number)],
                    }
                    for number in topic.partitions
                ],
            }
            for topic in request.v3_and_below_topics
        ]
    }


async def add_offsets_to_txn(context: RequestContext) -> ResponseFields:
    """Answer AddOffsetsToTxn."""
    request = context.request
    code = _outcome(
        context,
        lambda: context.node.transactions.add_group(
            trio.current_time(),
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            context.cluster.shards.shard_of(request.group_id),
        ),
    )
    return {"error_code": code}


async def end_txn(context: RequestContext) -> ResponseFields:
    """Answer EndTxn; the outcome is visible before the response."""
    request = context.request
    code = _outcome(
        context,
        lambda: context.node.transactions.end(
            request.transactional_id,
            request.producer_id,
            request.producer_epoch,
            committed=request.committed,
        ),
    )
    return {"error_code": code}


async def txn_offset_commit(context: RequestContext) -> ResponseFields:
    """Answer TxnOffsetCommit: checks the transaction; the group coordinator checks the member.

    Unknown partitions are answered so, whatever is wrong with the rest, and alone reach neither.
    """
    request = context.request
    offsets = offsets_of(request)
    await context.work.spend(len(offsets))
    has = context.cluster.topics.has
    is_checked = any(has(TopicPartition(one.topic, one.partition)) for one in offsets)
    if (
        is_checked
        and request.group_id
        and context.cluster.coordinator_of(request.group_id) is context.node
    ):
        coordinator = context.node.groups.coordinator
        shard = coordinator.shard_of(request.group_id)
        try:
            context.node.transactions.check_group(
                request.transactional_id,
                request.producer_id,
                request.producer_epoch,
                request.group_id,
                shard=shard,
                is_open=coordinator.has_transaction(request.producer_id, shard),
            )
        except RequestError as error:
            return {"topics": _all_failed(context, verification_code(context, error))}
    answer = await context.node.groups.handle(
        requests.TxnOffsetCommit(
            group_id=request.group_id,
            version=context.version,
            producer_id=request.producer_id,
            producer_epoch=request.producer_epoch,
            generation_id=getattr(request, "generation_id", -1),
            member_id=getattr(request, "member_id", ""),
            group_instance_id=getattr(request, "group_instance_id", None),
            offsets=offsets,
        ),
        responses.OffsetsCommitted,
    )
    return {"topics": results(answer.partitions)}


def _all_failed(context: RequestContext, code: ErrorCode) -> list[dict[str, Any]]:
    has, unknown = context.cluster.topics.has, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return [
        {
            "name": topic.name,
            "partitions": [
                {
                    "partition_index": part.partition_index,
                    "error_code": (
                        code if has(TopicPartition(topic.name, part.partition_index)) else unknown
                    ),
                }
                for part in topic.partitions
            ],
        }
        for topic in context.request.topics
    ]
