"""Produce: record batches arrive as bytes and stay bytes.

Source: Kafka's ``KafkaApis.handleProduceRequest``, ``ReplicaManager.appendRecords``.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from kgroup.broker import batches
from kgroup.broker.batches import BatchHeader
from kgroup.broker.handlers.partitions import current_leader, leader_log, node_endpoints
from kgroup.broker.handlers.verification import verification_code
from kgroup.broker.internal_topics import refuse_writing
from kgroup.broker.log import PartitionLog
from kgroup.broker.records import RefusedRecordsError, check_records, check_rules, timestamps
from kgroup.broker.request_context import NO_ACKS, RequestContext
from kgroup.broker.request_error import RequestError
from kgroup.broker.response_versions import ResponseFields
from kgroup.error_codes import ErrorCode
from kgroup.types import TopicPartition

_ACKS: Final = (-1, 0, 1)
_LATEST: Final = 253_402_300_799_999
"""The last millisecond that a datetime can have, in the year 9999."""


async def produce(context: RequestContext) -> ResponseFields | None:
    """Answer Produce; with acks=0 there is no response, and an error closes the connection."""
    request = context.request
    topics = [
        {
            "name": topic.name,
            "partition_responses": [
                await _append(context, topic.name, part.index, part.records)
                async for part in context.work.each(topic.partition_data)
            ],
        }
        async for topic in context.work.each(request.topic_data)
    ]
    failed = [
        part for topic in topics for part in topic["partition_responses"] if part["error_code"]
    ]
    if request.acks != NO_ACKS:
        return {"responses": topics, **node_endpoints(context, failed)}
    if failed:
        # The producer wants no response, so closing the connection is the only way to report it.
        raise ConnectionAbortedError(f"produce with acks=0: {failed[0]['error_message']}")
    return None


async def _append(
    context: RequestContext, name: str, number: int, records: bytes | None
) -> dict[str, Any]:
    cluster = context.cluster
    try:
        refuse_writing(name)
        log = leader_log(context, name, number)
        if context.request.acks not in _ACKS:
            raise RequestError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={context.request.acks}")
        log.check_size(len(records or b""))
        header, data = batches.check(records)
        most = cluster.settings.max_decompressed_bytes
        async for _ in context.work.each(check_records(data, header, most)):
            pass
        if header.max_timestamp < header.base_timestamp:
            header, data = await _dated(context, data, header)
        rules = log.record_rules(cluster.now_ms())
        if rules.may_refuse(header):
            async for _ in context.work.each(check_rules(data, header, most, rules)):
                pass
        log = leader_log(context, name, number)  # other tasks ran meanwhile: it may have moved
        if header.is_transactional:
            _check_transaction(context, TopicPartition(name, number), log, header)
        done = log.append(data, header, cluster.now_ms())
    except RequestError as error:
        return {
            "index": number,
            "error_code": verification_code(context, error),
            "base_offset": -1,
            "record_errors": _refused_records(error),
            "error_message": error.message or None,
            **current_leader(context, error),
        }
    return {
        "index": number,
        "error_code": ErrorCode.NONE,
        "base_offset": done.base_offset,
        "log_append_time": _moment(done.timestamp),
        "log_start_offset": log.start_offset,
        "record_errors": (),
    }


async def _dated(
    context: RequestContext, data: bytes, header: BatchHeader
) -> tuple[BatchHeader, bytes]:
    """A batch whose header lacks the greatest timestamp of its records, with it.

    Kafka sets it in every batch, and some clients leave it to Kafka: Go's sarama did until 2025.
    A search by time relies on it. Here it is set only where it is below the first record's, which
    no maximum can be: to read the records of every batch would take too long.

    Source: Kafka's ``LogValidator``.
    """
    newest = batches.NO_TIMESTAMP
    most = context.cluster.settings.max_decompressed_bytes
    async for timestamp in context.work.each(timestamps(data, header, most)):
        if timestamp is not None:
            newest = max(newest, timestamp)
    data = batches.with_max_timestamp(data, newest)
    return batches.header_of(data), data


def _refused_records(error: RequestError) -> list[dict[str, Any]]:
    """The records of a batch that are refused themselves; producers fail the others differently."""
    if not isinstance(error, RefusedRecordsError):
        return []
    return [
        {"batch_index": number, "batch_index_error_message": why}
        for number, why in error.records.items()
    ]


def _check_transaction(
    context: RequestContext, partition: TopicPartition, log: PartitionLog, header: BatchHeader
) -> None:
    transactions, transactional_id = context.node.transactions, context.request.transactional_id
    try:
        transactions.check_partition(
            transactional_id,
            header.producer_id,
            header.producer_epoch,
            partition,
            is_open=log.has_open_transaction(header.producer_id, header.producer_epoch),
        )
    except RequestError:
        # Clients can make up any number of producers: the log is to know only of real ones.
        if transactions.has_producer(transactional_id, header.producer_id):
            log.refused_outside(header)
        raise


def _moment(timestamp: int) -> dt.datetime | None:
    """The time of a timestamp; None without one, and of one that a client made up."""
    if not 0 <= timestamp <= _LATEST:
        return None
    return dt.datetime.fromtimestamp(timestamp / 1000, dt.UTC)
