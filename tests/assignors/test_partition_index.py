"""Partitions as integers, and the order of members and topics."""

from __future__ import annotations

from array import array

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.assignors.partition_index import (
    MemberPartitions,
    PartitionIndex,
    java_sort_key,
    mark,
    static_members_first,
    subscriptions_of,
    unmarked,
)
from kgroup.types import MemberSubscription, TopicInfo, TopicPartition

INDEX = PartitionIndex({"b": 2, "none": 0, "a": 3})
ALL = [
    TopicPartition("b", 0),
    TopicPartition("b", 1),
    TopicPartition("a", 0),
    TopicPartition("a", 1),
    TopicPartition("a", 2),
]


def test_topics_stand_in_the_order_given() -> None:
    """Each topic has a place and a span of indexes; each index has its topic and number."""
    assert INDEX.places == {"b": 0, "none": 1, "a": 2}
    assert [INDEX.span(place) for place in range(3)] == [range(2), range(2, 2), range(2, 5)]
    assert len(INDEX) == 5
    assert list(INDEX.topic_of) == [INDEX.place_of(index) for index in range(5)] == [0, 0, 2, 2, 2]
    assert list(INDEX.number_of) == [0, 1, 0, 1, 2]
    assert INDEX.by_number([4, 3, 1, 2, 0]) == [0, 2, 1, 3, 4]


@given(st.sets(st.integers(0, 4)) | st.builds(range, st.integers(0, 4), st.just(5), st.just(2)))
def test_member_partitions_are_a_sequence(indexes: set[int] | range) -> None:
    """They have a length, items, slices and an order, and equal a list of the same partitions."""
    some = indexes if isinstance(indexes, range) else array("i", sorted(indexes))
    share = MemberPartitions(INDEX, some)
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
    assert {INDEX.names[place] for place, _ in share.runs()} == {p.topic for p in listed}


def test_member_partitions_are_made_of_parts() -> None:
    """One part is taken as it is, several are merged in order, and none gives no partitions."""
    assert MemberPartitions.of(INDEX, [(), range(1, 5, 2)]).indexes == range(1, 5, 2)
    assert list(MemberPartitions.of(INDEX, [(4,), [2, 3]]).indexes) == [2, 3, 4]
    assert len(MemberPartitions.of(INDEX, [])) == 0


def test_a_long_repr_is_cut() -> None:
    """The repr names the first five partitions and counts all."""
    assert repr(MemberPartitions(INDEX, range(2))) == "<MemberPartitions of 2: b-0, b-1>"
    long = MemberPartitions(PartitionIndex({"t": 9}), range(9))
    assert repr(long) == "<MemberPartitions of 9: t-0, t-1, t-2, t-3, t-4, ...>"


@pytest.mark.parametrize("indexes", [range(1, 5, 3), [1, 4]])
def test_marks(indexes: range | list[int]) -> None:
    """`unmarked` finds exactly the indexes that were not marked."""
    marks = bytearray(5)
    mark(marks, indexes)
    assert unmarked(marks) == [0, 2, 3]


def test_strings_sort_by_code_unit() -> None:
    """A character beyond the basic plane sorts before U+E000 and after U+D7FF, as in Java."""
    assert sorted(["\ue000", "\U0001f600", "\ud7ff"], key=java_sort_key) == [
        "\ud7ff",
        "\U0001f600",
        "\ue000",
    ]


def test_a_lone_surrogate_sorts_too() -> None:
    """A member id that is not valid text does not fail the leader."""
    assert java_sort_key("\ud800") < java_sort_key("\ue000")


def test_static_members_come_first() -> None:
    """Static members sort by instance id, before all dynamic ones."""
    members = [
        MemberSubscription(member_id="a"),
        MemberSubscription(member_id="c", group_instance_id="1"),
        MemberSubscription(member_id="b", group_instance_id="2"),
    ]
    assert [member.member_id for member in static_members_first(members)] == ["c", "b", "a"]


def test_subscribers_counts_each_member_once() -> None:
    """A topic that is named twice counts once; empty and unknown topics do not count."""
    topics = {
        "t": TopicInfo(name="t", partitions=1),
        "empty": TopicInfo(name="empty", partitions=0),
        "alone": TopicInfo(name="alone", partitions=1),
    }
    members = [MemberSubscription(member_id="m", topics=("t", "t", "empty", "unknown"))]
    subscriptions = subscriptions_of(members)
    partition_index = PartitionIndex.of_subscribed(topics, subscriptions)
    assert partition_index.names == ("t",)
    assert partition_index.subscribers(subscriptions) == [[0]]


def test_equal_subscriptions_are_one_object() -> None:
    """Equal subscriptions are one object, in whatever order they list their topics."""
    listed = (("a", "b"), ("b", "a"), ("b", "a"), ("c",), ("a", "b"))
    members = [MemberSubscription(member_id=str(at), topics=of) for at, of in enumerate(listed)]
    subscriptions = subscriptions_of(members)
    assert len({id(topics) for topics in subscriptions}) == 2
    partition_index = PartitionIndex.of_subscribed(
        {n: TopicInfo(name=n, partitions=1) for n in "cba"}, subscriptions
    )
    assert partition_index.names == ("a", "b", "c")
    found = partition_index.subscribers(subscriptions)
    assert found == [[0, 1, 2, 4], [0, 1, 2, 4], [3]]
    assert found[0] is found[1]
