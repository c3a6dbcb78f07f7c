"""The logs, as they were written: the creations of each topic, and the records readers never get.

Offsets are committed by the topic's name. A member whose generation began before its topic was
deleted and created again may continue to read and commit at positions of the old log; README's
Limits say so. Only what follows from that is excused; see ``ProgramsView.uses_old_positions``.
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
        markers: the offsets of transaction markers, which readers never get.
        aborted: the offsets of records of aborted transactions.
        open: for each producer the offsets of its open transaction.
    """

    markers: set[int] = attrs.field(factory=set)
    aborted: set[int] = attrs.field(factory=set)
    open: defaultdict[int, list[int]] = attrs.field(factory=lambda: defaultdict(list))

    def hides(self, offset: int, isolation: str) -> bool:
        """Whether readers with this isolation level never get this offset."""
        committed = isolation == IsolationLevel.READ_COMMITTED.value
        return offset in self.markers or (committed and offset in self.aborted)

    def is_open(self, offset: int) -> bool:
        """Whether the offset belongs to an open transaction."""
        return any(offset in offsets for offsets in self.open.values())


@final
class LogsView:
    """All logs, by partition, and those of deleted topics, by their creation too."""

    def __init__(self) -> None:
        self._logs: defaultdict[TopicPartition, LogView] = defaultdict(LogView)
        self._former: dict[tuple[TopicPartition, int], LogView] = {}
        self._created: dict[str, tuple[int, float]] = {}
        self._deleted: dict[str, float] = {}

    def __getitem__(self, partition: TopicPartition) -> LogView:
        return self._logs[partition]

    def of_creation(self, partition: TopicPartition, creation: int) -> LogView:
        """The log of one creation of its topic: a member may still have records of a former one."""
        if creation == self.creation(partition.topic):
            return self._logs[partition]
        return self._former.get((partition, creation), LogView())

    @property
    def handlers(self) -> Mapping[type[object] | str, Callable[[Any], None]]:
        """The handler for each kind of entry."""
        return {
            TopicChanged: self._changed,
            Appended: self._appended,
            TransactionEnded: self._ended,
        }

    def creation(self, topic: str) -> int:
        """The current creation of a topic, from 1; 0 while it does not exist."""
        number, at = self._created.get(topic, (1, _ALWAYS))
        return 0 if self.deleted_at(topic) > at else number

    def created_again_at(self, topic: str) -> float:
        """When the topic was created again last; minus infinity if it was created only once."""
        number, at = self._created.get(topic, (1, _ALWAYS))
        return at if number > 1 else _ALWAYS

    def deleted_at(self, topic: str) -> float:
        """When the topic was deleted last; minus infinity if it never was."""
        return self._deleted.get(topic, _ALWAYS)

    def _changed(self, entry: TopicChanged) -> None:
        if not entry.partitions:
            creation = self.creation(entry.topic)
            self._deleted[entry.topic] = entry.at
            for partition in [one for one in self._logs if one.topic == entry.topic]:
                self._former[partition, creation] = self._logs.pop(partition)
        elif entry.creation != self._created.get(entry.topic, (0, _ALWAYS))[0]:
            self._created[entry.topic] = entry.creation, entry.at

    def _appended(self, entry: Appended) -> None:
        if entry.producer_id is not None:
            offsets = range(entry.first, entry.next_offset)
            self._logs[entry.partition].open[entry.producer_id].extend(offsets)

    def _ended(self, entry: TransactionEnded) -> None:
        for partition, offset in entry.markers:
            log = self._logs[partition]
            log.markers.add(offset)
            offsets = log.open.pop(entry.producer_id, ())
            if not entry.committed:
                log.aborted.update(offsets)
