"""Where Kafka's sticky assignors throw or return an invalid plan, kgroup's return a valid one.

Kafka 4.3's Java assignors fail each of these cases: by an exception in the leader, a partition with
two members, or one with a member that does not subscribe to it.
"""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kgroup.assignors import BUILTIN
from kgroup.assignors.validation import check_assignments
from kgroup.types import MemberSubscription, TopicInfo, TopicPartition
from tests.assignors.strategies import owning

BOTH = pytest.mark.parametrize("assignor", ["sticky", "cooperative-sticky"])

Joining = tuple[str, str, Sequence[str], int]
"""A member: its id, its topics, what it owns ("t0") and in which generation."""


def assign(
    assignor: str, counts: dict[str, int], joining: Sequence[Joining]
) -> dict[str, set[str]]:
    """Assign until no member has to lose a partition, and check each result; return the last.

    ``sticky`` takes one round for that, ``cooperative-sticky`` at most three.
    """
    topics = {name: TopicInfo(name=name, partitions=count) for name, count in counts.items()}
    owned = {
        member_id: tuple(TopicPartition(one[0], int(one[1:])) for one in listed)
        for member_id, _, listed, _ in joining
    }
    generations = {member_id: generation for member_id, _, _, generation in joining}
    unassigned: tuple[TopicPartition, ...] = ()
    for _ in range(3 if assignor == "cooperative-sticky" else 1):
        members = owning(
            [
                MemberSubscription(
                    member_id=member_id,
                    topics=tuple(subscribed),
                    owned=owned[member_id],
                    generation_id=generations[member_id],
                )
                for member_id, subscribed, _, _ in joining
            ]
        )
        answer = BUILTIN[assignor].assign(topics, members)
        unassigned = check_assignments(assignor, topics, members, answer).unassigned
        owned = {member: tuple(partitions) for member, partitions in answer.items()}
        generations = dict.fromkeys(generations, 9)
    assert unassigned == ()
    return {m: {f"{p.topic}{p.partition}" for p in listed} for m, listed in owned.items()}


def sizes(answer: dict[str, set[str]]) -> dict[str, int]:
    """How many partitions each member has."""
    return {member: len(partitions) for member, partitions in answer.items()}


@BOTH
def test_a_topic_made_again_with_fewer_partitions(assignor: str) -> None:
    """With equal subscriptions, claims on partitions that no longer exist are ignored."""
    joining = [("m1", "t", ["t0", "t3", "t4"], 2), ("m2", "t", ["t1", "t2", "t5"], 2)]
    assert sizes(assign(assignor, {"t": 3}, joining)) in ({"m1": 1, "m2": 2}, {"m1": 2, "m2": 1})
    assert sizes(assign(assignor, {"t": 2}, joining)) == {"m1": 1, "m2": 1}
    assert sizes(assign(assignor, {"t": 1}, joining)) == {"m1": 1, "m2": 0}


@BOTH
def test_fewer_partitions_where_subscriptions_differ(assignor: str) -> None:
    """With unequal subscriptions too: such a claim does not count as a partition."""
    joining = [("m1", "tu", ["t0", "t3", "t4"], 2), ("m2", "t", ["t1", "t2"], 2)]
    answer = assign(assignor, {"t": 2, "u": 2}, joining)
    assert answer == {"m1": {"u0", "u1"}, "m2": {"t0", "t1"}}


@BOTH
@pytest.mark.parametrize("stale", ["u", "v"])
def test_a_previous_owner_that_no_longer_subscribes(assignor: str, stale: str) -> None:
    """A member that left a topic gets back none of what it owned of it in an older generation."""
    all_six = [f"t{number}" for number in range(6)]
    joining = [("m1", "t", all_six, 5), ("m2", "t", [], 5), ("m3", stale, all_six, 4)]
    answer = assign(assignor, {"t": 6, "u": 1}, joining)
    assert sizes(answer) == {"m1": 3, "m2": 3, "m3": int(stale == "u")}


@BOTH
def test_a_previous_owner_without_a_subscription(assignor: str) -> None:
    """A previous owner that subscribes to no topic gets none back either."""
    all_six = [f"t{number}" for number in range(6)]
    joining = [("m1", "t", all_six, 5), ("m2", "t", [], 5), ("m3", "", all_six, 4)]
    assert sizes(assign(assignor, {"t": 6}, joining)) == {"m1": 3, "m2": 3, "m3": 0}


@BOTH
@pytest.mark.parametrize("others", ["t", "tu"])
def test_an_empty_subscription_read_first(assignor: str, others: str) -> None:
    """A member without topics gets nothing, whatever its place in the order of members."""
    for idle in ("m0", "m5", "m9"):
        joining: list[Joining] = [("m4", "t", [], -1), ("m6", others, [], -1), (idle, "", [], -1)]
        answer = assign(assignor, dict.fromkeys(others, 4), joining)
        assert sizes(answer) == {idle: 0, "m4": 2 * len(others), "m6": 2 * len(others)}
