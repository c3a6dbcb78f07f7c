"""Queries of admin tools besides groups and topics: log dirs, producers, transactions.

Where this broker has nothing of a kind (quotas, SCRAM users), it answers as a Kafka
cluster without any.

Source: Kafka's ``KafkaApis``, ``ReplicaManager.describeLogDirs``,
``TransactionCoordinator.handleListTransactions``, KIP-664 (producers and transactions).
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from typing import Any, Final

import trio

from kgroup.broker.authorization import may
from kgroup.broker.handlers.partitions import leader_log
from kgroup.broker.internal_topics import OFFSETS_TOPIC
from kgroup.broker.log import PartitionLog
from kgroup.broker.regular_expressions import Pattern
from kgroup.broker.request_context import RequestContext
from kgroup.broker.request_error import RequestError
from kgroup.broker.response_versions import ResponseFields
from kgroup.broker.security.acls import Operation, ResourceType
from kgroup.broker.topics import Topic
from kgroup.broker.transaction_coordinator import Transaction, TransactionState
from kgroup.error_codes import ErrorCode
from kgroup.types import topic_fault

NO_TIME: Final = dt.datetime.fromtimestamp(0, dt.UTC)
"""The start time of a transaction that does not exist. As in Kafka, all its numbers are 0."""
LOG_DIR: Final = "memory"
"""The log dir of a broker that keeps its logs in memory."""
_UNKNOWN_SIZE: Final = -1
_CHARACTERS_OF_A_STEP: Final = 10
_NO_FILTER: Final = -1
_NEVER: Final = -1
"""Kafka's start time of a transaction that has not begun, in milliseconds since 1970."""
_STATES: Final = frozenset(
    {
        *(state.value for state in TransactionState),
        "PrepareAbort",
        "PrepareCommit",
        "PrepareEpochFence",
        "Dead",
    }
)
"""Kafka's names; a transaction here is never in a state that waits for markers."""


async def describe_log_dirs(context: RequestContext) -> ResponseFields:
    """Answer DescribeLogDirs: one log dir, with the partitions that this broker has replicas of."""
    requested = context.request.topics
    wanted = (
        None if requested is None else {topic.topic: set(topic.partitions) for topic in requested}
    )
    topics = [
        {"name": topic.name, "partitions": found}
        async for topic in context.work.each(context.cluster.topics)
        if (found := await _replicas(context, topic, wanted))
    ]
    result = {
        "error_code": ErrorCode.NONE,
        "log_dir": LOG_DIR,
        "topics": topics,
        "total_bytes": _UNKNOWN_SIZE,
        "usable_bytes": _UNKNOWN_SIZE,
    }
    return {"error_code": ErrorCode.NONE, "results": [result]}


async def _replicas(
    context: RequestContext, topic: Topic, wanted: dict[str, set[int]] | None
) -> list[dict[str, Any]]:
    if wanted is not None and topic.name not in wanted:
        return []
    await context.work.include(len(topic.logs))
    return [
        {
            "partition_index": number,
            "partition_size": log.size,
            "offset_lag": 0,
            "is_future_key": False,
        }
        for number, (log, replicas) in enumerate(zip(topic.logs, topic.replicas, strict=True))
        if context.node.node_id in replicas.node_ids
        and (wanted is None or number in wanted.get(topic.name, ()))
    ]


