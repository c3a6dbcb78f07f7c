"""Which partitions of one generation hand out no batch, and why.

There are two reasons: the program has paused a partition, or a pool of threads has a batch of it in
hand (`RecordStream.share_in_turn`). The record source knows only that a partition is paused.

INVARIANT: the source has a partition paused while there is a reason, and only then. With a
`BufferedSource`, the reasons and the source change together, under its lock; the methods of other
sources, which serve no threads, are called by the event loop alone.
"""

from __future__ import annotations

from collections.abc import Collection
from contextlib import AbstractContextManager, nullcontext
from typing import final

from kgroup.interfaces import RecordSource
from kgroup.records.buffered_source import BufferedSource
from kgroup.types import TopicPartition


@final
class Pauses:
    """The partitions that are paused.

    Args:
        source: the record source.
        epoch: the generation's.
    """

    def __init__(self, source: RecordSource, epoch: int) -> None:
        self._source = source
        self._undisturbed = undisturbed(source)
        self._epoch = epoch
        self._paused: set[TopicPartition] = set()
        """By the program."""
        self._in_hand: set[TopicPartition] = set()

    def pause(self, partitions: Collection[TopicPartition]) -> None:
        """Pause these for the program."""
        with self._undisturbed:
            self._source.pause(self._epoch, partitions)
            self._paused.update(partitions)

    def resume(self, partitions: Collection[TopicPartition]) -> None:
        """End the program's pause of these."""
        with self._undisturbed:
            self._source.resume(self._epoch, frozenset(partitions) - self._in_hand)
            self._paused.difference_update(partitions)

    def is_paused(self, partition: TopicPartition) -> bool:
        """Whether the program has paused a partition; any thread may ask."""
        return partition in self._paused

    def take_in_hand(self, partition: TopicPartition) -> None:
        """Hand out nothing of a partition until `finished`, because a batch of it is handed out.

        As for all that happens to a batch that leaves, the caller holds the source's lock, or is
        the event loop.
        """
        self._in_hand.add(partition)
        self._source.pause(self._epoch, (partition,))

    def finished(self, partition: TopicPartition) -> None:
        """Hand out the next batch of a partition, unless the program has paused it."""
        with self._undisturbed:
            self._in_hand.discard(partition)
            if partition not in self._paused:
                self._source.resume(self._epoch, (partition,))


def undisturbed(source: RecordSource) -> AbstractContextManager[object]:
    """A block in which no thread is given a batch. Sources of programs serve no threads."""
    return source.undisturbed() if isinstance(source, BufferedSource) else nullcontext()
