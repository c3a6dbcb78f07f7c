"""Produce: record batches come in as bytes and stay bytes.

Source: Kafka's ``KafkaApis.handleProduceRequest``, ``ReplicaManager.appendRecords``.
"""

from __future__ import annotations

import datetime as dt
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kgroup.broker import batches
from kgroup.broker.handlers.partitions import endpoints_told, leader_told, led_log
from kgroup.broker.handlers.verification import verification_code
from kgroup.broker.records import checking
from kgroup.broker.request_context import NO_ACKS, NO_ANSWER, RequestContext
from kgroup.broker.request_error import RequestError
from kgroup.broker.response_versions import Answer
from kgroup.types import TopicPartition

_ACKS: Final = (-1, 0, 1)


async def produce(call: RequestContext) -> Answer | None:
    """Answer Produce; with acks=0 there is no answer, and an error closes the connection."""
    request = call.request
    topics = [
        {
            "name": topic.name,
            "partition_responses": [
                await _append(call, topic.name, part.index, part.records)
                async for part in call.work.each(topic.partition_data)
            ],
        }
        async for topic in call.work.each(request.topic_data)
    ]
    failed = [
        part for topic in topics for part in topic["partition_responses"] if part["error_code"]
    ]
    if request.acks != NO_ACKS:
        return {"responses": topics, **endpoints_told(call, failed)}
    if failed:
        # The producer asked for no answer: this is the only way to be heard.
        raise ConnectionAbortedError(f"produce with acks=0: {failed[0]['error_message']}")
    return NO_ANSWER


async def _append(
    call: RequestContext, name: str, number: int, records: bytes | None
) -> dict[str, Any]:
    cluster = call.cluster
    try:
        if call.request.acks not in _ACKS:
            raise RequestError(ErrorCode.invalid_required_acks, f"acks={call.request.acks}")
        led_log(call, name, number).check_size(len(records or b""))
        header, data = batches.check(records)
        most = cluster.settings.max_decompressed_bytes
        async for _ in call.work.each(checking(data, header, most)):
            pass
        log = led_log(call, name, number)  # others ran meanwhile: it may have moved or gone
        if header.is_transactional:
            call.node.transactions.check_partition(
                call.request.transactional_id,
                header.producer_id,
                header.producer_epoch,
                TopicPartition(name, number),
                is_open=log.has_open_transaction(header.producer_id, header.producer_epoch),
            )
        done = log.append(data, header, cluster.now_ms())
    except RequestError as refusal:
        return {
            "index": number,
            "error_code": verification_code(call, refusal),
            "base_offset": -1,
            "record_errors": (),
            "error_message": refusal.message or None,
            **leader_told(call, refusal),
        }
    return {
        "index": number,
        "error_code": ErrorCode.none,
        "base_offset": done.base_offset,
        "log_append_time": _moment(done.timestamp),
        "log_start_offset": log.start_offset,
        "record_errors": (),
    }


def _moment(timestamp: int) -> dt.datetime | None:
    if timestamp == batches.NO_TIMESTAMP:
        return None
    return dt.datetime.fromtimestamp(timestamp / 1000, dt.UTC)
