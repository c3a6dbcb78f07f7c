"""The leader epochs of the records that a generation has handed out, for its commits.

A commit says how far a partition was read, and in which leader epoch the last of those records was
written. If the log is truncated while no member reads it, and other records follow, the offset
alone does not show that the records before it are different ones.

An epoch is kept for each stretch of records that follow each other, with the offset at which it
begins: usually there is one, because epochs rise only when a partition's leader changes. Where
there are more than ``MOST_STRETCHES`` (a source does not know the epochs of markers, or a broker
lies), the oldest is forgotten: a commit there has no epoch, as one of a client without KIP-320.

INVARIANT: an epoch is given only for an offset up to which all was handed out since it began. What
a seek has passed over may be of a later epoch, and with too low an epoch a log would look as if it
had been truncated. So may what lies between two records of different epochs, such as the marker of
a transaction, which is written by another leader than its records: a commit there has no epoch.

A commit that is past the markers of transactions has the epoch of the last one, if the record
source knows it. They may be of a later one than the record before them.

Source: KIP-320; Kafka's ``SubscriptionState.FetchPosition`` and ``LeaderEpochFileCache``.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Final, final

import attrs

from kgroup.interfaces import Batch, Message
from kgroup.records.fetcher import epoch_of
from kgroup.types import OffsetAndMetadata, TopicPartition

MOST_STRETCHES: Final = 100
"""So many are kept of a partition: they reach much further back than a program commits."""
_UNKNOWN: Final = -1


@final
@attrs.define(eq=False)
class _Epochs:
    """The leader epochs of one partition.

    Attributes:
        starts: the offset of the first record known of each epoch, in rising order.
        epochs: the epochs.
        end: the offset up to which records were handed out.
        read: whether any were; otherwise the epoch is that of the commit at the start.
    """

    starts: list[int]
    epochs: list[int]
    end: int
    read: bool = False

    def at(self, offset: int) -> int:
        """The epoch of the record before an offset; -1 if it is not known."""
        before = bisect_right(self.starts, offset - 1)
        return self.epochs[before - 1] if before and offset <= self.end else _UNKNOWN

    def add(self, messages: Sequence[Message]) -> None:
        """Take the epochs of these records, in place of what was known of the same offsets."""
        kept = bisect_left(self.starts, messages[0].offset())
        del self.starts[kept:], self.epochs[kept:]
        at, end = 0, self.end
        while at < len(messages):
            epoch = epoch_of(messages[at])
            self._begin(epoch, messages[at].offset(), end)
            at = bisect_right(messages, epoch, lo=at, key=epoch_of)
            end = messages[at - 1].offset() + 1
        self._forget_oldest()

    def pass_to(self, end: int, next_offset: int, epoch: int) -> None:
        """Take the epoch of the last one of the markers that follow the records."""
        self._begin(epoch, next_offset - 1, end)
        self._forget_oldest()

    def _begin(self, epoch: int, offset: int, end: int) -> None:
        """Take the epoch of a record or marker that may follow others which were not handed out.

        Of those, nothing is known, unless it is of the same epoch as the record before them: epochs
        never fall within a log, so that all in between are of that epoch too.

        Args:
            epoch: its epoch.
            offset: its offset.
            end: the offset after the record before it.
        """
        if self.epochs and self.epochs[-1] not in (epoch, _UNKNOWN) and end < offset:
            self.starts.append(end)
            self.epochs.append(_UNKNOWN)
        if not self.epochs or self.epochs[-1] != epoch:
            self.starts.append(offset)
            self.epochs.append(epoch)

    def _forget_oldest(self) -> None:
        del self.starts[:-MOST_STRETCHES], self.epochs[:-MOST_STRETCHES]


@final
class ReadEpochs:
    """The leader epochs of what was handed out, and of the records just before the starts."""

    def __init__(self, known: Mapping[TopicPartition, _Epochs] = MappingProxyType({})) -> None:
        self._known = dict(known)

    def next(
        self,
        kept: Collection[TopicPartition],
        starts: Mapping[TopicPartition, int],
        leader_epochs: Mapping[TopicPartition, int],
    ) -> ReadEpochs:
        """What the next generation knows at its beginning.

        Args:
            kept: the partitions that the member has kept: the program may commit in that generation
                what it received in this one.
            starts: where its partitions start.
            leader_epochs: the epochs of the commits at which they do.
        """
        known = {
            name: _Epochs([starts[name] - 1], [epoch], starts[name])
            for name, epoch in leader_epochs.items()
        }
        still = {
            name: epochs
            for name, epochs in self._known.items()
            if name in kept and name in starts and starts[name] <= epochs.end
        }
        return ReadEpochs({**known, **still})

    def has_read(self, partition: TopicPartition, offset: int, epoch: int) -> bool:
        """Whether the record before an offset was handed out, and is of this epoch."""
        known = self._known.get(partition)
        return known is not None and known.read and known.at(offset) == epoch

    def handed_out(self, batch: Batch) -> None:
        """Take the epochs of a batch."""
        last = epoch_of(batch.messages[-1]) if batch.messages else _UNKNOWN
        known = self._known.get(batch.partition)
        if last == _UNKNOWN:
            self._known.pop(batch.partition, None)
            return
        if known is None or batch.start_offset > known.end:
            self._known[batch.partition] = known = _Epochs([], [], 0)
        if not known.epochs or known.epochs[-1] != last or batch.start_offset < known.end:
            known.add(batch.messages)
        known.end, known.read = batch.next_offset, True
        if (end := batch.messages[-1].offset() + 1) < batch.next_offset:
            known.pass_to(end, batch.next_offset, batch._next_epoch)  # noqa: SLF001 # ours

    def forget(self, partition: TopicPartition) -> None:
        """Forget what was handed out, because another record may come next."""
        self._known.pop(partition, None)

    def added_to(self, partition: TopicPartition, position: OffsetAndMetadata) -> OffsetAndMetadata:
        """The position to commit, with its leader epoch if only that is known, not given."""
        known = self._known.get(partition)
        if known is None or position.leader_epoch != _UNKNOWN:
            return position
        epoch = known.at(position.offset)
        return position if epoch == _UNKNOWN else attrs.evolve(position, leader_epoch=epoch)
