"""The results of assignors, on groups small enough to count by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from kgroup.assignors import BUILTIN
from kgroup.cli.assign.group_input import GroupInput, read_group
from kgroup.cli.assign.results import MOST_ROUNDS, Spread, evaluate, joining
from kgroup.types import Claim, MemberSubscription, TopicInfo, TopicPartition
from tests.cli.assign.groups import ORDERS, member, owning


def group(*members: dict[str, Any], topics: Mapping[str, Any] = ORDERS) -> GroupInput:
    """A group of these members."""
    return read_group({"topics": topics, "members": list(members)})


def test_from_scratch() -> None:
    """If no member owned anything nothing moves, and all that a member gets is gained."""
    found = evaluate(BUILTIN["range"], group(member("a", "orders"), member("b", "orders")))
    assert (found.assignor, found.rounds, found.owned, found.moved) == ("range", 1, 0, 0)
    assert [(len(p.partitions), p.gained, p.lost) for p in found.parts.values()] == [(2, 2, 0)] * 2
    assert found.by_member == Spread(2, 2)
    assert found.by_topic == {"orders": Spread(2, 2)}


@pytest.mark.parametrize(
    ("name", "rounds", "withheld", "moved"),
    [
        ("range", 1, 0, 2),
        ("roundrobin", 1, 0, 2),
        ("sticky", 1, 0, 2),
        ("cooperative-sticky", 2, 2, 2),
    ],
)
def test_a_second_member_comes(name: str, rounds: int, withheld: int, moved: int) -> None:
    """Half of the partitions move: with a cooperative assignor in a second round."""
    found = evaluate(BUILTIN[name], group(owning("a", "orders", 0, 1, 2, 3), member("b", "orders")))
    assert (found.rounds, found.withheld, found.moved) == (rounds, withheld, moved)
    assert (found.parts["a"].gained, found.parts["a"].lost) == (0, 2)
    assert (found.parts["b"].gained, found.parts["b"].lost) == (2, 0)
    assert found.by_member.difference == 0


@pytest.mark.parametrize("name", ["sticky", "cooperative-sticky"])
def test_nothing_moves_in_an_even_group(name: str) -> None:
    """Sticky members keep what they own, in one round."""
    found = evaluate(BUILTIN[name], group(owning("a", "orders", 1, 2), owning("b", "orders", 0, 3)))
    assert (found.owned, found.moved, found.rounds) == (4, 0, 1)


def test_a_partition_that_no_longer_exists_does_not_move() -> None:
    """A claim on a partition that does not exist counts neither as owned nor as moved."""
    found = evaluate(BUILTIN["cooperative-sticky"], group(owning("a", "orders", 0, 9)))
    assert (found.owned, found.moved, found.rounds) == (1, 0, 2)


def test_a_partition_that_two_claim_stays_with_either() -> None:
    """A partition that two members claim is owned once, and does not move if either keeps it."""
    found = evaluate(
        BUILTIN["range"], group(owning("a", "orders", 0, 1), owning("b", "orders", 1, 2))
    )
    assert (found.owned, found.moved) == (3, 0)


def test_imbalance() -> None:
    """Only members with a topic count; for one topic, only its subscribers do."""
    topics = {"orders": {"partitions": 3}, "clicks": {"partitions": 1}, "none": {"partitions": 0}}
    found = evaluate(
        BUILTIN["range"],
        group(
            member("a", "orders", "clicks"),
            member("b", "orders"),
            member("c", "none", "gone"),
            member("d", "clicks"),
            topics=topics,
        ),
    )
    assert found.by_member == Spread(0, 3)
    assert found.by_topic == {"clicks": Spread(0, 1), "none": Spread(0, 0), "orders": Spread(1, 2)}
    assert found.widest == ("clicks", Spread(0, 1))
    assert evaluate(BUILTIN["range"], group()).widest is None


def test_racks_that_are_missed() -> None:
    """A partition counts if its member names a rack and no replica is there."""
    topics = {"orders": {"partitions": 3, "racks": {"0": ["w"], "1": ["w"], "2": []}}}
    found = evaluate(BUILTIN["range"], group(member("a", "orders", rack_id="e"), topics=topics))
    assert found.rack_mismatched == 2


def test_members_report_what_they_own_as_the_assignor_expects() -> None:
    """Sticky in user data, cooperative-sticky in the subscription, range not at all."""
    here = group(owning("a", "orders", 0), member("b", "orders", user_data_b64="AA=="))
    owned = (TopicPartition("orders", 0),)
    seen_by = {name: joining(BUILTIN[name], here).members for name in BUILTIN}
    assert [one.owned for one in seen_by["cooperative-sticky"]] == [owned, ()]
    assert all(one.owned == () for name in ("range", "sticky") for one in seen_by[name])
    assert [bool(one.user_data) for one in seen_by["sticky"]] == [True, False]
    assert [one.user_data for one in seen_by["range"]] == [None, b"\0"]


class Restless:
    """Takes from the first member what it owns, and gives it another partition instead."""

    name = "restless"
    cooperative = True

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """Give the first member one partition: in each round another."""
        del topics
        first = members[0]
        last = first.owned[0].partition if first.owned else 0
        return {first.member_id: [TopicPartition("orders", (last + 1) % 4)]}


def test_the_rounds_of_an_assignor_are_limited() -> None:
    """An assignor that never becomes stable is called MOST_ROUNDS times."""
    found = evaluate(Restless(), group(owning("a", "orders", 0), member("b", "orders")))
    assert found.rounds == MOST_ROUNDS
    assert found.unassigned == 3


def test_claims_follow_the_rounds() -> None:
    """In each round, members own the partitions of the last round, in its generation."""
    calls: list[list[tuple[int, int]]] = []

    class Watching(Restless):
        def assign(self, topics: Any, members: Sequence[MemberSubscription]) -> Any:
            calls.append([(len(one.owned), one.generation_id) for one in members])
            return BUILTIN["cooperative-sticky"].assign(topics, members)

    here = group(owning("a", "orders", 0, 1, 2, 3), member("b", "orders"))
    assert here.claims["a"] == Claim(tuple(here.members[0].owned), -1)
    evaluate(Watching(), here)
    assert calls == [[(4, -1), (0, -1)], [(2, 0), (0, -1)]]
