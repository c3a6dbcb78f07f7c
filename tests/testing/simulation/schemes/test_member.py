"""How members of the older protocols divide partitions."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kgroup.assignors import BUILTIN
from kgroup.testing.simulation.schemes.member import cut_ranges, offset_path, partition_of
from kgroup.types import MemberSubscription, TopicInfo, TopicPartition

names = st.lists(st.text("abc", min_size=1, max_size=3), min_size=1, max_size=6, unique=True)
counts = st.dictionaries(st.sampled_from(["t", "u"]), st.integers(0, 12), min_size=1)


@given(members=names, partitions=counts)
def test_ranges_are_those_of_kafkas_assignor(
    members: list[str], partitions: dict[str, int]
) -> None:
    """The older protocols' ranges are those that kgroup's range assignor gives."""
    topics = {
        name: TopicInfo(name=name, partitions=number)
        for name, number in partitions.items()
        if number
    }
    subscriptions = [MemberSubscription(member_id=one, topics=tuple(topics)) for one in members]
    expected = BUILTIN["range"].assign(topics, subscriptions)
    found = cut_ranges(members, partitions)
    assert {one: sorted(its) for one, its in found.items()} == {
        one: sorted(expected.get(one, ())) for one in members
    }


def test_a_path_leads_back_to_its_partition() -> None:
    """A partition is read from the path of its offset, whatever its topic is called."""
    partition = TopicPartition("a-1", 12)
    assert partition_of(offset_path(partition)) == partition
