"""Sticky assignment of unequal subscriptions, and the movements of its balancing."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.assignors import general as general_module
from kgroup.assignors.general import (
    DraftAssignment,
    Movements,
    general,
)
from kgroup.assignors.ownership import MemberClaim, settle_claims
from kgroup.assignors.partition_index import PartitionIndex
from kgroup.assignors.racks import Racks
from kgroup.assignors.sticky import StickyAssignor
from tests.assignors.strategies import Group, claiming

INDEX = PartitionIndex({"a": 2, "b": 4})
A0, A1, B0, B1, B2, B3 = range(6)


def shares(
    subscriptions: list[str],
    claims: list[tuple[list[int], int]],
    racks: Racks | None = None,
    partition_index: PartitionIndex = INDEX,
) -> list[list[int]]:
    """Each member's partitions; each letter of a subscription is a topic."""
    listed = [MemberClaim(owned, generation) for owned, generation in claims]
    ownership = settle_claims(partition_index, listed)
    topics = [frozenset(of) for of in subscriptions]
    plan = general(partition_index, topics, listed, ownership, racks)
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


LARGE = PartitionIndex({"a": 3000, "z": 1})


@pytest.mark.parametrize(
    ("subscriptions", "claims", "most"),
    [
        # One that may not have them claims all partitions, of an earlier generation.
        (["az", "az", "z"], [(range(0, 3000, 2), 5), (range(1, 3000, 2), 5), (range(3000), 1)], 1),
        # The same, while many partitions have to move.
        (["az", *["a"] * 40, "z"], [(range(3000), 5), *[([], 5)] * 40, (range(3000), 1)], 3400),
        # All claim everything, of generations one after the other.
        (["az", *["a"] * 40, "az"], [(range(3001), number) for number in range(42)], 3),
    ],
)
def test_no_member_can_make_balancing_long(
    subscriptions: list[str],
    claims: list[tuple[Sequence[int], int]],
    most: int,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What members claim and subscribe to costs a bounded number of looks at all partitions."""
    looks: list[DraftAssignment] = []
    look = DraftAssignment.balanced

    def count_and_look(draft: DraftAssignment) -> bool:
        looks.append(draft)
        return look(draft)

    monkeypatch.setattr(DraftAssignment, "balanced", count_and_look)
    found = shares(subscriptions, [(list(one), at) for one, at in claims], partition_index=LARGE)
    counts = [len(one) for one, names in zip(found, subscriptions, strict=True) if "a" in names]
    assert max(counts) - min(counts) <= 1
    assert len(looks) <= most


def test_a_group_that_doubles_is_balanced_to_the_end() -> None:
    """The limit of steps is far beyond what a large group needs whose partitions all move."""
    topics = PartitionIndex({f"t{number:02}": 1000 for number in range(20)})
    all_but_one = [f"t{number:02}" for number in range(19)]
    old = [MemberClaim(list(range(at, 20_000, 1000)), 5) for at in range(1000)]
    listed = [*old, *[MemberClaim([], 5)] * 1000]
    subscriptions = [frozenset(topics.names)] * 1999 + [frozenset(all_but_one)]
    plan = general(topics, subscriptions, listed, settle_claims(topics, listed), None)
    assert {len(share) for share in plan} == {10}


@given(claiming(), st.integers(0, 30))
def test_a_plan_is_valid_after_any_number_of_steps(group: Group, steps: int) -> None:
    """When balancing stops early, each partition has one owner, which subscribes to its topic."""
    topics, members = group
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(general_module, "MOST_STEPS", steps)
        plan = StickyAssignor().assign(topics, members)
    owners = {partition: owner for owner, given in plan.items() for partition in given}
    assert sum(map(len, plan.values())) == len(owners)
    subscribed = {member.member_id: set(member.topics) for member in members}
    wanted = {name for name in topics if any(name in of for of in subscribed.values())}
    assert len(owners) == sum(topics[name].partitions for name in wanted)
    assert all(partition.topic in subscribed[owner] for partition, owner in owners.items())


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
