"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords: questions about the ends of a log.

Source: Kafka's ``ReplicaManager.fetchOffset``, ``UnifiedLog.fetchOffsetByTimestamp``,
KIP-79, KIP-320, KIP-734 (the offset of the greatest timestamp), KIP-1005 and KIP-1023 (tiers).
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


def _nothing(log: PartitionLog, limit: int) -> None:
    del log, limit


#: What ListOffsets asks for by a negative timestamp -> the first version that may ask so, and
#: (offset, timestamp) of it. There is no tiered storage: the earliest that is local (-4) is the
#: earliest, none is the latest that is elsewhere (-5), or the earliest that is yet to go (-6).
_SPECIAL: Final[dict[int, tuple[int, Callable[[PartitionLog, int], tuple[int, int] | None]]]] = {
    -1: (1, _latest),
    -2: (1, _earliest),
    -3: (7, _newest),
    -4: (8, _earliest),
    -5: (9, _nothing),
    -6: (11, _nothing),
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
        found = _find(log, call.version, part.timestamp, committed=committed)
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


def _find(
    log: PartitionLog, version: int, timestamp: int, *, committed: bool
) -> tuple[int, int] | None:
    limit = log.limit(committed=committed)
    if timestamp >= 0:
        found = log.offset_for_time(timestamp)
    else:
        since, special = _SPECIAL.get(timestamp, (version + 1, _nothing))
        if version < since:
            raise RefusedError(ErrorCode.unsupported_version, f"no offset is known by {timestamp}")
        found = special(log, limit)
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
