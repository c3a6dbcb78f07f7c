"""Fetch: whole batches out of the logs, at once or when enough has come.

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
from kio.schema.errors import ErrorCode

from kgroup.broker.handlers.grouping import seconds
from kgroup.broker.handlers.partitions import NO_EPOCH, check_led, endpoints_told, leader_told
from kgroup.broker.log import PartitionLog
from kgroup.broker.replicas import PartitionReplicas
from kgroup.broker.request_context import RequestContext
from kgroup.broker.request_error import RequestError
from kgroup.broker.response_versions import Answer

_IDS_FROM: Final = 13
_NO_SESSION: Final = 0
_SESSION_ENDS: Final = -1
"""The epoch in which a client says that it closes its session: it may have ended before."""
_READ_COMMITTED: Final = 1


@final
@attrs.frozen
class _Wanted:
    """A partition of the request: its log and where that is, or why not."""

    topic: Any
    partition: Any
    log: PartitionLog | None
    place: PartitionReplicas | None = None
    epoch: int = NO_EPOCH
    refusal: RequestError | None = None


async def fetch(call: RequestContext) -> Answer:
    """Answer Fetch when ``min_bytes`` are there, after ``max_wait``, or at once on an error."""
    request = call.request
    session = getattr(request, "session_id", _NO_SESSION)
    if session != _NO_SESSION and request.session_epoch != _SESSION_ENDS:
        return {"error_code": ErrorCode.fetch_session_id_not_found, "responses": ()}
    wanted = [one async for one in call.work.each(_wanted(call))]
    await _wait_for_bytes(call, wanted)
    topics = await _read(call, wanted)
    told = endpoints_told(call, (part for topic in topics for part in topic["partitions"]))
    return {"error_code": ErrorCode.none, "session_id": 0, "responses": topics, **told}


def _wanted(call: RequestContext) -> Iterator[_Wanted]:
    topics = call.cluster.topics
    for topic in call.request.topics:
        if call.version >= _IDS_FROM:
            found = topics.by_id(topic.topic_id)
            unknown = RequestError(ErrorCode.unknown_topic_id)
        else:
            found = topics.get(topic.topic)
            unknown = RequestError(ErrorCode.unknown_topic_or_partition)
        for part in topic.partitions:
            if found is None:
                yield _Wanted(topic, part, None, refusal=unknown)
            elif not 0 <= part.partition < len(found.logs):
                refusal = RequestError(ErrorCode.unknown_topic_or_partition)
                yield _Wanted(topic, part, None, refusal=refusal)
            else:
                log, place = found.logs[part.partition], found.places[part.partition]
                fault = _fault(call, log, place, part)
                yield _Wanted(topic, part, log, place, place.epoch, fault)


def _fault(
    call: RequestContext, log: PartitionLog, place: PartitionReplicas, part: Any
) -> RequestError | None:
    try:
        check_led(call.node.node_id, place, getattr(part, "current_leader_epoch", NO_EPOCH))
        log.check_offset(part.fetch_offset)
    except RequestError as refusal:
        return refusal
    return None


async def _wait_for_bytes(call: RequestContext, wanted: Sequence[_Wanted]) -> None:
    logs = {entry.log: None for entry in wanted if entry.log is not None}
    with trio.move_on_after(max(0.0, seconds(call.request.max_wait))):
        enough = False
        while not enough:
            # Watched before it is counted: with many partitions, others run in between.
            changed = trio.Event()
            for log in logs:
                log.watch(changed)
            try:
                enough = await _enough(call, wanted)
                if not enough:
                    call.work.rest()
                    await changed.wait()
            finally:
                for log in logs:
                    log.unwatch(changed)


async def _enough(call: RequestContext, wanted: Sequence[_Wanted]) -> bool:
    request = call.request
    found = 0
    async for entry in call.work.each(wanted):
        if entry.log is None or _is_faulty(call, entry):
            return True
        found += entry.log.available(
            entry.partition.fetch_offset,
            max(0, min(entry.partition.partition_max_bytes, request.min_bytes - found)),
            committed=request.isolation_level == _READ_COMMITTED,
        )
        if found >= request.min_bytes:
            return True
    return not wanted


def _is_faulty(call: RequestContext, entry: _Wanted) -> bool:
    if entry.refusal is not None or entry.log is None:
        return True
    return (
        not _is_current(call, entry)
        or not _is_led(call, entry)
        or entry.partition.fetch_offset < entry.log.start_offset
    )


def _is_current(call: RequestContext, entry: _Wanted) -> bool:
    """Whether the log is still that of the topic asked for; it may be deleted while we wait."""
    topics = call.cluster.topics
    if call.version >= _IDS_FROM:
        return topics.by_id(entry.topic.topic_id) is not None
    topic = topics.get(entry.topic.topic)
    number = entry.partition.partition
    return topic is not None and number < len(topic.logs) and topic.logs[number] is entry.log


def _is_led(call: RequestContext, entry: _Wanted) -> bool:
    """Whether this broker leads the partition as it did; that, too, can change while we wait."""
    place = entry.place
    return place is not None and (place.leader, place.epoch) == (call.node.node_id, entry.epoch)


async def _read(call: RequestContext, wanted: Sequence[_Wanted]) -> list[dict[str, Any]]:
    left = min(getattr(call.request, "max_bytes", 2**31 - 1), call.cluster.settings.fetch_max_bytes)
    topics: list[dict[str, Any]] = []
    last: Any = None
    anything = False
    async for entry in call.work.each(wanted):
        if entry.topic is not last:
            last = entry.topic
            topics.append({**_name(call, entry.topic), "partitions": []})
        shown, size = _read_partition(call, entry, left, first=not anything)
        await call.work.include(1 + len(shown["aborted_transactions"] or ()))
        anything = anything or size > 0
        left = max(0, left - size)
        topics[-1]["partitions"].append(shown)
    return topics


def _name(call: RequestContext, topic: Any) -> dict[str, Any]:
    return {"topic_id": topic.topic_id} if call.version >= _IDS_FROM else {"topic": topic.topic}


def _read_partition(
    call: RequestContext, entry: _Wanted, left: int, *, first: bool
) -> tuple[dict[str, Any], int]:
    part = entry.partition
    committed = call.request.isolation_level == _READ_COMMITTED
    try:
        if entry.refusal is not None:
            raise entry.refusal
        if entry.log is None or not _is_current(call, entry):
            gone = call.version >= _IDS_FROM
            raise RequestError(
                ErrorCode.unknown_topic_id if gone else ErrorCode.unknown_topic_or_partition
            )
        if entry.place is not None:
            epoch = getattr(part, "current_leader_epoch", NO_EPOCH)
            check_led(call.node.node_id, entry.place, epoch)
        read = entry.log.read(
            part.fetch_offset,
            min(left, part.partition_max_bytes),
            committed=committed,
            at_least_one=first,
        )
    except RequestError as refusal:
        return {**no_records(part.partition, refusal.code), **leader_told(call, refusal)}, 0
    return {
        "partition_index": part.partition,
        "error_code": ErrorCode.none,
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
    """What Fetch tells of a partition that cannot be read."""
    return {
        "partition_index": number,
        "error_code": code,
        "high_watermark": -1,
        "last_stable_offset": -1,
        "log_start_offset": -1,
        "aborted_transactions": None,
        "records": b"",
    }
