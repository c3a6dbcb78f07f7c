"""Fetch: whole batches from the logs, at once or when there are enough bytes.

Fetch sessions are declined, as Kafka declines them when its cache is full: every answer has
session id 0, and so every request names all its partitions.

Source: Kafka's ``KafkaApis.handleFetchRequest``, ``DelayedFetch``, KIP-74 (sizes), KIP-98
(read_committed), KIP-227 (sessions), KIP-320 (epochs), KIP-516 (topic ids), KIP-951.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final, final

import attrs
import trio

from kgroup.broker.handlers.grouping import seconds
from kgroup.broker.handlers.partitions import NO_EPOCH, check_leader, current_leader, node_endpoints
from kgroup.broker.log import PartitionLog
from kgroup.broker.replicas import PartitionReplicas
from kgroup.broker.request_context import RequestContext
from kgroup.broker.request_error import RequestError
from kgroup.broker.response_versions import ResponseFields
from kgroup.error_codes import ErrorCode
from kgroup.types import INT32_MAX

_IDS_FROM: Final = 13
_WITHOUT_SESSION: Final = (0, -1)
"""The session epochs of a client that begins a session, or closes one: it names all partitions."""
_READ_COMMITTED: Final = 1


@final
@attrs.frozen
class _Wanted:
    """A partition of the request: its log and replicas, or the error."""

    topic: Any
    partition: Any
    log: PartitionLog | None
    replicas: PartitionReplicas | None = None
    epoch: int = NO_EPOCH
    error: RequestError | None = None


async def fetch(context: RequestContext) -> ResponseFields:
    """Answer Fetch when there are ``min_bytes``, after ``max_wait``, or at once on an error."""
    request = context.request
    if getattr(request, "session_epoch", 0) not in _WITHOUT_SESSION:
        return {"error_code": ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "responses": ()}
    named: dict[tuple[Any, int], _Wanted] = {}
    async for one in context.work.each(_wanted(context)):
        # A partition that is named twice is answered once, in its first place, as in Kafka.
        named[_topic_key(context, one.topic), one.partition.partition] = one
    wanted = list(named.values())
    await _wait_for_bytes(context, wanted)
    topics = await _read(context, wanted)
    endpoints = node_endpoints(context, (part for topic in topics for part in topic["partitions"]))
    return {"error_code": ErrorCode.NONE, "session_id": 0, "responses": topics, **endpoints}


def _wanted(context: RequestContext) -> Iterator[_Wanted]:
    topics = context.cluster.topics
    for topic in context.request.topics:
        if context.version >= _IDS_FROM:
            found = topics.by_id(topic.topic_id)
            unknown = RequestError(ErrorCode.UNKNOWN_TOPIC_ID)
        else:
            found = topics.get(topic.topic)
            unknown = RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        for part in topic.partitions:
            if found is None:
                yield _Wanted(topic, part, None, error=unknown)
            elif not 0 <= part.partition < len(found.logs):
                error = RequestError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                yield _Wanted(topic, part, None, error=error)
            else:
                log, replicas = found.logs[part.partition], found.replicas[part.partition]
                fault = _fault(context, log, replicas, part)
                yield _Wanted(topic, part, log, replicas, replicas.epoch, fault)


def _fault(
    context: RequestContext, log: PartitionLog, replicas: PartitionReplicas, part: Any
) -> RequestError | None:
    try:
        check_leader(context.node.node_id, replicas, _known_epoch(part))
        log.check_offset(part.fetch_offset)
    except RequestError as error:
        return error
    return None


def _known_epoch(part: Any) -> int:
    """The leader epoch that the client knows; here, unlike elsewhere, any negative one is none."""
    return max(NO_EPOCH, getattr(part, "current_leader_epoch", NO_EPOCH))


async def _wait_for_bytes(context: RequestContext, wanted: Sequence[_Wanted]) -> None:
    logs = {entry.log: None for entry in wanted if entry.log is not None}
    with trio.move_on_after(max(0.0, seconds(context.request.max_wait))):
        enough = False
        while not enough:
            # The logs are watched before the bytes are counted: with many partitions, other tasks
            # run while they are counted, and may append records.
            changed = trio.Event()
            for log in logs:
                log.watch(changed)
            try:
                enough = await _enough(context, wanted)
                if not enough:
                    context.work.release()
                    await changed.wait()
            finally:
                for log in logs:
                    log.unwatch(changed)


async def _enough(context: RequestContext, wanted: Sequence[_Wanted]) -> bool:
    request = context.request
    least, found = min(request.min_bytes, _most_bytes(context)), 0
    async for entry in context.work.each(wanted):
        if entry.log is None or _is_faulty(context, entry):
            return True
        found += entry.log.available(
            entry.partition.fetch_offset,
            max(0, min(entry.partition.partition_max_bytes, least - found)),
            committed=request.isolation_level == _READ_COMMITTED,
        )
        if found >= least:
            return True
    return not wanted


def _is_faulty(context: RequestContext, entry: _Wanted) -> bool:
    if entry.error is not None or entry.log is None:
        return True
    return (
        not _is_current(context, entry)
        or not _has_coordinator(context, entry)
        or entry.partition.fetch_offset < entry.log.start_offset
    )


def _is_current(context: RequestContext, entry: _Wanted) -> bool:
    """Whether the log still belongs to the topic; it can be deleted during the wait."""
    topics = context.cluster.topics
    if context.version >= _IDS_FROM:
        return topics.by_id(entry.topic.topic_id) is not None
    topic = topics.get(entry.topic.topic)
    number = entry.partition.partition
    return topic is not None and number < len(topic.logs) and topic.logs[number] is entry.log


def _has_coordinator(context: RequestContext, entry: _Wanted) -> bool:
    """Whether this broker still leads the partition in the same epoch; this, too, can change."""
    replicas = entry.replicas
    return replicas is not None and (replicas.leader, replicas.epoch) == (
        context.node.node_id,
        entry.epoch,
    )


async def _read(context: RequestContext, wanted: Sequence[_Wanted]) -> list[dict[str, Any]]:
    left = _most_bytes(context)
    topics: list[dict[str, Any]] = []
    last: Any = None
    anything = False
    async for entry in context.work.each(wanted):
        key = _topic_key(context, entry.topic)
        if not topics or key != last:  # an id of zeros is None
            last = key
            topics.append({**_name(context, entry.topic), "partitions": []})
        shown, size = _read_partition(context, entry, left, first=not anything)
        await context.work.include(1 + len(shown["aborted_transactions"] or ()))
        anything = anything or size > 0
        left = max(0, left - size)
        topics[-1]["partitions"].append(shown)
    return topics


def _most_bytes(context: RequestContext) -> int:
    """The most bytes of the response, but for a first batch that is larger."""
    requested: int = getattr(context.request, "max_bytes", INT32_MAX)
    return min(requested, context.cluster.settings.fetch_max_bytes)


def _topic_key(context: RequestContext, topic: Any) -> Any:
    """The id or the name by which the request names a topic."""
    return topic.topic_id if context.version >= _IDS_FROM else topic.topic


def _name(context: RequestContext, topic: Any) -> dict[str, Any]:
    field = "topic_id" if context.version >= _IDS_FROM else "topic"
    return {field: _topic_key(context, topic)}


def _read_partition(
    context: RequestContext, entry: _Wanted, left: int, *, first: bool
) -> tuple[dict[str, Any], int]:
    part = entry.partition
    committed = context.request.isolation_level == _READ_COMMITTED
    try:
        if entry.error is not None:
            raise entry.error
        if entry.log is None or not _is_current(context, entry):
            gone = context.version >= _IDS_FROM
            raise RequestError(
                ErrorCode.UNKNOWN_TOPIC_ID if gone else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            )
        if entry.replicas is not None:
            check_leader(context.node.node_id, entry.replicas, _known_epoch(part))
        read = entry.log.read(
            part.fetch_offset,
            min(left, part.partition_max_bytes),
            committed=committed,
            at_least_one=first,
        )
    except RequestError as error:
        return {**no_records(part.partition, error.code), **current_leader(context, error)}, 0
    return {
        "partition_index": part.partition,
        "error_code": ErrorCode.NONE,
        "high_watermark": read.high_watermark,
        "last_stable_offset": read.last_stable_offset,
        "log_start_offset": read.start_offset,
        "aborted_transactions": (
            None
            if read.aborted is None
            else [
                {"producer_id": txn.producer_id, "first_offset": txn.first_offset}
                for txn in read.aborted
            ]
        ),
        "records": read.data[0] if len(read.data) == 1 else b"".join(read.data),
    }, read.size


def no_records(number: int, code: ErrorCode) -> dict[str, Any]:
    """The response for a partition that cannot be read."""
    return {
        "partition_index": number,
        "error_code": code,
        "high_watermark": -1,
        "last_stable_offset": -1,
        "log_start_offset": -1,
        "aborted_transactions": None,
        "records": b"",
    }
