"""All offsets that a group has committed.

librdkafka's call for it cannot be used: in confluent-kafka 2.16.1 it crashes the process when the
coordinator answers NOT_COORDINATOR, as it does while it moves to another broker. And a consumer's
call for it needs the partitions by name, which only the group knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from kgroup.cli.groups.coordinator_request import CoordinatorRequest
from kgroup.client.broker_errors import broker_error
from kgroup.client.error_policy import Request
from kgroup.types import TopicPartition
from kgroup.wire.broker_connection import InvalidResponseError

_GROUPS: Final = 8
"""The first version of OffsetFetch that is about several groups (KIP-709)."""


def committed(group_id: str) -> CoordinatorRequest[Mapping[TopicPartition, int]]:
    """The request for the offset of each partition that has one; of an unknown group none."""
    return CoordinatorRequest(
        Request.FETCH_OFFSETS,
        "offset_fetch",
        partial(_fields, group_id),
        partial(_read, group_id),
        "the offsets",
    )


def _fields(group_id: str, version: int) -> Mapping[str, Any]:
    """The request for all offsets, those of open transactions without their outcome."""
    group = {"group_id": group_id, "topics": None}
    if version >= _GROUPS:
        return {"groups": [group], "require_stable": False}
    return {**group, "require_stable": False}


def _read(group_id: str, answer: Any) -> Mapping[TopicPartition, int]:
    group = answer
    if hasattr(answer, "groups"):
        if [one.group_id for one in answer.groups] != [group_id]:
            raise InvalidResponseError(f"is about other groups than {group_id!r}")
        group = answer.groups[0]
    if group.error_code:
        raise broker_error(Request.FETCH_OFFSETS, int(group.error_code), f"group {group_id!r}")
    offsets: dict[TopicPartition, int] = {}
    for topic in group.topics:
        for one in topic.partitions:
            partition = TopicPartition(str(topic.name), int(one.partition_index))
            if one.error_code:
                raise broker_error(Request.FETCH_OFFSETS, int(one.error_code), str(partition))
            if one.committed_offset >= 0:
                offsets[partition] = int(one.committed_offset)
    return dict(sorted(offsets.items()))
