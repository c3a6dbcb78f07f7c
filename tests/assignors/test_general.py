"""Sticky assignment of unequal subscriptions, and the movements of its balancing."""

from __future__ import annotations

import pytest

from kgroup.assignors.general import Movements, general
from kgroup.assignors.ownership import MemberClaim, settle_claims
from kgroup.assignors.partition_index import PartitionIndex
from kgroup.assignors.racks import Racks

INDEX = PartitionIndex({"a": 2, "b": 4})
A0, A1, B0, B1, B2, B3 = range(6)


def shares(
    subscriptions: list[str], claims: list[tuple[list[int], int]], racks: Racks | None = None
) -> list[list[int]]:
    """Each member's partitions; each letter of a subscription is a topic."""
    listed = [MemberClaim(owned, generation) for owned, generation in claims]
    ownership = settle_claims(INDEX, listed)
    plan = general(INDEX, [frozenset(of) for of in subscriptions], listed, ownership, racks)
    return [list(share.indexes) for share in plan]


@pytest.mark.parametrize(
    ("subscriptions", "owned", "expected"),
    [
        (["a", "b"], [[], []], [[A0, A1], [B0, B1, B2, B3]]),
        (["ab", "b"], [[], []], [[A0, A1, B2], [B0, B1, B3]]),
        (["ab", "b"], [[A0, A1, B0, B1, B2, B3], []], [[A0, A1, B3], [B0, B1, B2]]),
        (["a", "ab"], [[B0], [B0, B1]], [[A0, A1], [B0, B1, B2, B3]]),
        (["a", "ab", "b"], [[A0], [A1, B0], [B1]], [[A0, A1], [B0, B3], [B1, B2]]),
        (["ab", ""], [[], [B0]], [[A0, A1, B0, B1, B2, B3], []]),
    ],
)
def test_plans(subscriptions: list[str], owned: list[list[int]], expected: list[list[int]]) -> None:
    """Topics with few subscribers come first, for members with the fewest; then balancing."""
    assert shares(subscriptions, [(one, 1) for one in owned]) == expected


def test_a_previous_owner_comes_first() -> None:
    """A partition that moves goes to its owner of an earlier generation, if that has fewer."""
    subscriptions = ["b", "b", "b", "ab"]
    now = [B0, B1, B2, B3]
    assert shares(subscriptions, [(now, 5), ([], 5), ([], 5), ([], 5)])[:3] == [
        [B2, B3],
        [B0],
        [B1],
    ]
    assert shares(subscriptions, [(now, 5), ([], 5), ([B0], 3), ([], 5)])[:3] == [
        [B2, B3],
        [B1],
        [B0],
    ]


def test_racks_come_first() -> None:
    """A partition goes to the member with the fewest in its racks, else to any other."""
    a, b = frozenset("x"), frozenset("y")
    racks = Racks(["x", "y", None], [0, 0, 1, 1, 1, 1], [a, b])
    assert shares(["ab", "ab", "b"], [([], 1)] * 3, racks) == [[A0, A1], [B0, B2], [B1, B3]]
    assert shares(["ab", "ab", "b"], [([B0], 1), ([], 1), ([], 1)], racks)[0] == [A0, A1]


def test_a_move_back_takes_a_partition_that_came() -> None:
    """In place of another, the lowest that moved the other way goes back, while there is one."""
    movements = Movements()
    movements.move(0, 8, 1, 2)
    movements.move(0, 7, 1, 2)
    assert movements.instead(0, 9, 2, 1) == 7
    movements.move(0, 7, 2, 1)
    assert movements.instead(0, 9, 2, 1) == 8
    movements.move(0, 8, 2, 1)
    assert movements.instead(0, 9, 2, 1) == 9


def test_only_of_the_same_topic() -> None:
    """Moves of another topic's partitions make no difference."""
    movements = Movements()
    movements.move(0, 7, 1, 2)
    assert movements.instead(1, 9, 2, 1) == 9


def test_a_second_move_is_one_from_the_first_owner() -> None:
    """A partition that moved from 1 to 2 to 3 counts as moved from 1 to 3."""
    movements = Movements()
    movements.move(0, 7, 1, 2)
    movements.move(0, 7, 2, 3)
    assert movements.instead(0, 9, 3, 1) == 7
    assert movements.instead(0, 9, 2, 1) == 9
    assert movements.instead(0, 7, 3, 3) == 7
