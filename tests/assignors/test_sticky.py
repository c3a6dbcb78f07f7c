"""The sticky assignor: compared with Kafka's answers, and properties that must always hold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product

import attrs
import pytest
from hypothesis import given, settings

from kgroup.assignors.sticky import StickyAssignor
from kgroup.assignors.validation import check_assignments
from kgroup.types import MemberSubscription, TopicInfo, TopicPartition
from tests.assignors.golden import Line, golden
from tests.assignors.strategies import Group, Members, claiming, owned_once, owning

LINES = golden("sticky")


def assign(
    topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
) -> dict[str, frozenset[TopicPartition]]:
    """The result, after a check that it is valid and assigns everything."""
    answer = StickyAssignor().assign(topics, members)
    assert check_assignments("sticky", topics, members, answer).unassigned == ()
    return {member: frozenset(partitions) for member, partitions in answer.items()}


def kept(members: Sequence[MemberSubscription], answer: Mapping[str, frozenset[object]]) -> int:
    """How many partitions stay with a member that claims them."""
    return sum(len(answer[member.member_id] & set(member.owned)) for member in members)


def again(members: Sequence[MemberSubscription], answer: Mapping[str, object]) -> Members:
    """The members as they join after this result."""
    given: dict[str, frozenset[TopicPartition]] = answer  # type: ignore[assignment] # invariance
    return owning(
        [
            attrs.evolve(member, owned=tuple(given[member.member_id]), generation_id=4)
            for member in members
        ]
    )


@pytest.mark.parametrize("line", [line for line in LINES if line.exact], ids=lambda line: line.name)
def test_equals_kafka(line: Line) -> None:
    """Every member gets the partitions that Kafka's StickyAssignor gives it."""
    assert assign(line.topics, line.members) == line.answer


@pytest.mark.parametrize(
    "line", [line for line in LINES if not line.exact], ids=lambda line: line.name
)
def test_is_as_even_as_kafka(line: Line) -> None:
    """If Kafka's result varies with the order of members, kgroup's is as even as one of them."""
    answer = assign(line.topics, line.members)
    assert tuple(sorted(map(len, answer.values()))) in line.sizes


@given(claiming())
def test_no_move_would_make_it_more_even(group: Group) -> None:
    """Whatever members claim, all is assigned, and no move would make the plan more even."""
    topics, members = group
    answer = assign(topics, members)
    has = {member: len(partitions) for member, partitions in answer.items()}
    for member in members:
        for owner, partitions in answer.items():
            if has[owner] > has[member.member_id] + 1:
                assert not {p.topic for p in partitions} & set(member.topics)


@given(claiming())
def test_the_order_of_members_and_topics_does_not_matter(group: Group) -> None:
    """The result does not depend on the order in which members and topics come."""
    topics, members = group
    turned = {name: topics[name] for name in reversed(topics)}
    backwards = [attrs.evolve(member, topics=member.topics[::-1]) for member in members[::-1]]
    assert assign(turned, backwards) == assign(topics, members)


@given(owned_once(equal=True) | owned_once(equal=False))
def test_nothing_moves_when_nothing_changed(group: Group) -> None:
    """Repeated with its own result, an assignment is the same."""
    topics, members = group
    answer = assign(topics, members)
    assert assign(topics, again(members, answer)) == answer


@given(owned_once(equal=True, most=6))
@settings(max_examples=60)
def test_as_few_partitions_as_possible_move(group: Group) -> None:
    """No other plan that is as even leaves more partitions with their owners."""
    topics, members = group
    answer = assign(topics, members)
    owner = {partition: place for place, m in enumerate(members) for partition in m.owned}
    partitions = [
        TopicPartition(name, number)
        for name, topic in topics.items()
        for number in range(topic.partitions)
    ]
    best = 0
    for plan in product(range(len(members)), repeat=len(partitions)):
        sizes = [plan.count(place) for place in range(len(members))]
        if max(sizes) - min(sizes) <= 1:
            stay = sum(owner.get(p) == place for p, place in zip(partitions, plan, strict=True))
            best = max(best, stay)
    assert kept(members, answer) == best


def test_instance_ids_play_no_part() -> None:
    """Members come in the order of their ids, static or not."""
    members = [
        MemberSubscription(member_id="a", topics=("t",)),
        MemberSubscription(member_id="b", group_instance_id="1", topics=("t",)),
    ]
    assert assign({"t": TopicInfo(name="t", partitions=1)}, members)["a"]


def test_no_members_or_no_topics() -> None:
    """Without members or without topics the result is empty."""
    assert assign({}, []) == {}
    assert assign({}, [MemberSubscription(member_id="a", topics=("t",))]) == {"a": frozenset()}
