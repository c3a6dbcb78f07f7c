"""Ranges of offsets as values, and how they are split and divided among tasks.

No I/O. Executors import this module, so it imports nothing heavy.

INVARIANT: splitting and packing neither lose an offset nor repeat one.
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

MIN_PIECE: Final = 1000
"""Offsets of the smallest piece: starting a task for a smaller one costs more than reading it."""
MAX_PIECES: Final = 1_000_000
"""The most pieces that ranges are split into; each is an object on the driver."""
PARALLELISM: Final = bounds.optional(bounds.whole(1, 100_000))
"""How many tasks a frame may have; the driver keeps state for each of them."""
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
    """Offsets of one partition, from `start` up to, not including, `end`.

    Ranges sort by partition, then by start.

    Raises:
        TypeError | ValueError: a value that no partition can have; the text names the field.
    """

    topic: str = attrs.field(validator=_topic)
    partition: int = attrs.field(validator=_whole(INT32_MAX))
    start: int = attrs.field(validator=_whole(INT64_MAX))
    end: int = attrs.field(validator=[_whole(INT64_MAX), _not_before_start])

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition of the range."""
        return TopicPartition(self.topic, self.partition)

    @property
    def offsets(self) -> int:
        """How many offsets it spans: the most records that it can hold."""
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}[{self.start}:{self.end}]"


def batch_id(group_id: str, ranges: Iterable[OffsetRange]) -> str:
    """The id of a batch: 32 hexadecimal digits, the same for the same group and ranges.

    The order of the ranges does not matter, and empty ones do not count. A sink that stores the
    ids of its batches can recognise a batch that it already has.
    """
    parts = [[r.topic, r.partition, r.start, r.end] for r in sorted(ranges) if r.offsets]
    return hashlib.sha256(json.dumps([group_id, parts]).encode()).hexdigest()[:32]


def in_order(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """The ranges that are not empty, sorted.

    Raises:
        ArgumentError: the argument is not an iterable of ranges.
        UsageError: two ranges overlap, so that records would be read twice.
    """
    given = arguments.listed("ranges", ranges, OffsetRange)
    ordered = tuple(sorted(r for r in given if r.offsets))
    for one, other in pairwise(ordered):
        if one.topic_partition == other.topic_partition and other.start < one.end:
            raise UsageError(
                f"the ranges {one} and {other} overlap, so that records would be read twice; each"
                " offset must be in one range only"
            )
    return ordered


def merged(ranges: Iterable[OffsetRange]) -> tuple[OffsetRange, ...]:
    """The ranges, sorted, with adjacent ranges joined.

    Raises:
        UsageError: two ranges overlap.
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
    """Split ranges into pieces of about the same size, so that a hot partition uses many tasks.

    Args:
        ranges: the ranges to read.
        max_span: the most offsets of a piece.
        parallelism: how many tasks can run at once. A range with more than an equal share of all
            offsets is split, but not into pieces smaller than ``MIN_PIECE``.

    Returns:
        The pieces, sorted; none is empty.

    Raises:
        UsageError: two ranges overlap, or there would be more than ``MAX_PIECES`` pieces.
        ConfigError: a limit is not allowed.
    """
    _SPAN.check("max_span", max_span)
    PARALLELISM.check("parallelism", parallelism)
    ordered = in_order(ranges)
    span = INT64_MAX if max_span is None else max_span
    if parallelism is not None:
        share = -(-sum(r.offsets for r in ordered) // parallelism)
        span = min(span, max(share, MIN_PIECE))
    pieces = sum(-(-r.offsets // span) for r in ordered)
    if pieces > MAX_PIECES:
        raise UsageError(
            f"max_span={max_span} would split the ranges into {pieces} pieces, but at most"
            f" {MAX_PIECES} are allowed; use a larger max_span, or fewer offsets at a time"
        )
    return tuple(piece for r in ordered for piece in _cut(r, -(-r.offsets // span)))


def _cut(whole: OffsetRange, pieces: int) -> Iterable[OffsetRange]:
    cuts = [whole.start + whole.offsets * number // pieces for number in range(pieces + 1)]
    return (attrs.evolve(whole, start=a, end=b) for a, b in pairwise(cuts))


def pack(pieces: Sequence[OffsetRange], tasks: int) -> tuple[tuple[OffsetRange, ...], ...]:
    """Divide pieces among at most so many tasks, with about the same number of offsets each.

    The pieces of each task are sorted; no task is empty.
    """
    loads: list[tuple[int, int]] = [(0, number) for number in range(min(tasks, len(pieces)))]
    shares: list[list[OffsetRange]] = [[] for _ in loads]
    for piece in sorted(pieces, key=lambda piece: (-piece.offsets, piece)):
        load, number = loads[0]
        shares[number].append(piece)
        heapq.heapreplace(loads, (load + piece.offsets, number))
    return tuple(tuple(sorted(share)) for share in shares)
