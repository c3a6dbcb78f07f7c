"""The limits of records that are fetched and not yet handed out."""

from __future__ import annotations

import pytest

from kgroup.records.buffer import FULL, LIBRDKAFKA_PART, BufferLimits


@pytest.mark.parametrize(("records", "size"), [(120, 10**9), (10**9, 120)])
def test_either_bound_stops_and_both_must_be_low_again(records: int, size: int) -> None:
    """Fetching stops at a quarter of either bound, and resumes when half of that is gone."""
    limits = BufferLimits(records, size)
    limits.count_delivered(29, 29)
    assert not limits.is_full()
    limits.count_delivered(1, 1)
    assert limits.is_full()
    limits.count_removed(14, 14)
    assert not limits.is_full()
    assert not limits.is_low()
    limits.count_removed(1, 1)
    assert limits.is_low()
    assert (limits.records, limits.bytes) == (15, 15)


def test_the_parts_add_up_to_the_buffer() -> None:
    """librdkafka's queue and twice ``FULL`` are the whole buffer."""
    assert LIBRDKAFKA_PART + 2 * FULL == 1


def test_shares() -> None:
    """A partition's share is an equal part of ``FULL``; a quarter of the share is far below it."""
    limits = BufferLimits(120, 120)  # fetching stops at 30
    assert limits.over_share(15, 0, 2)
    assert limits.over_share(0, 15, 2)
    assert not limits.over_share(14, 14, 2)
    assert limits.far_below_share(3, 3, 2)
    assert not limits.far_below_share(4, 0, 2)
    assert "30" not in repr(limits)


def test_the_smallest_buffer_takes_one_record() -> None:
    """A buffer for a single record accepts one."""
    limits = BufferLimits(1, 1024)
    assert not limits.is_full()
    limits.count_delivered(1, 10)
    assert limits.is_full()
    assert not limits.is_low()
    limits.count_removed(1, 10)
    assert limits.is_low()
