"""When racks count for the sticky assignors, and what they say."""

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


def test_who_suits_what() -> None:
    """A member suits the partitions in its rack; one without a rack suits all."""
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
def test_racks_that_do_not_meet_do_not_count(own: tuple[str | None, ...]) -> None:
    """Without a member in a rack that has replicas, racks make no difference."""
    assert racks(*own) is None


def test_the_same_racks_everywhere_do_not_count() -> None:
    """Where every partition is in all racks, any is as good as another."""
    assert racks("a", of=(("a", "b"), ("b", "a"))) is None
    assert racks("a", of=(("a", "b"), ("b",))) is not None
