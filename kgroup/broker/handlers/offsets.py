"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: questions about the ends of a log.

Source: Kafka's ``ReplicaManager.fetchOffset``, ``UnifiedLog.fetchOffsetByTimestamp``,
KIP-79, KIP-320, KIP-734 (the offset of the greatest timestamp).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from kio.schema.errors import ErrorCode

from kgroup.broker.answer import Answer
from kgroup.broker.call import Call
from kgroup.broker.handlers.partitions import NO_EPOCH, led_log
from kgroup.broker.log import PartitionLog
from kgroup.broker.refusal import RefusedError

_READ_COMMITTED: Final = 1
_NONE: Final = -1


def _latest(log: PartitionLog, limit: int) -> tuple[int, int]:
    del log
    return limit, _NONE


def _earliest(log: PartitionLog, limit: int) -> tuple[int, int]:
    del limit
    return log.start_offset, _NONE


def _newest(log: PartitionLog, limit: int) -> tuple[int, int] | None:
    del limit
    return log.offset_of_max_time()


#: What ListOffsets asks for by a negative timestamp -> (offset, timestamp) of it. The earliest
#: that is local (-4) is the earliest: there is no tiered storage.
_SPECIAL: Final[dict[int, Callable[[PartitionLog, int], tuple[int, int] | None]]] = {
    -1: _latest,
    -2: _earliest,
    -3: _newest,
    -4: _earliest,
}


async def list_offsets(call: Call) -> Answer:
    """Answer ListOffsets."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_offset(call, topic.name, part) for part in topic.partitions],
            }
            for topic in call.request.topics
        ]
    }


def _offset(call: Call, name: str, part: Any) -> dict[str, Any]:
    committed = getattr(call.request, "isolation_level", 0) == _READ_COMMITTED
    try:
        epoch = getattr(part, "current_leader_epoch", NO_EPOCH)
        log = led_log(call, name, part.partition_index, epoch)
        found = _find(log, part.timestamp, committed=committed)
    except RefusedError as refusal:
        return {"partition_index": part.partition_index, "error_code": refusal.code}
    if found is None:
        return {"partition_index": part.partition_index, "error_code": ErrorCode.none}
    return {
        "partition_index": part.partition_index,
        "error_code": ErrorCode.none,
        "offset": found[0],
        "timestamp": found[1],
        "leader_epoch": log.epochs.at(found[0]),
    }


def _find(log: PartitionLog, timestamp: int, *, committed: bool) -> tuple[int, int] | None:
    limit = log.limit(committed=committed)
    if timestamp in _SPECIAL:
        found = _SPECIAL[timestamp](log, limit)
    elif timestamp >= 0:
        found = log.offset_for_time(timestamp)
    else:
        raise RefusedError(ErrorCode.unsupported_version, f"no offset is known by {timestamp}")
    if found is None or found[0] > limit:
        return None
    return found


async def offset_for_leader_epoch(call: Call) -> Answer:
    """Answer OffsetForLeaderEpoch: up to where a log is what a client read in an epoch."""
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [_epoch_end(call, topic.topic, part) for part in topic.partitions],
            }
            for topic in call.request.topics
        ]
    }


def _epoch_end(call: Call, name: str, part: Any) -> dict[str, Any]:
    try:
        log = led_log(call, name, part.partition, part.current_leader_epoch)
    except RefusedError as refusal:
        return {"partition": part.partition, "error_code": refusal.code}
    epoch, end = log.epochs.end_of(part.leader_epoch, log.end_offset)
    return {
        "partition": part.partition,
        "error_code": ErrorCode.none,
        "leader_epoch": epoch,
        "end_offset": end,
    }


async def delete_records(call: Call) -> Answer:
    """Answer DeleteRecords."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [_delete(call, topic.name, part) for part in topic.partitions],
            }
            for topic in call.request.topics
        ]
    }


def _delete(call: Call, name: str, part: Any) -> dict[str, Any]:
    low, code = -1, ErrorCode.none
    try:
        low = led_log(call, name, part.partition_index).delete_before(part.offset)
    except RefusedError as refusal:
        code = refusal.code
    return {"partition_index": part.partition_index, "low_watermark": low, "error_code": code}
