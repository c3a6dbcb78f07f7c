"""The time after the last fault and the last record: until every group has processed everything.

A group is done when it is stable and has committed all that can be read. One that keeps offsets of
its own need not commit: it is done when the last record of each partition was processed, and no
other one for a while.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, final

import trio

from kgroup.testing.simulation.coordination import Coordination
from kgroup.testing.simulation.history import (
    FinalGroupState,
    GroupOpened,
    HistoryEntry,
    Processed,
    SeekCalled,
    TopicChanged,
)
from kgroup.testing.simulation.observer import Recorder
from kgroup.testing.simulation.topics import SimulatedTopics
from kgroup.types import TopicPartition

_TIMEOUT: Final = 600.0
"""Seconds that the groups get at the end to become stable and to process everything."""
_POLL_INTERVAL: Final = 0.5
"""Seconds between two checks whether they have."""
_QUIET: Final = 30.0
"""Seconds without a record, after which a group with offsets of its own has processed the last."""


@final
class ReadingGroups:
    """Which groups of a simulation keep offsets of their own, and how far they have processed."""

    def __init__(self) -> None:
        self._with_own_starts: Final[set[str]] = set()
        self._seeking: Final[set[str]] = set()
        self._processed: Final[dict[tuple[str, TopicPartition], int]] = {}
        self._creations: Final[dict[str, int]] = {}
        self._last_at = 0.0

    @property
    def handlers(self) -> Mapping[type[HistoryEntry], Callable[[Any], None]]:
        """The handlers for `Recorder.subscribe`."""
        return {
            GroupOpened: self._opened,
            SeekCalled: self._sought,
            Processed: self._add,
            TopicChanged: self._topic_changed,
        }

    def is_done(
        self,
        group_id: str,
        committed: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> bool:
        """Whether a group has processed everything that can be read."""
        if all(committed.get(name, 0) >= end for name, end in ends.items()):
            return True
        if group_id not in self._with_own_starts and (committed or group_id not in self._seeking):
            return False
        return trio.current_time() >= self._last_at + _QUIET and all(
            self._processed.get((group_id, name), 0) >= end for name, end in ends.items()
        )

    def _opened(self, entry: GroupOpened) -> None:
        if entry.own_starts:
            self._with_own_starts.add(entry.group_id)

    def _sought(self, entry: SeekCalled) -> None:
        self._seeking.add(entry.group_id)

    def _add(self, entry: Processed) -> None:
        self._last_at = entry.at
        if entry.creation != self._creations[entry.partition.topic]:
            return
        key = entry.group_id, entry.partition
        self._processed[key] = max(entry.offset + 1, self._processed.get(key, 0))

    def _topic_changed(self, entry: TopicChanged) -> None:
        self._creations[entry.topic] = entry.creation
        if not entry.partitions:
            for key in [one for one in self._processed if one[1].topic == entry.topic]:
                del self._processed[key]


async def settle(
    coordination: Coordination, topics: SimulatedTopics, groups: ReadingGroups, recorder: Recorder
) -> None:
    """Wait until the groups are stable and done, or time runs out; record their final state."""
    deadline = trio.current_time() + _TIMEOUT
    while not await _are_settled(coordination, topics, groups):
        if trio.current_time() >= deadline:
            break
        await trio.sleep(_POLL_INTERVAL)
    stable, ends = await coordination.is_stable(), topics.ends()
    for group_id in coordination.group_ids:
        recorder.record(
            FinalGroupState,
            group_id=group_id,
            stable=stable,
            committed=await coordination.committed(group_id),
            ends=ends,
        )


async def _are_settled(
    coordination: Coordination, topics: SimulatedTopics, groups: ReadingGroups
) -> bool:
    if not await coordination.is_stable():
        return False
    ends = topics.ends()
    for group_id in coordination.group_ids:
        if not groups.is_done(group_id, await coordination.committed(group_id), ends):
            return False
    return True
