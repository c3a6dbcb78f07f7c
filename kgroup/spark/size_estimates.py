"""Estimates how many bytes an offset will bring, from what was read before.

Kafka reports where a partition ends, but not how large its records are, so ``max_bytes`` can only
be estimated. The estimate of a partition is the mean size of its records in the last batch times
the fraction of its offsets that were records. It errs on the safe side:

- it rises at once, but falls to no less than a quarter (size) or a half (fraction) at a time;
- an offset counts as at least an eighth of a record, and as at least `LEAST` bytes, so that a hole
  left by compaction, or empty records, do not lead to a plan without bounds;
- before the first record it is `UNKNOWN_BYTES`, the broker's default for the largest record
  (``message.max.bytes``), so that the first batch is small; each range that has no record divides
  it by 8, down to `MIN_UNKNOWN_BYTES`;
- a plan has at most `GROWTH` times as many offsets of a partition as were ever read of it at once,
  so that a few small records are not taken as the measure of a million.

So a batch exceeds ``max_bytes`` by the factor by which its records are larger than those of the
previous batch, by up to 8 where a hole ends; it never has more than ``max_bytes / LEAST`` offsets.

Executors import this module too: ``consumer_pool`` chooses the size of its fetches by it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final, final

import attrs
from attrs import validators

from kgroup.spark.offset_ranges import OffsetRange
from kgroup.types import INT64_MAX, TopicPartition

UNKNOWN_BYTES: Final = 2**20
"""The assumed bytes of a record of a partition of which none was read yet."""
MIN_UNKNOWN_BYTES: Final = 2**10
"""The least that this falls to while only holes are read."""
LEAST: Final = 64
"""The least bytes of an offset; a row without key and value takes about as much."""
GROWTH: Final = 8
"""A plan has at most so many times the offsets of a partition that were ever read at once."""
_LEAST_SHARE: Final = 1 / 8
_SIZE_FALL: Final = 1 / 4
_SHARE_FALL: Final = 1 / 2


@final
@attrs.frozen
class ReadCounts:
    """How much was read of a range.

    Attributes:
        records: rows; fewer than offsets if the log was compacted or a transaction was aborted.
        bytes: the bytes of their values, and about those of their keys and headers.
    """

    records: int = attrs.field(validator=validators.ge(0))
    bytes: int = attrs.field(validator=validators.ge(0))


@final
@attrs.frozen
class _Estimate:
    """The estimate of one partition."""

    widest: int = 0
    size: float | None = None
    share: float = 1.0
    unknown: int = UNKNOWN_BYTES

    def after(self, offsets: int, seen: ReadCounts) -> _Estimate:
        share = max(min(1.0, seen.records / offsets), self.share * _SHARE_FALL, _LEAST_SHARE)
        widest = max(self.widest, offsets)
        if not seen.records:
            unknown = min(self.unknown, max(MIN_UNKNOWN_BYTES, self.unknown // GROWTH))
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
    def max_offsets(self) -> int:
        return self.widest * GROWTH if self.widest else INT64_MAX


@final
@attrs.frozen
class SizeEstimates:
    """The estimates of all partitions, as an immutable value.

    Attributes:
        unknown: the assumed bytes of a record of a partition of which none was read. If the reader
            does not count (Spark Connect), the estimate never changes: set it to the size of the
            topic's records, or every batch stays as small as the first.
    """

    _known: Mapping[TopicPartition, _Estimate] = attrs.field(factory=dict)
    unknown: int = attrs.field(default=UNKNOWN_BYTES, kw_only=True, validator=validators.ge(LEAST))

    def offset_bytes(self, partition: TopicPartition) -> int:
        """The estimated bytes of one offset of a partition, at least `LEAST`."""
        return self._of(partition).offset_bytes

    def max_offsets(self, partition: TopicPartition) -> int:
        """The most offsets that may be planned at once if bytes are limited."""
        return self._of(partition).max_offsets

    def estimated_bytes(self, ranges: Iterable[OffsetRange]) -> int:
        """The estimated bytes of ranges."""
        return sum((part.end - part.start) * self.offset_bytes(_name(part)) for part in ranges)

    def after(
        self, ranges: Iterable[OffsetRange], counts: Mapping[TopicPartition, ReadCounts]
    ) -> SizeEstimates:
        """The estimates after ranges were read.

        Args:
            ranges: the ranges.
            counts: how much was read of each partition; one that is missing keeps its estimate.
        """
        offsets: dict[TopicPartition, int] = {}
        for part in ranges:
            offsets[_name(part)] = offsets.get(_name(part), 0) + part.end - part.start
        known = dict(self._known)
        for name, span in offsets.items():
            if name in counts and span:
                known[name] = self._of(name).after(span, counts[name])
        return attrs.evolve(self, known=known)

    def _of(self, partition: TopicPartition) -> _Estimate:
        return self._known.get(partition) or _Estimate(unknown=self.unknown)


def _name(part: OffsetRange) -> TopicPartition:
    return TopicPartition(part.topic, part.partition)
