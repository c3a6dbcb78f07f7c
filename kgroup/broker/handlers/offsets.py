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
from kgroup.broker.handlers.fetch import check_epoch
from kgroup.broker.log import LEADER_EPOCH, PartitionLog
from kgroup.broker.refusal import Refusal

_READ_COMMITTED: Final = 1
_NO_EPOCH: Final = -1
_NONE: Final = -1
_END: Final = -1

#: What ListOffsets asks for by a negative timestamp -> (offset, timestamp) of it.
_SPECIAL: Final[dict[int, Callable[[PartitionLog, bool], tuple[int, int] | None]]] = {
    -1: lambda log, committed: (log.limit(committed=committed), _NONE),
    -2: lambda log, committed: (log.start_offset, _NONE),
    -3: lambda log, committed: log.offset_of_max_time(),
    -4: lambda log, committed: (log.start_offset, _NONE),
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
        log = call.cluster.topics.log(name, part.partition_index)
        check_epoch(getattr(part, "current_leader_epoch", _NO_EPOCH))
        found = _find(log, part.timestamp, committed=committed)
    except Refusal as refusal:
        return {"partition_index": part.partition_index, "error_code": refusal.code}
    if found is None:
        return {"partition_index": part.partition_index, "error_code": ErrorCode.none}
    return {
        "partition_index": part.partition_index,
        "error_code": ErrorCode.none,
        "offset": found[0],
        "timestamp": found[1],
        "leader_epoch": LEADER_EPOCH,
    }


def _find(log: PartitionLog, timestamp: int, *, committed: bool) -> tuple[int, int] | None:
    if timestamp in _SPECIAL:
        found = _SPECIAL[timestamp](log, committed)
    elif timestamp >= 0:
        found = log.offset_for_time(timestamp)
    else:
        raise Refusal(ErrorCode.unsupported_version, f"no offset is known by {timestamp}")
    if found is None or found[0] > log.limit(committed=committed):
        return None
    return found


async def offset_for_leader_epoch(call: Call) -> Answer:
    """Answer OffsetForLeaderEpoch: the log has had one epoch, and its end is the log's."""
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
        log = call.cluster.topics.log(name, part.partition)
        check_epoch(part.current_leader_epoch)
    except Refusal as refusal:
        return {"partition": part.partition, "error_code": refusal.code}
    known = part.leader_epoch == LEADER_EPOCH
    return {
        "partition": part.partition,
        "error_code": ErrorCode.none,
        "leader_epoch": LEADER_EPOCH if known else _NO_EPOCH,
        "end_offset": log.end_offset if known else _END,
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
        low = call.cluster.topics.log(name, part.partition_index).delete_before(part.offset)
    except Refusal as refusal:
        code = refusal.code
    return {"partition_index": part.partition_index, "low_watermark": low, "error_code": code}
