"""Estimates of bytes: slow start, quick to rise and slow to fall, bounded where logs have holes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.spark.batch_limits import Budget
from kgroup.spark.offset_ranges import OffsetRange
from kgroup.spark.planning import plan_batch
from kgroup.spark.size_estimates import (
    GROWTH,
    LEAST,
    MIN_UNKNOWN_BYTES,
    UNKNOWN_BYTES,
    ReadCounts,
    SizeEstimates,
)
from kgroup.types import INT64_MAX, TopicPartition

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def read(sizes: SizeEstimates, offsets: int, records: int, size: int) -> SizeEstimates:
    """The estimates after one range of partition 0 was read."""
    return sizes.after([OffsetRange("t", 0, 0, offsets)], {P0: ReadCounts(records, size)})


def test_an_unknown_partition_is_counted_as_the_largest_records() -> None:
    """The first piece has few records, whatever their size."""
    assert SizeEstimates().offset_bytes(P0) == UNKNOWN_BYTES
    assert SizeEstimates().max_offsets(P0) == INT64_MAX
    assert (
        plan_batch({P0: 0}, {P0: 10**6}, Budget(None, 64 * UNKNOWN_BYTES), SizeEstimates()).offsets
        == 64
    )


def test_records_whose_size_is_known_need_no_slow_start() -> None:
    """The given size applies until a record was read."""
    sizes = SizeEstimates(unknown=500)
    assert plan_batch({P0: 0}, {P0: 10**6}, Budget(None, 50_000), sizes).offsets == 100
    assert read(sizes, 10, 10, 20_000).offset_bytes(P0) == 2000
    assert read(sizes, 10, 0, 0).offset_bytes(P0) == 500
    with pytest.raises(ValueError, match="unknown"):
        SizeEstimates(unknown=LEAST - 1)


def test_what_is_learnt_is_each_partition_s_own() -> None:
    """Other partitions stay unknown, and the earlier estimates object is unchanged."""
    before = SizeEstimates()
    sizes = read(before, 10, 10, 5000)
    assert sizes.offset_bytes(P0) == 500
    assert sizes.offset_bytes(P1) == before.offset_bytes(P0) == UNKNOWN_BYTES
    assert sizes.estimated_bytes([OffsetRange("t", 0, 90, 100), OffsetRange("t", 1, 0, 2)]) == (
        5000 + 2 * UNKNOWN_BYTES
    )


def test_the_pieces_of_a_range_are_one() -> None:
    """A split range gives the same estimate as the whole range."""
    pieces = [OffsetRange("t", 0, 0, 4), OffsetRange("t", 0, 4, 10)]
    assert SizeEstimates().after(pieces, {P0: ReadCounts(10, 5000)}) == read(
        SizeEstimates(), 10, 10, 5000
    )


def test_an_estimate_rises_at_once_and_falls_by_a_quarter() -> None:
    """A batch of large records counts at once; one of small records counts in part."""
    sizes = read(read(SizeEstimates(), 100, 100, 10_000), 1, 1, 8000)
    assert sizes.offset_bytes(P0) == 8000
    sizes = read(sizes, 1, 1, 100)
    assert sizes.offset_bytes(P0) == 2000
    sizes = read(sizes, 1, 1, 1000)
    assert sizes.offset_bytes(P0) == 1000


def test_holes_make_offsets_cheaper_but_not_for_nothing() -> None:
    """A plan that reads the dense part behind a hole has at most 8 times the planned bytes."""
    sizes = read(SizeEstimates(), 100, 100, 100_000)
    estimates = []
    for _ in range(5):
        sizes = read(sizes, 100, 0, 0)
        estimates.append(sizes.offset_bytes(P0))
    assert estimates == [500, 250, 125, 125, 125]
    assert read(sizes, 100, 100, 100_000).offset_bytes(P0) == 1000


def test_a_log_that_begins_with_a_hole_is_got_through() -> None:
    """Each hole makes the next range wider, up to a bound."""
    sizes, estimates = SizeEstimates(), []
    for _ in range(5):
        sizes = read(sizes, 1000, 0, 0)
        estimates.append(sizes.offset_bytes(P0))
    assert estimates == [
        UNKNOWN_BYTES // 8,
        UNKNOWN_BYTES // 64,
        UNKNOWN_BYTES // 512,
        MIN_UNKNOWN_BYTES,
        MIN_UNKNOWN_BYTES,
    ]


def test_empty_records_are_counted_as_rows() -> None:
    """Tombstones without a key have no bytes, but each still has a cost."""
    assert read(SizeEstimates(), 100, 100, 0).offset_bytes(P0) == LEAST


def test_a_few_small_records_do_not_speak_for_a_million() -> None:
    """A plan grows by a bounded factor; a limit of records alone is not bounded so."""
    sizes = read(SizeEstimates(), 5, 5, 50)
    assert plan_batch({P0: 5}, {P0: 10**6}, Budget(None, 10**9), sizes).offsets == 5 * GROWTH
    assert plan_batch({P0: 5}, {P0: 10**6}, Budget(10**5, None), sizes).offsets == 10**5
    assert read(sizes, 1, 1, 10).max_offsets(P0) == 5 * GROWTH


def test_what_is_left_out_teaches_nothing() -> None:
    """Partitions without counts keep their estimate."""
    sizes = SizeEstimates().after([OffsetRange("t", 0, 0, 10)], {})
    assert sizes == SizeEstimates()
    assert (
        read(SizeEstimates(), 10, 10, 100).after([], {P0: ReadCounts(9, 10**9)}).offset_bytes(P0)
        == LEAST
    )


@pytest.mark.parametrize(("records", "size"), [(-1, 0), (0, -1)])
def test_negative_counts_are_refused(records: int, size: int) -> None:
    """The error names the counter."""
    with pytest.raises(ValueError, match="must be >= 0"):
        ReadCounts(records, size)


@given(
    records=st.lists(st.integers(1, 50_000), min_size=1, max_size=8),
    limit=st.integers(10_000, 1_000_000),
)
def test_a_batch_exceeds_by_the_jump_of_its_sizes_only(records: list[int], limit: int) -> None:
    """A batch exceeds its limit by at most the growth of record size, or by a factor of 64."""
    sizes, position, last = SizeEstimates(), 0, UNKNOWN_BYTES
    for size in records:
        planned = plan_batch({P0: position}, {P0: 10**9}, Budget(None, limit), sizes)
        (part,) = planned.ranges
        brought = planned.offsets * size
        assert brought <= max(limit * max(1.0, size / max(last, LEAST)), size)
        sizes = sizes.after(planned.ranges, {P0: ReadCounts(planned.offsets, brought)})
        position, last = part.end, size
