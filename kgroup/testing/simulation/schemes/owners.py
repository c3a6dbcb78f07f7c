"""Who owns which partitions, as the history of any group protocol shows it.

A program owns a partition from the time when it begins to read it until it gives it up or ends. It
may believe so longer than it should: `Owners` says what programs do, not what is right.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias, final

from kgroup.events import Assigned, GenerationEnded
from kgroup.testing.simulation import history
from kgroup.testing.simulation.history import HistoryEntry
from kgroup.types import TopicPartition

Life: TypeAlias = tuple[str, int]
"""A program, and which start of it."""


@final
class Owners:
    """The owners of every partition, kept up to date by the history."""

    def __init__(self) -> None:
        self.partitions: Final[dict[TopicPartition, None]] = {}
        """Those that exist."""
        self.owners: Final[dict[TopicPartition, dict[Life, None]]] = {}
        """For each partition its owners, the latest one last."""
        self.owned: Final[dict[Life, Mapping[TopicPartition, int]]] = {}
        """For each program that has taken partitions where it began to read them."""
        self.running: Final[dict[Life, None]] = {}

    @property
    def handlers(self) -> Mapping[type[HistoryEntry], Callable[[Any], None]]:
        """The handler for each kind of entry."""
        return {
            history.TopicChanged: self._topic_changed,
            history.ProcessStarted: self._started,
            history.ProcessEnded: self._over,
            history.ProcessCrashed: self._over,
            history.PartitionsTaken: self._taken,
            history.PartitionsGivenUp: self._given_up,
            history.EventReported: self._event,
        }

    def are_settled(self) -> bool:
        """Whether every partition has exactly one owner, or no program runs."""
        if not self.running:
            return True
        return all(len(self.owners.get(one, ())) == 1 for one in self.partitions)

    @staticmethod
    def takes(entry: HistoryEntry) -> bool:
        """Whether an entry says that its program owns partitions, or none, from now on."""
        if isinstance(entry, history.EventReported):
            return isinstance(entry.event, Assigned)
        return isinstance(entry, history.PartitionsTaken)

    def take(self, life: Life, starts: Mapping[TopicPartition, int]) -> None:
        """A program owns these partitions from now on, and no others."""
        self.give_up(life)
        self.owned[life] = starts
        for partition in starts:
            self.owners.setdefault(partition, {})[life] = None

    def give_up(self, life: Life) -> None:
        """A program owns nothing from now on."""
        for partition in self.owned.pop(life, ()):
            self.owners[partition].pop(life, None)

    def latest(self, partition: TopicPartition) -> Life | None:
        """The program that was the last to take a partition and has not given it up."""
        return next(reversed(self.owners.get(partition, {})), None)

    def _topic_changed(self, entry: history.TopicChanged) -> None:
        for number in range(entry.partitions):
            self.partitions[TopicPartition(entry.topic, number)] = None

    def _started(self, entry: history.ProcessStarted) -> None:
        self.running[entry.process, entry.life] = None

    def _over(self, entry: history.ProcessEnded | history.ProcessCrashed) -> None:
        self.running.pop((entry.process, entry.life), None)
        self.give_up((entry.process, entry.life))

    def _taken(self, entry: history.PartitionsTaken) -> None:
        self.take((entry.process, entry.life), entry.starts)

    def _given_up(self, entry: history.PartitionsGivenUp) -> None:
        self.give_up((entry.process, entry.life))

    def _event(self, entry: history.EventReported) -> None:
        life, event = (entry.process, entry.life), entry.event
        if isinstance(event, Assigned):
            self.take(life, {one: event.start_offsets.get(one, 0) for one in event.assignment})
        elif isinstance(event, GenerationEnded):
            self.give_up(life)
