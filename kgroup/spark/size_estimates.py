"""How many bytes an offset will bring, learnt from what earlier batches brought.

Kafka tells where a partition ends, not how large its records are, so ``max_bytes`` can only be
estimated. The estimate of a partition is the mean size of its records in the last batch times the
share of its offsets that were records, and leans to the safe side:

- it rises at once, and falls to no less than a quarter (size) or a half (share) at a time;
- an offset is counted as an eighth of a record at least, and as `LEAST` bytes: so neither a hole
  that compaction left, nor empty records, make a plan without bounds;
- where no record was seen yet it begins at `UNKNOWN`, the broker's default for the largest record
  (``message.max.bytes``): the first batch is small. Each range that turns out to be a hole
  divides it by 8, down to `LEAST_UNKNOWN`;
- a plan takes at most `GROWTH` times as many offsets of a partition as were ever read of it at
  once, so that a few small records do not speak for a million.

So a batch exceeds ``max_bytes`` by the factor by which its records are larger than those of the
batch before, by up to 8 where a hole ends, and in no case has more than ``max_bytes / LEAST``
offsets.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, final

import attrs
from attrs import validators

from kgroup.spark.offset_ranges import OffsetRange
from kgroup.types import INT64_MAX, TopicPartition

UNKNOWN: Final = 2**20
"""Bytes of a record where none was seen."""
LEAST_UNKNOWN: Final = 2**10
"""Bytes of an offset where only holes were seen."""
LEAST: Final = 64
"""Bytes of any offset; a row without key and value takes about as much."""
GROWTH: Final = 8
"""How many times as many offsets as were ever read at once are planned."""
_LEAST_SHARE: Final = 1 / 8
_SIZE_FALL: Final = 1 / 4
_SHARE_FALL: Final = 1 / 2


@final
@attrs.frozen
class Seen:
    """What a range brought.

    Attributes:
        records: rows; fewer than offsets where the log was compacted or a transaction aborted.
        bytes: of their keys and values, and of whatever else the caller counts.
    """

    records: int = attrs.field(validator=validators.ge(0))
    bytes: int = attrs.field(validator=validators.ge(0))


@final
@attrs.frozen
class _Estimate:
    """What is known of one partition."""

    widest: int = 0
    size: float | None = None
    share: float = 1.0
    unknown: int = UNKNOWN

    def after(self, offsets: int, seen: Seen) -> _Estimate:
        share = max(min(1.0, seen.records / offsets), self.share * _SHARE_FALL, _LEAST_SHARE)
        widest = max(self.widest, offsets)
        if not seen.records:
            unknown = min(self.unknown, max(LEAST_UNKNOWN, self.unknown // GROWTH))
            return attrs.evolve(self, widest=widest, share=share, unknown=unknown)
        mean = seen.bytes / seen.records
        size = mean if self.size is None else max(mean, self.size * _SIZE_FALL)
        return attrs.evolve(self, widest=widest, share=share, size=size)

    @property
    def offset_bytes(self) -> int:
        if self.size is None:
            return self.unknown
        return max(LEAST, math.ceil(self.size * self.share))

    @property
    def most(self) -> int:
        return self.widest * GROWTH if self.widest else INT64_MAX


@final
@attrs.frozen
class Sizes:
    """The estimates of all partitions, as a value; `after` makes the next one.

    Attributes:
        unknown: bytes of a record where none was seen. Where rows are never counted (Spark
            Connect), nothing is ever learnt: give the size of the topic's records, or every batch
            stays as small as the first.
    """

    _known: Mapping[TopicPartition, _Estimate] = attrs.field(factory=dict)
    unknown: int = attrs.field(default=UNKNOWN, kw_only=True, validator=validators.ge(LEAST))

    def offset_bytes(self, partition: TopicPartition) -> int:
        """The bytes that one more offset of a partition is counted as, at least `LEAST`."""
        return self._of(partition).offset_bytes

    def most(self, partition: TopicPartition) -> int:
        """The most offsets that may be planned at once where bytes are limited."""
        return self._of(partition).most

    def bytes_of(self, ranges: Iterable[OffsetRange]) -> int:
        """About how many bytes ranges will bring."""
        return sum((part.end - part.start) * self.offset_bytes(_name(part)) for part in ranges)

    def after(self, ranges: Iterable[OffsetRange], seen: Mapping[TopicPartition, Seen]) -> Sizes:
        """What is known after a batch was read.

        Args:
            ranges: the batch's.
            seen: what each partition brought; one that is left out teaches nothing.
        """
        offsets: dict[TopicPartition, int] = {}
        for part in ranges:
            offsets[_name(part)] = offsets.get(_name(part), 0) + part.end - part.start
        known = dict(self._known)
        for name, span in offsets.items():
            if name in seen and span:
                known[name] = self._of(name).after(span, seen[name])
        return attrs.evolve(self, known=known)

    def only(self, partitions: Iterable[TopicPartition]) -> Sizes:
        """What is known of some partitions, the others forgotten."""
        kept = set(partitions)
        known = {name: estimate for name, estimate in self._known.items() if name in kept}
        return attrs.evolve(self, known=known)

    def _of(self, partition: TopicPartition) -> _Estimate:
        return self._known.get(partition) or _Estimate(unknown=self.unknown)


def _name(part: OffsetRange) -> TopicPartition:
    return TopicPartition(part.topic, part.partition)
