"""The plan for equal subscriptions: what each member keeps of what it owns, and what it gets."""

from __future__ import annotations

import pytest

from kgroup.assignors.constrained import QuotaPlan, constrained
from kgroup.assignors.ownership import MemberClaim, settle_claims
from kgroup.assignors.partition_index import PartitionIndex
from kgroup.assignors.racks import Racks


def plan(count: int, *owned: list[int], racks: Racks | None = None) -> QuotaPlan:
    """The plan for one topic and these members."""
    partition_index = PartitionIndex({"t": count})
    return constrained(
        partition_index,
        settle_claims(partition_index, [MemberClaim(list(one), 1) for one in owned]),
        racks,
    )


def dealt(count: int, *owned: list[int], racks: Racks | None = None) -> list[list[int]]:
    """Each member's partitions in that plan."""
    return [list(share.indexes) for share in plan(count, *owned, racks=racks).shares]


@pytest.mark.parametrize(
    ("count", "owned", "shares"),
    [
        (0, ([], []), [[], []]),
        (1, ([], []), [[0], []]),
        (5, ([], []), [[0, 2, 4], [1, 3]]),
        (5, ([], [0, 1, 2, 3, 4]), [[3, 4], [0, 1, 2]]),
        (6, ([5, 4, 3, 2, 1, 0], []), [[0, 1, 2], [3, 4, 5]]),
        (5, ([0], [1], [2]), [[0, 3], [1, 4], [2]]),
        (7, ([0, 1, 2, 3], [4, 5, 6], []), [[0, 1, 2], [4, 5], [3, 6]]),
        (3, ([0], [1], [], []), [[0], [1], [2], []]),
        (8, ([1], [0, 2], []), [[1, 3, 7], [0, 2, 6], [4, 5]]),
    ],
)
def test_quotas(count: int, owned: tuple[list[int], ...], shares: list[list[int]]) -> None:
    """Members keep up to their quota, lowest numbers first; the rest is given out in turn."""
    assert dealt(count, *owned) == shares


def test_from_scratch_nothing_is_listed() -> None:
    """Shares of a group that owns nothing are ranges, however many partitions there are."""
    shares = plan(999_999, [], [], []).shares
    assert [share.indexes for share in shares] == [range(at, 999_999, 3) for at in range(3)]


def test_what_moves() -> None:
    """A partition moves if its owner loses it to another, or if two claim it equally."""
    assert plan(4, [0, 1, 2, 3], []).moving == {2, 3}
    assert plan(4, [0, 1], [2, 3]).moving == frozenset()
    assert plan(4, [0, 1], [1, 2]).moving == {1}
    assert plan(4, [0, 1], []).moving == frozenset()


def test_racks_come_first() -> None:
    """Members lose partitions of other racks; those with fewest readers are given out first."""
    a, b = frozenset("a"), frozenset("b")
    racks = Racks(["a", "b", "a"], [0, 0, 0, 1, 1, 1], [a, b])
    # Member 1 loses partition 0. Partitions 3, 4 and 5 have one reader and are given out before 0,
    # 1 and 2. The rest comes last, and goes to members that have room.
    assert dealt(6, [], [0], [], racks=racks) == [[1, 5], [3, 4], [0, 2]]
    assert plan(6, [], [0], [], racks=racks).moving == {0}


def test_racks_and_one_above_the_average() -> None:
    """The share above the average goes to the first member in a matching rack to reach it."""
    a, b = frozenset("a"), frozenset("b")
    racks = Racks(["a", "b"], [0, 0, 0], [a, b])
    assert dealt(3, [], [], racks=racks) == [[0, 1], [2]]
    racks = Racks(["a", "b", None], [0, 1, 1, 1, 0], [a, b])
    assert dealt(5, [], [], [], racks=racks) == [[0, 4], [1, 2], [3]]
