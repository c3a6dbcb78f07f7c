"""Offset ranges: their values and ids, and how they are distributed to tasks."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.errors import UsageError
from kgroup.spark.offset_ranges import (
    MIN_PIECE,
    OffsetRange,
    batch_id,
    in_order,
    merged,
    pack,
    split,
)
from kgroup.types import INT64_MAX, TopicPartition


@st.composite
def disjoint(draw: st.DrawFn) -> list[OffsetRange]:
    """Ranges of a few partitions without overlaps, in any order; some are empty or adjacent."""
    found = []
    for topic, number in (("a", 0), ("a", 1), ("b", 0)):
        at = draw(st.integers(0, 100))
        for gap, span in draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 5000)))):
            found.append(OffsetRange(topic, number, at + gap, at + gap + span))
            at += gap + span
    draw(st.randoms(use_true_random=False)).shuffle(found)
    return found


def covered(ranges: Iterable[OffsetRange]) -> list[tuple[str, int, int, int]]:
    """The offsets that ranges cover, however they are split."""
    return [(part.topic, part.partition, part.start, part.end) for part in merged(ranges)]


@pytest.mark.parametrize(
    ("values", "named"),
    [
        (("a b", 0, 0, 1), "topic"),
        (("", 0, 0, 1), "topic"),
        ((b"t", 0, 0, 1), "topic"),
        (("t", -1, 0, 1), "partition"),
        (("t", True, 0, 1), "partition"),
        (("t", 2**31, 0, 1), "partition"),
        (("t", 0, -2, 1), "start"),
        (("t", 0, 0.0, 1), "start"),
        (("t", 0, 2, 1), "end"),
        (("t", 0, 0, INT64_MAX + 1), "end"),
    ],
)
def test_an_impossible_value_is_refused_by_name(values: tuple[Any, ...], named: str) -> None:
    """The error is raised when the range is made, and names the field."""
    with pytest.raises((TypeError, ValueError), match=named):
        OffsetRange(*values)


def test_a_range_has_a_partition_a_span_and_a_text() -> None:
    """The end is exclusive, and the text names partition and bounds."""
    part = OffsetRange("orders", 3, 10, 15)
    assert part.topic_partition == TopicPartition("orders", 3)
    assert part.offsets == 5
    assert str(part) == "orders-3[10:15]"


@given(disjoint(), st.integers())
def test_the_same_ranges_have_the_same_id(ranges: list[OffsetRange], seed: int) -> None:
    """Order and empty ranges do not change the id; the group and every bound do."""
    shuffled = [*ranges, OffsetRange("a", 9, 5, 5)]
    random.Random(seed).shuffle(shuffled)
    assert batch_id("g", shuffled) == batch_id("g", ranges)
    assert batch_id("h", ranges) != batch_id("g", ranges)
    assert batch_id("g", [*ranges, OffsetRange("c", 0, 0, 1)]) != batch_id("g", ranges)


def test_ids_stay_as_they_are() -> None:
    """Sinks store ids, so that a release must not change them."""
    assert batch_id("g", [OffsetRange("t", 0, 1, 2)]) == "a6e817110f4eb27ec42eb77554ed6197"


def test_overlapping_ranges_are_refused() -> None:
    """The error names two ranges that share an offset; adjacent ranges are accepted."""
    with pytest.raises(UsageError, match=r"t-0\[0:5\] and t-0\[4:6\] overlap"):
        in_order([OffsetRange("t", 0, 4, 6), OffsetRange("t", 0, 0, 5)])
    touching = (OffsetRange("t", 0, 0, 4), OffsetRange("t", 0, 4, 6))
    assert in_order(reversed(touching)) == touching
    assert merged(touching) == (OffsetRange("t", 0, 0, 6),)


@given(disjoint(), st.none() | st.integers(1, 2000), st.none() | st.integers(1, 50))
def test_splitting_loses_and_repeats_nothing(
    ranges: list[OffsetRange], max_span: int | None, parallelism: int | None
) -> None:
    """The pieces cover exactly the ranges; none is empty or wider than allowed."""
    pieces = split(ranges, max_span=max_span, parallelism=parallelism)
    assert covered(in_order(pieces)) == covered(ranges)
    assert all(0 < piece.offsets <= (max_span or INT64_MAX) for piece in pieces)


def test_a_hot_partition_is_read_by_many_tasks() -> None:
    """One large range becomes as many pieces as there are cores, of similar size."""
    spans = [piece.offsets for piece in split([OffsetRange("t", 0, 7, 100_007)], parallelism=8)]
    assert spans == [12_500] * 8


def test_a_small_range_is_not_cut_for_more_tasks() -> None:
    """Pieces for parallelism have a minimum size."""
    small = OffsetRange("t", 0, 0, MIN_PIECE)
    assert split([small], parallelism=100) == (small,)


@pytest.mark.parametrize("limits", [{"max_span": 0}, {"parallelism": 0}])
def test_a_limit_below_one_is_refused(limits: dict[str, int]) -> None:
    """The error names the limit."""
    with pytest.raises(UsageError, match=next(iter(limits))):
        split([], **limits)


@given(disjoint(), st.integers(1, 8))
def test_packing_loses_and_repeats_nothing(ranges: list[OffsetRange], tasks: int) -> None:
    """Every piece is in one task; no task is empty or has far more than its share."""
    pieces = in_order(ranges)
    shares = pack(pieces, tasks)
    assert sorted(piece for share in shares for piece in share) == list(pieces)
    assert all(share == tuple(sorted(share)) and share for share in shares)
    assert len(shares) == min(tasks, len(pieces))
    if pieces:
        loads = [sum(piece.offsets for piece in share) for share in shares]
        assert max(loads) - min(loads) <= max(piece.offsets for piece in pieces)
