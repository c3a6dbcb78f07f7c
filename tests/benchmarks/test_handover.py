"""The judge of hand-overs finds gaps and faults in journals, and leaves none out."""

from __future__ import annotations

import pytest

from benchmarks.handover.judge import (
    Faults,
    Gap,
    Record,
    after_waking,
    faults_of,
    gaps_of,
    longest,
    read_journal,
    unread,
    window_of,
)

ENDS = {0: 3}


def read(*lines: tuple[int, float, float]) -> list[Record]:
    """Records of partition 0: offset, sent, done."""
    return [Record(0, offset, sent, done) for offset, sent, done in lines]


def test_half_a_line_is_no_record() -> None:
    """The last line of a killed worker may be incomplete and is left out."""
    assert read_journal("0 7 1.5 2.5\n0 8 1.6") == [Record(0, 7, 1.5, 2.5)]


def test_a_gap_begins_with_a_backlog() -> None:
    """A wait without records is no gap; one begins when a record comes or the last one was done."""
    records = read((0, 1.0, 1.1), (1, 5.0, 5.5), (2, 5.1, 7.0))
    assert gaps_of(records, ENDS, 9.0) == [Gap(0, 1.0, 1.1), Gap(0, 5.0, 5.5), Gap(0, 5.5, 7.0)]


def test_a_gap_without_an_end_counts_until_the_end() -> None:
    """A partition that is never read again, or never at all, does not look good."""
    ends = {0: 2, 1: 1}
    gaps = gaps_of(read((0, 1.0, 1.5)), ends, 9.0)
    assert gaps == [Gap(0, 1.0, 1.5), Gap(0, 1.5, 9.0), Gap(1, 1.0, 9.0)]
    assert unread(read((0, 1.0, 1.5)), ends) == 2


@pytest.mark.parametrize(
    ("began", "ended", "window"), [(1.0, 2.0, -1), (11.0, 12.0, 0), (19.9, 23.0, 1), (9.0, 35.0, 0)]
)
def test_a_gap_belongs_to_one_window(began: float, ended: float, window: int) -> None:
    """It is the window that contains most of the gap, and the first of several such windows."""
    assert window_of(Gap(0, began, ended), [10.0, 20.0, 30.0]) == window


def test_the_longest_gap_of_each_partition_counts() -> None:
    """Each window has one figure for each partition."""
    gaps = [Gap(0, 1.0, 1.5), Gap(0, 2.0, 2.75), Gap(1, 3.0, 3.25), Gap(0, 11.0, 12.0)]
    assert longest(gaps, [0.0, 10.0]) == [{0: 0.75, 1: 0.25}, {0: 1.0}]


def test_a_lost_record_counts_when_it_is_passed_over() -> None:
    """A hole in the offsets belongs to the window in which the next offset was processed."""
    journals = [read((0, 1.0, 1.1), (3, 12.0, 12.1))]
    assert faults_of(journals, [0.0, 10.0]) == [Faults(), Faults(lost=2)]


def test_a_record_of_two_workers_counts_twice() -> None:
    """A repeat belongs to the later of the two; the worker itself did not go back."""
    journals = [read((0, 1.0, 1.1), (1, 1.0, 12.0)), read((1, 1.0, 2.0))]
    assert faults_of(journals, [0.0, 10.0]) == [Faults(), Faults(twice=1)]


def test_a_worker_that_goes_back_is_noticed() -> None:
    """Within one worker, a partition's offsets must rise."""
    journals = [read((1, 1.0, 1.1), (0, 1.0, 1.2))]
    assert faults_of(journals, [0.0]) == [Faults(back=1)]


def test_only_what_another_member_processed_counts_after_waking() -> None:
    """Records before the freeze, and records that stay its own, are none of a zombie's."""
    frozen = read((0, 1.0, 1.1), (1, 1.0, 9.0), (2, 1.0, 9.0))
    assert after_waking(frozen, read((0, 1.0, 5.0), (1, 1.0, 5.0)), 8.0) == 1
