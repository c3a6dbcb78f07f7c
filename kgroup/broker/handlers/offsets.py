"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: requests about the ends of a log.

Source: Kafka's ``ReplicaManager.fetchOffset``, ``UnifiedLog.fetchOffsetByTimestamp``,
KIP-79, KIP-320, KIP-734 (the offset of the greatest timestamp), KIP-1005 and KIP-1023 (tiers).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from kgroup.broker.handlers.partitions import NO_EPOCH, leader_log
from kgroup.broker.internal_topics import refuse_writing
from kgroup.broker.log import PartitionLog
from kgroup.broker.request_context import RequestContext
from kgroup.broker.request_error import RequestError
from kgroup.broker.response_versions import ResponseFields
from kgroup.error_codes import ErrorCode

_READ_COMMITTED: Final = 1
_NONE: Final = -1

_Special = Callable[[PartitionLog, int], tuple[int, int] | None]
"""Takes a log and the offset up to which it is visible; returns (offset, timestamp) or None."""


def _latest(log: PartitionLog, limit: int) -> tuple[int, int]:
    del log
    return limit, _NONE


def _earliest(log: PartitionLog, limit: int) -> tuple[int, int]:
    del limit
    return log.start_offset, _NONE


def _nothing(log: PartitionLog, limit: int) -> None:
    del log, limit


_NEWEST: Final = -3
"""The timestamp that means the record with the greatest timestamp."""
#: A negative timestamp in ListOffsets -> the first version that may send it, and what finds its
#: (offset, timestamp) if no search is needed. There is no tiered storage: the earliest local offset
#: (-4) is the earliest, and there is no latest tiered (-5) and no earliest pending upload (-6).
_SPECIAL: Final[dict[int, tuple[int, _Special]]] = {
    -1: (1, _latest),
    -2: (1, _earliest),
    _NEWEST: (7, _nothing),
    -4: (8, _earliest),
    -5: (9, _nothing),
    -6: (11, _nothing),
}


async def list_offsets(context: RequestContext) -> ResponseFields:
    """Answer ListOffsets; a partition that is named twice is answered once, with an error."""
    times = Counter(
        (topic.name, part.partition_index)
        for topic in context.request.topics
        for part in topic.partitions
    )
    topics: dict[str, list[dict[str, Any]]] = {}
    async for topic in context.work.each(context.request.topics):
        found = topics.setdefault(topic.name, [])
        async for part in context.work.each(topic.partitions):
            named = times.pop((topic.name, part.partition_index), 0)
            if named == 1:
                found.append(await _offset(context, topic.name, part))
            elif named > 1:
                number, code = part.partition_index, ErrorCode.INVALID_REQUEST
                found.append({"partition_index": number, "error_code": code})
    return {"topics": [{"name": name, "partitions": found} for name, found in topics.items()]}


async def _offset(context: RequestContext, name: str, part: Any) -> dict[str, Any]:
    committed = getattr(context.request, "isolation_level", 0) == _READ_COMMITTED
    try:
        _check_meaning(part.timestamp, context.version)
        epoch = getattr(part, "current_leader_epoch", NO_EPOCH)
        log = leader_log(context, name, part.partition_index, epoch)
        found = await _find(context, log, part.timestamp, committed=committed)
    except RequestError as error:
        return {"partition_index": part.partition_index, "error_code": error.code}
    if found is None:
        return {"partition_index": part.partition_index, "error_code": ErrorCode.NONE}
    return {
        "partition_index": part.partition_index,
        "error_code": ErrorCode.NONE,
        "offset": found[0],
        "timestamp": found[1],
        "leader_epoch": log.epochs.at(found[0]),
    }


def _check_meaning(timestamp: int, version: int) -> None:
    never: tuple[int, _Special] = (version + 1, _nothing)
    since, _ = (0, _nothing) if timestamp >= 0 else _SPECIAL.get(timestamp, never)
    if version < since:
        raise RequestError(
            ErrorCode.UNSUPPORTED_VERSION, f"timestamp {timestamp} has no meaning in this version"
        )


async def _find(
    context: RequestContext, log: PartitionLog, timestamp: int, *, committed: bool
) -> tuple[int, int] | None:
    limit = log.limit(committed=committed)
    if timestamp >= 0:
        found = await log.offset_for_time(timestamp, context.work)
    elif timestamp == _NEWEST:
        found = await log.offset_of_max_time(context.work)
    else:
        return _SPECIAL[timestamp][1](log, limit)
    return None if found is None or found[0] >= limit else found


async def offset_for_leader_epoch(context: RequestContext) -> ResponseFields:
    """Answer OffsetForLeaderEpoch: the offset at which the records of a leader epoch end."""
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [
                    _epoch_end(context, topic.topic, part)
                    async for part in context.work.each(topic.partitions)
                ],
            }
            async for topic in context.work.each(context.request.topics)
        ]
    }


def _epoch_end(context: RequestContext, name: str, part: Any) -> dict[str, Any]:
    try:
        log = leader_log(context, name, part.partition, part.current_leader_epoch)
    except RequestError as error:
        return {"partition": part.partition, "error_code": error.code}
    epoch, end = log.epochs.end_of(part.leader_epoch, log.end_offset)
    return {
        "partition": part.partition,
        "error_code": ErrorCode.NONE,
        "leader_epoch": epoch,
        "end_offset": end,
    }


async def delete_records(context: RequestContext) -> ResponseFields:
    """Answer DeleteRecords."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _delete(context, topic.name, part)
                    async for part in context.work.each(topic.partitions)
                ],
            }
            async for topic in context.work.each(context.request.topics)
        ]
    }


def _delete(context: RequestContext, name: str, part: Any) -> dict[str, Any]:
    low, code = -1, ErrorCode.NONE
    try:
        refuse_writing(name)
        low = leader_log(context, name, part.partition_index).delete_before(part.offset)
    except RequestError as error:
        code = error.code
    return {"partition_index": part.partition_index, "low_watermark": low, "error_code": code}
