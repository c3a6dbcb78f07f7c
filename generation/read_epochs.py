"""The leader epochs of the records that a generation has handed out, for its commits.

A commit says how far a partition was read, and in which leader epoch the last of those records was
written. If the log is truncated while nobody reads it, and grows again, the offset alone would not
show that other records are before it now.

An epoch is kept for each stretch of records that follow each other, with the offset at which it
begins: usually there is one, because epochs rise only when a partition's leader changes.

INVARIANT: an epoch is given only for an offset up to which all was handed out since it began. What
a seek has passed over may be of a later epoch, and with too low an epoch a log would look as if it
had been truncated.

A commit that is past the markers of transactions has the epoch of the record before them. If the
leader changed in between, the log of that epoch ends before the markers, and the next member begins
there: it reads no record twice.

Source: KIP-320; Kafka's ``SubscriptionState.FetchPosition`` and ``LeaderEpochFileCache``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, Final, final

import attrs

from kgroup.interfaces import Batch, Message
from kgroup.types import OffsetAndMetadata, TopicPartition

_UNKNOWN: Final = -1


@final
@attrs.define(eq=False)
class _Epochs:
    """The leader epochs of one partition.

    Attributes:
        starts: the offset of the first record known of each epoch, in rising order.
        epochs: the epochs.
        end: the offset up to which records were handed out.
    """

    starts: list[int]
    epochs: list[int]
    end: int

    def add(self, messages: Sequence[Message]) -> None:
        """Take the epochs of these records, in place of what was known of the same offsets."""
        kept = bisect_left(self.starts, messages[0].offset())
        del self.starts[kept:], self.epochs[kept:]
        at = 0
        while at < len(messages):
            epoch = leader_epoch(messages[at])
            if not self.epochs or self.epochs[-1] != epoch:
                self.starts.append(messages[at].offset())
                self.epochs.append(epoch)
            at = bisect_right(messages, epoch, lo=at, key=leader_epoch)


@final
class ReadEpochs:
    """The leader epochs of what was handed out, and of the records just before the starts."""

    def __init__(self) -> None:
        self._known: dict[TopicPartition, _Epochs] = {}

    def begin(
        self, starts: Mapping[TopicPartition, int], leader_epochs: Mapping[TopicPartition, int]
    ) -> None:
        """Take the epochs that the commits have at which the partitions start."""
        self._known = {
            name: _Epochs([starts[name] - 1], [epoch], starts[name])
            for name, epoch in leader_epochs.items()
        }

    def handed_out(self, batch: Batch) -> None:
        """Take the epochs of a batch."""
        last = leader_epoch(batch.messages[-1]) if batch.messages else _UNKNOWN
        known = self._known.get(batch.partition)
        if last == _UNKNOWN:
            self._known.pop(batch.partition, None)
            return
        if known is None:
            self._known[batch.partition] = known = _Epochs([], [], 0)
        if not known.epochs or known.epochs[-1] != last or batch.start_offset < known.end:
            known.add(batch.messages)
        known.end = batch.next_offset

    def forget(self, partition: TopicPartition) -> None:
        """Forget what was handed out, because another record may come next."""
        self._known.pop(partition, None)

    def added_to(self, partition: TopicPartition, position: OffsetAndMetadata) -> OffsetAndMetadata:
        """The position to commit, with its leader epoch if only that is known, not given."""
        known = self._known.get(partition)
        if known is None or position.leader_epoch != _UNKNOWN or position.offset > known.end:
            return position
        before = bisect_right(known.starts, position.offset - 1)
        if not before:
            return position
        return attrs.evolve(position, leader_epoch=known.epochs[before - 1])


def leader_epoch(message: Message) -> int:
    """The leader epoch of a record; -1 if its source does not know it."""
    read: Any = getattr(message, "leader_epoch", None)
    epoch = None if read is None else read()
    return _UNKNOWN if epoch is None else int(epoch)