async def describe_producers(context: RequestContext) -> ResponseFields:
    """Answer DescribeProducers."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    await _producers(context, topic.name, number)
                    async for number in context.work.each(topic.partition_indexes)
                ],
            }
            async for topic in context.work.each(context.request.topics)
        ]
    }


async def _producers(context: RequestContext, name: str, number: int) -> dict[str, Any]:
    try:
        if (fault := topic_fault(name)) is not None:
            raise RequestError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic name {name!r} {fault}")
        log: PartitionLog = leader_log(context, name, number)
    except RequestError as error:
        return {
            "partition_index": number,
            "error_code": error.code,
            "error_message": error.message,
            "active_producers": (),
        }
    await context.work.include(log.producer_count)
    return {
        "partition_index": number,
        "error_code": ErrorCode.NONE,
        "active_producers": [
            {
                "producer_id": producer.summary.producer_id,
                "producer_epoch": producer.summary.epoch,
                "last_sequence": producer.summary.last_sequence,
                "last_timestamp": producer.summary.last_timestamp,
                "coordinator_epoch": producer.summary.coordinator_epoch,
                "current_txn_start_offset": producer.transaction_start,
            }
            async for producer in context.work.each(log.producers())
        ],
    }


async def list_transactions(context: RequestContext) -> ResponseFields:
    """Answer ListTransactions with those that this broker coordinates."""
    states = tuple(context.request.state_filters)
    pattern = Pattern(getattr(context.request, "transactional_id_pattern", None) or ".*")
    found: list[Transaction] = []
    async for one in context.work.each(_matching(context)):
        await context.work.spend(len(one.transactional_id) // _CHARACTERS_OF_A_STEP)
        if pattern.matches(one.transactional_id):
            await context.work.include(1)
            await context.work.include_bytes(len(one.transactional_id))
            found.append(one)
    return {
        "error_code": ErrorCode.NONE,
        "unknown_state_filters": [state for state in states if state not in _STATES],
        "transaction_states": [
            {
                "transactional_id": one.transactional_id,
                "producer_id": one.producer_id,
                "transaction_state": one.state.value,
            }
            for one in found
        ],
    }


def _matching(context: RequestContext) -> Iterator[Transaction]:
    request = context.request
    states, producers = set(request.state_filters) & _STATES, set(request.producer_id_filters)
    if request.state_filters and not states:
        return
    longer_than = getattr(request, "duration_filter", _NO_FILTER)
    for one in context.node.transactions.coordinated():
        if (
            (not states or one.state.value in states)
            and (not producers or one.producer_id in producers)
            and (longer_than < 0 or _milliseconds(context, one) > longer_than)
        ):
            yield one


def _milliseconds(context: RequestContext, transaction: Transaction) -> float:
    """How long ago the last transaction began; as in Kafka, one that never did began in 1970."""
    if transaction.started is None:
        return context.cluster.now_ms() - _NEVER
    return (trio.current_time() - transaction.started) * 1000


async def describe_transactions(context: RequestContext) -> ResponseFields:
    """Answer DescribeTransactions."""
    return {
        "transaction_states": [
            await _transaction(context, transactional_id)
            async for transactional_id in context.work.each(context.request.transactional_ids)
        ]
    }


async def _transaction(context: RequestContext, transactional_id: str) -> dict[str, Any]:
    try:
        if not transactional_id:
            raise RequestError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        one = context.node.transactions.find(transactional_id)
    except RequestError as error:
        return {
            "error_code": error.code,
            "transactional_id": transactional_id,
            "transaction_state": "",
            "transaction_timeout": dt.timedelta(0),
            "transaction_start_time": NO_TIME,
            "producer_id": 0,
            "producer_epoch": 0,
            "topics": (),
        }
    topics: dict[str, list[int]] = {}
    await context.work.include(len(one.partitions) + len(one.shards))
    for partition in one.partitions:
        topics.setdefault(partition.topic, []).append(partition.partition)
    if one.shards:
        topics[OFFSETS_TOPIC] = sorted(one.shards)
    shown = [
        {"topic": topic, "partitions": found}
        async for topic, found in context.work.each(topics.items())
        if await may(context, Operation.DESCRIBE, ResourceType.TOPIC, topic)
    ]
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": transactional_id,
        "transaction_state": one.state.value,
        "transaction_timeout": dt.timedelta(seconds=one.timeout),
        "transaction_start_time": _start_time(context, one),
        "producer_id": one.producer_id,
        "producer_epoch": one.epoch,
        "topics": shown,
    }


def _start_time(context: RequestContext, transaction: Transaction) -> dt.datetime | None:
    if transaction.started is None:
        return None
    since = trio.current_time() - transaction.started
    return dt.datetime.fromtimestamp(context.cluster.now_ms() / 1000 - since, dt.UTC)


async def describe_client_quotas(context: RequestContext) -> ResponseFields:
    """Answer DescribeClientQuotas with none."""
    del context
    return {"error_code": ErrorCode.NONE, "error_message": None, "entries": ()}
