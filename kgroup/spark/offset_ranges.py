"""Ranges of offsets: what a batch reads, as values, and how they are shared out to tasks.

Pure. Imported by executors: nothing heavy is imported here.

Left to others: which ranges a batch has (``kgroup.spark.planning``), and reading them
(``kgroup.spark.range_reader``).

INVARIANT: splitting and packing lose no offset and give none twice.
"""

from __future__ import annotations

import hashlib
import heapq
import json
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import Final, final

import attrs
from attrs import validators

from kgroup import arguments, bounds
from kgroup.errors import UsageError
from kgroup.types import INT32_MAX, INT64_MAX, TopicPartition, topic_fault

SMALLEST_PIECE: Final = 1000
"""Offsets. A smaller range is not split for more tasks: starting one costs more than reading it."""


MOST_PIECES: Final = 1_000_000
"""Pieces that ranges are cut into; each is an object on the driver."""
PARALLELISM: Final = bounds.optional(bounds.whole(1, 100_000))
"""How many tasks a frame may have; Spark keeps something of each on the driver."""
_SPAN: Final = bounds.optional(bounds.whole(1, INT64_MAX))


def _topic(_: object, attribute: attrs.Attribute[str], value: object) -> None:
    if fault := topic_fault(value):
        raise ValueError(f"{attribute.name}={value!r:.100} is refused: it {fault}")


_Check = Callable[[object, "attrs.Attribute[int]", int], None]


def _whole(most: int) -> _Check:
    return validators.and_(
        validators.instance_of(int),
        validators.not_(validators.instance_of(bool)),
        validators.ge(0),
        validators.le(most),
    )


def _not_before_start(part: OffsetRange, _: attrs.Attribute[int], value: int) -> None:
    if value < part.start:
        raise ValueError(f"end={value} is refused: the range starts at {part.start}")


@final
@attrs.frozen(order=True)
class OffsetRange:
    """Offsets of one partition, from `start` to just before `end`; sorts by partition, then start.

    Raises:
        TypeError | ValueError: a value that no partition could have; it names the field.
    """

    topic: str = attrs.field(validator=_topic)
    partition: int = attrs.field(validator=_whole(INT32_MAX))
    start: int = attrs.field(validator=_whole(INT64_MAX))
    end: int = attrs.field(validator=[_whole(INT64_MAX), _not_before_start])

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that it is of."""
        return TopicPartition(self.topic, self.partition)

    @property
    def offsets(self) -> int:
        """How many offsets it spans: the most records that it can hold."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}[{self.start}:{self.end}]"


def batch_id(group_id: str, ranges: Iterable[OffsetRange]) -> str:
    """A name for what a batch reads: 32 hexadecimal digits, the same for the same ranges.

    Their order does not matter, and empty ones do not count. A sink that remembers it can tell a
    batch that it has.
    """
    told = [[r.topic, r.partition, r.start, r.end] for r in sorted(ranges) if r.offsets]
    return hashlib.sha256(json.dumps([group_id, told]).encode()).hexdigest()[:32]


def in_order(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Those that are not empty, sorted.

    Raises:
        ArgumentError: these are no ranges.
        UsageError: two overlap, so that records would come twice.
    """
    given = arguments.listed("ranges", ranges, OffsetRange)
    ordered = tuple(sorted(r for r in given if r.offsets))
    for one, other in pairwise(ordered):
        if one.topic_partition == other.topic_partition and other.start < one.end:
            raise UsageError(
                f"{one} and {other} overlap: their records would be read twice; give each offset"
                " to one range"
            )
    return ordered


def merged(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """Ranges with those that touch made one.

    Raises:
        UsageError: two overlap.
    """
    whole: list[OffsetRange] = []
    for part in in_order(ranges):
        if (
            whole
            and part.start == whole[-1].end
            and part.topic_partition == whole[-1].topic_partition
        ):
            whole[-1] = attrs.evolve(whole[-1], end=part.end)
        else:
            whole.append(part)
    return tuple(whole)


def split(
    ranges: Iterable[OffsetRange],
    *,
    max_span: int | None = None,
    parallelism: int | None = None,
) -> tuple[OffsetRange, ...]:
    """Cut ranges into pieces of about the same size, so that a hot partition uses many tasks.

    Args:
        ranges: what is read.
        max_span: the most offsets of a piece.
        parallelism: how many tasks can run at once: a range with more than an equal share of all
            offsets is cut, but to no pieces smaller than ``SMALLEST_PIECE``.

    Returns:
        The pieces, sorted; none is empty.

    Raises:
        UsageError: two ranges overlap, or there would be more than ``MOST_PIECES``.
        ConfigError: a limit is not allowed.
    """
    _SPAN.check("max_span", max_span)
    PARALLELISM.check("parallelism", parallelism)
    ordered = in_order(ranges)
    span = INT64_MAX if max_span is None else max_span
    if parallelism is not None:
        share = -(-sum(r.offsets for r in ordered) // parallelism)
        span = min(span, max(share, SMALLEST_PIECE))
    pieces = sum(-(-r.offsets // span) for r in ordered)
    if pieces > MOST_PIECES:
        raise UsageError(
            f"max_span={max_span} would cut the ranges into {pieces} pieces, more than"
            f" {MOST_PIECES}: use a larger max_span, or fewer offsets at a time"
        )
    return tuple(piece for r in ordered for piece in _cut(r, -(-r.offsets // span)))


def _cut(whole: OffsetRange, pieces: int) -> Iterable[OffsetRange]:
    cuts = [whole.start + whole.offsets * number // pieces for number in range(pieces + 1)]
    return (attrs.evolve(whole, start=a, end=b) for a, b in pairwise(cuts))


def pack(pieces: Sequence[OffsetRange], tasks: int) -> tuple[tuple[OffsetRange, ...], ...]:
    """Share pieces out to at most so many tasks of about the same number of offsets.

    Each task's are sorted; no task is empty.
    """
    loads: list[tuple[int, int]] = [(0, number) for number in range(min(tasks, len(pieces)))]
    shares: list[list[OffsetRange]] = [[] for _ in loads]
    for piece in sorted(pieces, key=lambda piece: (-piece.offsets, piece)):
        load, number = loads[0]
        shares[number].append(piece)
        heapq.heapreplace(loads, (load + piece.offsets, number))
    return tuple(tuple(sorted(share)) for share in shares)
