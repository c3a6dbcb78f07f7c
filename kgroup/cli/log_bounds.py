"""The bounds of partitions' logs, as the commands for operating a cluster need them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, final

import attrs

from kgroup.cli.admin_client import EARLIEST, LATEST, AdminConnection, Refusal
from kgroup.types import IsolationLevel, TopicPartition

__all__ = ["LogBounds", "fetch_bounds"]

_NO_TOPIC: Final = "there is no such partition, or this user lacks {} on its topic"


@final
@attrs.frozen
class LogBounds:
    """The first offset of a partition's log, and the one after its last record.

    Attributes:
        start: the first offset; None if it is not known.
        end: the end; None if it is not known.
        fault: why they are not known, if they are not.
    """

    start: int | None = None
    end: int | None = None
    fault: str = ""


def fetch_bounds(
    connection: AdminConnection,
    partitions: Iterable[TopicPartition],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    operation: str = "DESCRIBE",
) -> dict[TopicPartition, LogBounds]:
    """Request the bounds of logs.

    Args:
        connection: of the command.
        partitions: those of the logs.
        isolation: where a log ends.
        operation: what the command needs on the topics; a fault says so where the user lacks it.

    Raises:
        ClusterError: no broker answered.
    """
    topics = connection.topics()
    wanted = list(partitions)
    existing = [one for one in wanted if one.partition < topics.get(one.topic, 0)]
    starts = connection.offsets(dict.fromkeys(existing, EARLIEST), isolation)
    ends = connection.offsets(dict.fromkeys(existing, LATEST), isolation)
    return {
        one: _bounds(one.topic, starts[one], ends[one], operation)
        if one in starts
        else LogBounds(fault=_NO_TOPIC.format(operation))
        for one in wanted
    }


def _bounds(topic: str, start: int | Refusal, end: int | Refusal, operation: str) -> LogBounds:
    for one in (start, end):
        if isinstance(one, Refusal):
            return LogBounds(fault=one.explained(operation, topic=topic))
    assert isinstance(start, int)
    assert isinstance(end, int)
    return LogBounds(start, end)
