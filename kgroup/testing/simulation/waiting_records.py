"""Counts the records that wait for members which learn of a rebalance later than others.

A member of a classic group learns of a rebalance from the response to a heartbeat. It finishes its
work and joins again. From then on its partitions are not read until every other member has joined
too. If all of them send their heartbeats at the same moments (``kgroup.client.beat``), there is
hardly any time in between. With wall clocks that disagree or jump there is, and the records that
are written meanwhile wait.
"""

from __future__ import annotations

from typing import final

from kgroup.broker.groups.requests import JoinGroup
from kgroup.testing.simulation.history import (
    Appended,
    GroupChanged,
    HistoryEntry,
    RequestHandled,
)
from kgroup.types import TopicPartition


@final
class WaitingRecords:
    """Counts them in one simulation, entry by entry.

    A record counts if it was written to a partition after its owner had joined again, and before
    the last other member of that generation that joined again had done so. Members that never join
    again do not count: the coordinator waits for those whatever their clocks show.

    Attributes:
        count: how many there are so far.
    """

    def __init__(self) -> None:
        self.count = 0
        self._groups: dict[str, _Rejoins] = {}

    def add(self, entry: HistoryEntry) -> None:
        """Take the next entry of the history."""
        match entry:
            case GroupChanged(assigned=True):
                before = self._groups.get(entry.group_id)
                if before is None or before.generation_id != entry.generation_id:
                    self._groups[entry.group_id] = _Rejoins(entry)
            case RequestHandled(request=JoinGroup() as request):
                if request.group_id in self._groups:
                    self.count += self._groups[request.group_id].joined(request.member_id)
            case Appended():
                for group in self._groups.values():
                    group.written(entry.partition, entry.next_offset - entry.first)
            case _:
                pass


@final
class _Rejoins:
    """A generation of a group, and which of its members have joined again."""

    def __init__(self, generation: GroupChanged) -> None:
        self.generation_id = generation.generation_id
        self._owned = {member.member_id: member.assignment for member in generation.members}
        self._given_up: set[TopicPartition] = set()
        self._waiting = 0

    def joined(self, member_id: str) -> int:
        """A member has joined again; return how many records have waited for this."""
        owned = self._owned.pop(member_id, None)
        if owned is None:
            return 0
        waited, self._waiting = self._waiting, 0
        self._given_up.update(owned)
        return waited

    def written(self, partition: TopicPartition, records: int) -> None:
        """Records were written; they wait if their partition was given up."""
        if partition in self._given_up:
            self._waiting += records
