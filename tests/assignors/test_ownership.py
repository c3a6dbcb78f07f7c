"""Claims, and which of them count."""

from __future__ import annotations

import pytest

from kgroup.assignors.ownership import MemberClaim, indexes_of, settle
from kgroup.assignors.partition_index import PartitionIndex
from kgroup.types import MemberSubscription, TopicPartition

LAYOUT = PartitionIndex({"t": 4})


@pytest.mark.parametrize(
    ("generations", "owner"),
    [
        ((5, None), 0),
        ((5, 6), 1),
        ((None, -1), None),
        ((3, 3), None),
        ((3, 3, 2), None),
        ((2, 3, 3), None),
        ((3, 3, 4), 2),
        ((4, 3, 3), 0),
    ],
)
def test_the_latest_claim_counts(generations: tuple[int | None, ...], owner: int | None) -> None:
    """Of several claims the highest generation wins, if it is one member's alone."""
    claims = [MemberClaim([1], generation) for generation in generations]
    ownership = settle(LAYOUT, claims)
    assert ownership.owned == [[1] if at == owner else [] for at in range(len(claims))]
    assert ownership.disputed == (frozenset({1}) if owner is None else frozenset())
    assert list(ownership.held) == [0, owner is not None, 0, 0]


def test_an_uncontested_claim_counts_however_old() -> None:
    """A member that is behind keeps what nobody else claims."""
    ownership = settle(LAYOUT, [MemberClaim([0, 2], -1), MemberClaim([3], 9)])
    assert ownership.owned == [[0, 2], [3]]
    assert list(ownership.held) == [1, 0, 1, 1]


def test_nobody_contests_oneself() -> None:
    """A partition that a member lists twice is its own once."""
    ownership = settle(LAYOUT, [MemberClaim([2, 2, 1], 3), MemberClaim([0], 3)])
    assert ownership.owned == [[2, 1], [0]]
    assert not ownership.disputed


def test_what_does_not_exist_is_not_owned() -> None:
    """Partitions of unknown topics, or beyond the last, are left out."""
    owned = [TopicPartition("t", n) for n in (-1, 0, 3, 4)] + [TopicPartition("u", 0)]
    members = [MemberSubscription(member_id="m", owned=tuple(owned))]
    assert list(indexes_of(members, LAYOUT)) == [[0, 3]]
