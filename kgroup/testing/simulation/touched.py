"""Which partitions and offsets an entry of the history is about.

A failure is about one partition, and what decides it can be long before: a batch that was handed
out, a seek, a commit. The timeline shows these as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kgroup.broker.groups.requests import OffsetCommit, TxnOffsetCommit
from kgroup.broker.groups.responses import OffsetsCommitted
from kgroup.error_codes import ErrorCode
from kgroup.events import Assigned, Event
from kgroup.testing.simulation import history
from kgroup.testing.simulation.history import HistoryEntry
from kgroup.types import TopicPartition

Touched = Mapping[TopicPartition, range]
"""For each partition the offsets; empty, at its place, for a position such as that of a commit."""


def touched(entry: HistoryEntry) -> Touched:
    """The partitions that an entry is about."""
    of = _OF.get(type(entry))
    return {} if of is None else of(entry)


def accepted(entry: history.RequestHandled) -> Mapping[TopicPartition, int]:
    """The offsets of a commit that a coordinator has applied, or added to a transaction."""
    request, response = entry.request, entry.response
    if not (
        isinstance(request, OffsetCommit | TxnOffsetCommit)
        and isinstance(response, OffsetsCommitted)
    ):
        return {}
    good = {
        (one.topic, one.partition) for one in response.partitions if one.error is ErrorCode.NONE
    }
    return {
        TopicPartition(one.topic, one.partition): one.offset
        for one in request.offsets
        if (one.topic, one.partition) in good
    }


def _at(partition: TopicPartition, offset: int) -> Touched:
    return _positions({partition: offset})


def _positions(offsets: Mapping[TopicPartition, int]) -> Touched:
    return {partition: range(offset, offset) for partition, offset in offsets.items()}


def _of_event(event: Event) -> Touched:
    if isinstance(event, Assigned):
        return _positions(event.start_offsets)
    offsets = getattr(event, "offsets", None)
    if isinstance(offsets, Mapping):
        return _positions(offsets)
    partition, offset = getattr(event, "partition", None), getattr(event, "offset", None)
    if isinstance(partition, TopicPartition):
        return _at(partition, offset if isinstance(offset, int) else 0)
    return {}


_OF: Final[Mapping[type[HistoryEntry], Callable[[Any], Touched]]] = {
    history.HandedOut: lambda one: {one.partition: range(one.first, one.next_offset)},
    history.Processed: lambda one: {one.partition: range(one.offset, one.offset + 1)},
    history.SeekCalled: lambda one: _at(one.partition, one.offset),
    history.RecordsSkipped: lambda one: _at(one.partition, one.offset),
    history.RequestHandled: lambda one: _positions(accepted(one)),
    history.EventReported: lambda one: _of_event(one.event),
}
