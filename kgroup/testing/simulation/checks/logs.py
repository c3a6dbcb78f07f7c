"""The logs, as they were written: how often each topic was created, and what readers do not see.

Offsets are committed by the topic's name. A member that began its generation before its topic was
deleted and created again may read on, and commit, by positions of the log before; README's Limits
say so. What follows from that is excused, and nothing else: see ``Programs.reads_on``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final, final

import attrs

from kgroup.testing.simulation.history import Appended, TopicChanged, TransactionEnded
from kgroup.types import IsolationLevel, TopicPartition

_ALWAYS: Final = float("-inf")


@final
@attrs.define(eq=False)
class LogView:
    """One partition's log.

    Attributes:
        markers: offsets of what ends transactions, which nobody sees.
        aborted: offsets of records whose transaction was aborted.
        open: for each producer the offsets of its transaction that is not over.
    """

    markers: set[int] = attrs.field(factory=set)
    aborted: set[int] = attrs.field(factory=set)
    open: defaultdict[int, list[int]] = attrs.field(factory=lambda: defaultdict(list))

    def hides(self, offset: int, isolation: str) -> bool:
        """Whether readers of this isolation level are never given this offset."""
        committed = isolation == IsolationLevel.READ_COMMITTED.value
        return offset in self.markers or (committed and offset in self.aborted)

    def is_open(self, offset: int) -> bool:
        """Whether the offset is of a transaction that is not over."""
        return any(offset in offsets for offsets in self.open.values())


@final
class Logs:
    """All logs, by partition; a topic that is deleted takes its logs along."""

    def __init__(self) -> None:
        self._logs: defaultdict[TopicPartition, LogView] = defaultdict(LogView)
        self._created: dict[str, tuple[int, float]] = {}
        self._deleted: dict[str, float] = {}

    def __getitem__(self, partition: TopicPartition) -> LogView:
        return self._logs[partition]

    @property
    def reactions(self) -> Mapping[type[object] | str, Callable[[Any], None]]:
        """What is done with each kind of fact."""
        return {
            TopicChanged: self._changed,
            Appended: self._appended,
            TransactionEnded: self._ended,
        }

    def creation(self, topic: str) -> int:
        """Which creation of a topic there is now, from 1; 0 while it does not exist."""
        number, at = self._created.get(topic, (1, _ALWAYS))
        return 0 if self.deleted_at(topic) > at else number

    def created_again_at(self, topic: str) -> float:
        """When the topic was created the last time, or before all time if it was only once."""
        number, at = self._created.get(topic, (1, _ALWAYS))
        return at if number > 1 else _ALWAYS

    def deleted_at(self, topic: str) -> float:
        """When a topic of this name was deleted the last time, or before all time."""
        return self._deleted.get(topic, _ALWAYS)

    def _changed(self, fact: TopicChanged) -> None:
        if not fact.partitions:
            self._deleted[fact.topic] = fact.at
            for partition in [one for one in self._logs if one.topic == fact.topic]:
                del self._logs[partition]
        elif fact.creation != self._created.get(fact.topic, (0, _ALWAYS))[0]:
            self._created[fact.topic] = fact.creation, fact.at

    def _appended(self, fact: Appended) -> None:
        if fact.producer_id is not None:
            offsets = range(fact.first, fact.next_offset)
            self._logs[fact.partition].open[fact.producer_id].extend(offsets)

    def _ended(self, fact: TransactionEnded) -> None:
        for partition, offset in fact.markers:
            log = self._logs[partition]
            log.markers.add(offset)
            offsets = log.open.pop(fact.producer_id, ())
            if not fact.committed:
                log.aborted.update(offsets)
