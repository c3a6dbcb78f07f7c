"""Racks in the sticky assignors: when they count, and which members suit a partition."""

from __future__ import annotations

import pytest

from kgroup.assignors.partition_index import PartitionIndex
from kgroup.assignors.racks import Racks
from kgroup.types import MemberSubscription, TopicInfo

OF_PARTITIONS = (("a", "a"), ("b", "a"), ())


def racks(*own: str | None, of: tuple[tuple[str, ...], ...] = OF_PARTITIONS) -> Racks | None:
    """The racks of a group with one topic with racks, and one without."""
    topics = {
        "t": TopicInfo(name="t", partitions=len(of), racks=of),
        "u": TopicInfo(name="u", partitions=1),
    }
    members = [MemberSubscription(member_id=str(at), rack_id=rack) for at, rack in enumerate(own)]
    return Racks.of(
        PartitionIndex({"t": len(of), "u": 1} if of is OF_PARTITIONS else {"t": len(of)}),
        topics,
        members,
    )


def test_which_members_suit_a_partition() -> None:
    """A member suits partitions with a replica in its rack; one without a rack suits all."""
    found = racks("a", "b", None, "")
    assert found is not None
    suits = [[found.suits(member, index) for index in range(4)] for member in range(4)]
    assert suits == [
        [True, True, False, False],
        [False, True, False, False],
        [True] * 4,
        [True] * 4,
    ]
    assert [found.readers(index) for index in range(4)] == [1, 2, 0, 0]
    assert found.of_partition(1) == {"a", "b"}


@pytest.mark.parametrize("own", [(), (None, ""), ("c", None)])
def test_racks_without_both_members_and_replicas_do_not_count(own: tuple[str | None, ...]) -> None:
    """If no member is in a rack that has replicas, racks make no difference."""
    assert racks(*own) is None


def test_the_same_racks_everywhere_do_not_count() -> None:
    """If every partition has replicas in the same racks, racks make no difference."""
    assert racks("a", of=(("a", "b"), ("b", "a"))) is None
    assert racks("a", of=(("a", "b"), ("b",))) is not None
