"""The judge, one invariant at a time, on histories of a few entries."""

from __future__ import annotations

import pytest

from kgroup.testing.simulation.history import (
    FinalGroupState,
    HandedOut,
    HistoryEntry,
    OffsetStored,
    PartitionsGivenUp,
    PartitionsTaken,
    Processed,
    ProcessFrozen,
    ProcessStarted,
    ProcessThawed,
    TopicChanged,
)
from kgroup.testing.simulation.schemes.judge import INVARIANTS, judge
from kgroup.types import TopicPartition

P = TopicPartition("orders", 0)


def started(process: str) -> ProcessStarted:
    """A program starts."""
    return ProcessStarted(at=0.0, process=process, life=1, group_instance_id=None)


def taken(at: float, process: str, start: int = 0) -> PartitionsTaken:
    """A program takes the partition."""
    return PartitionsTaken(at=at, process=process, life=1, starts={P: start})


def given_up(at: float, process: str) -> PartitionsGivenUp:
    """A program gives it up."""
    return PartitionsGivenUp(at=at, process=process, life=1)


def handed(at: float, process: str, first: int, end: int) -> HandedOut:
    """A program gets records."""
    return HandedOut(
        at=at,
        process=process,
        life=1,
        group_id="group",
        member_id=process,
        generation_id=-1,
        epoch=1,
        partition=P,
        first=first,
        next_offset=end,
    )


def processed(at: float, process: str, offset: int) -> Processed:
    """A program has processed a record."""
    return Processed(at=at, process=process, life=1, partition=P, offset=offset)


def stored(at: float, process: str, offset: int) -> OffsetStored:
    """An offset is stored."""
    return OffsetStored(at=at, process=process, partition=P, offset=offset)


def final(end: int) -> FinalGroupState:
    """The end, with this many records in the partition."""
    return FinalGroupState(at=99.0, group_id="group", stable=True, committed={}, ends={P: end})


BEGIN: list[HistoryEntry] = [
    TopicChanged(at=0.0, topic="orders", partitions=1),
    started("m1"),
    started("m2"),
    taken(1.0, "m1"),
    handed(2.0, "m1", 0, 2),
    processed(3.0, "m1", 0),
]
GOOD: list[HistoryEntry] = [
    stored(4.0, "m1", 1),
    given_up(5.0, "m1"),
    taken(6.0, "m2", 1),
    handed(7.0, "m2", 1, 2),
    processed(8.0, "m2", 1),
    stored(9.0, "m2", 2),
    final(2),
]
BROKEN: dict[int, list[HistoryEntry]] = {
    2: [
        stored(4.0, "m1", 1),
        taken(6.0, "m2", 1),
        handed(7.0, "m2", 1, 2),
        processed(7.5, "m1", 1),
        given_up(7.6, "m1"),
        final(2),
    ],
    4: [stored(4.0, "m1", 1), given_up(5.0, "m1"), taken(6.0, "m2", 1), stored(7.0, "m1", 1)],
    6: [stored(4.0, "m1", 1), given_up(5.0, "m1"), taken(6.0, "m2", 0)],
    7: [stored(4.0, "m1", 2)],
    8: [stored(4.0, "m1", 1), handed(7.0, "m1", 0, 1)],
    12: [given_up(5.0, "m1"), final(1)],
}


def test_a_clean_change_of_owners_breaks_nothing() -> None:
    """One owner after the other, each from the stored offset on."""
    found = judge([*BEGIN, *GOOD])
    assert found.violations == []
    assert (found.processed, found.twice, found.shared) == (2, 0, {})


@pytest.mark.parametrize("number", INVARIANTS)
def test_each_invariant_can_be_broken(number: int) -> None:
    """Each history breaks one invariant, and only that one."""
    assert [one.number for one in judge([*BEGIN, *BROKEN[number]]).violations] == [number]


def test_two_owners_are_timed_until_the_former_one_acts_last() -> None:
    """The time begins when the next owner takes the partition."""
    found = judge([*BEGIN, *BROKEN[2], processed(9.0, "m1", 2)])
    assert found.shared == {P: 3.0}
    assert found.twice == 0


def test_what_a_frozen_program_holds_is_nobodys_fault() -> None:
    """It may process that batch after the thaw; a batch that it gets then is a violation."""
    entries: list[HistoryEntry] = [
        *BEGIN,
        ProcessFrozen(at=3.0, process="m1", life=1),
        taken(6.0, "m2"),
        processed(6.5, "m2", 0),
        ProcessThawed(at=7.0, process="m1", life=1),
        processed(7.1, "m1", 1),
    ]
    assert judge(entries).violations == []
    assert judge(entries).twice == 1
    found = judge([*entries, handed(8.0, "m1", 2, 3)])
    assert [str(one) for one in found.violations] == [
        (
            "invariant 2 broken at 8.000 s: m1 was handed the record at offset 2 of orders-0, which"
            " m2 has taken"
        )
    ]
