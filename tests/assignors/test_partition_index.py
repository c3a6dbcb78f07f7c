"""Partitions on one line, and shares of it."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.assignors.partition_index import MemberPartitions, PartitionIndex, mark, unmarked
from kgroup.types import TopicPartition

LAYOUT = PartitionIndex({"b": 2, "none": 0, "a": 3})
ALL = [
    TopicPartition("b", 0),
    TopicPartition("b", 1),
    TopicPartition("a", 0),
    TopicPartition("a", 1),
    TopicPartition("a", 2),
]


def test_topics_stand_in_the_order_given() -> None:
    """Each topic has its place, its span, and each index its topic and number."""
    assert LAYOUT.places == {"b": 0, "none": 1, "a": 2}
    assert [LAYOUT.span(place) for place in range(3)] == [range(2), range(2, 2), range(2, 5)]
    assert len(LAYOUT) == 5
    assert (
        list(LAYOUT.topic_of) == [LAYOUT.place_of(index) for index in range(5)] == [0, 0, 2, 2, 2]
    )
    assert list(LAYOUT.number_of) == [0, 1, 0, 1, 2]
    assert LAYOUT.by_number([4, 3, 1, 2, 0]) == [0, 2, 1, 3, 4]


@given(st.sets(st.integers(0, 4)) | st.builds(range, st.integers(0, 4), st.just(5), st.just(2)))
def test_a_share_is_a_sequence_of_partitions(indexes: set[int] | range) -> None:
    """A share has a length, items, slices, an order and equals what lists the same."""
    some = indexes if isinstance(indexes, range) else array("i", sorted(indexes))
    share = MemberPartitions(LAYOUT, some)
    listed = [ALL[index] for index in some]
    assert list(share) == listed
    assert [share[at] for at in range(len(share))] == listed
    assert share[1:] == tuple(listed[1:])
    assert share == listed
    assert share == tuple(listed)
    assert hash(share) == hash(tuple(listed))
    assert share != [*listed, ALL[0]]
    assert share != 7
    assert all(partition in share for partition in listed)
    assert {LAYOUT.names[place] for place, _ in share.runs()} == {p.topic for p in listed}


def test_a_share_can_be_made_of_hands() -> None:
    """One hand is taken as it is, several are put in order, none is nothing."""
    assert MemberPartitions.of(LAYOUT, [(), range(1, 5, 2)]).indexes == range(1, 5, 2)
    assert list(MemberPartitions.of(LAYOUT, [(4,), [2, 3]]).indexes) == [2, 3, 4]
    assert len(MemberPartitions.of(LAYOUT, [])) == 0


def test_a_long_share_is_shown_short() -> None:
    """A repr names the first partitions and counts all."""
    assert repr(MemberPartitions(LAYOUT, range(2))) == "<MemberPartitions of 2: b-0, b-1>"
    long = MemberPartitions(PartitionIndex({"t": 9}), range(9))
    assert repr(long) == "<MemberPartitions of 9: t-0, t-1, t-2, t-3, t-4, ...>"


@pytest.mark.parametrize("indexes", [range(1, 5, 3), [1, 4]])
def test_marks(indexes: range | list[int]) -> None:
    """What is marked is missing from what is not."""
    marks = bytearray(5)
    mark(marks, indexes)
    assert unmarked(marks) == [0, 2, 3]
