"""The cooperative sticky assignor, against Kafka's answers and for what must always hold."""

from __future__ import annotations

import attrs
import pytest
from hypothesis import given

from kgroup.assignors.ownership import encode_generation
from kgroup.assignors.sticky import CooperativeStickyAssignor
from kgroup.assignors.validation import check_assignments
from kgroup.types import MemberSubscription, TopicInfo, TopicPartition
from tests.assignors.golden import Line, golden
from tests.assignors.strategies import Group, claiming, owned_once

LINES = golden("cooperative-sticky")

Answer = dict[str, frozenset[TopicPartition]]


def assign(topics: dict[str, TopicInfo], members: tuple[MemberSubscription, ...]) -> Answer:
    """The result, which is valid."""
    answer = CooperativeStickyAssignor().assign(topics, members)
    check_assignments("cooperative-sticky", topics, members, answer)
    return {member: frozenset(partitions) for member, partitions in answer.items()}


def given_up(members: tuple[MemberSubscription, ...], answer: Answer) -> set[TopicPartition]:
    """The partitions that members own and do not get."""
    return {p for member in members for p in set(member.owned) - answer[member.member_id]}


@pytest.mark.parametrize("line", [line for line in LINES if line.exact], ids=lambda line: line.name)
def test_equals_kafka(line: Line) -> None:
    """Every member gets the partitions that Kafka's CooperativeStickyAssignor gives it."""
    assert assign(line.topics, line.members) == line.answer


@pytest.mark.parametrize(
    "line", [line for line in LINES if not line.exact], ids=lambda line: line.name
)
def test_withholds_only_partitions_that_an_owner_loses(line: Line) -> None:
    """Also where Kafka's result depends on the order of members."""
    answer = CooperativeStickyAssignor().assign(line.topics, line.members)
    checked = check_assignments("cooperative-sticky", line.topics, line.members, answer)
    assert set(checked.unassigned) <= given_up(line.members, assign(line.topics, line.members))


@given(claiming())
def test_the_order_of_members_and_topics_does_not_matter(group: Group) -> None:
    """The result does not depend on the order in which members and topics come."""
    topics, members = group
    turned = {name: topics[name] for name in reversed(topics)}
    backwards = tuple(attrs.evolve(m, topics=m.topics[::-1]) for m in members[::-1])
    assert assign(turned, backwards) == assign(topics, members)


@given(owned_once(equal=True) | owned_once(equal=False))
def test_takes_two_steps(group: Group) -> None:
    """No member gets what another still owns; after the revocation, everything is assigned."""
    topics, members = group
    first = assign(topics, members)
    for member in members:
        for other in members:
            if other is not member:
                assert not first[member.member_id] & set(other.owned)
    answer = CooperativeStickyAssignor().assign(topics, members)
    withheld = check_assignments("cooperative-sticky", topics, members, answer).unassigned
    assert set(withheld) <= given_up(members, first)
    rejoining = tuple(
        attrs.evolve(member, owned=tuple(first[member.member_id]), generation_id=4)
        for member in members
    )
    second = CooperativeStickyAssignor().assign(topics, rejoining)
    assert check_assignments("cooperative-sticky", topics, rejoining, second).unassigned == ()
    assert all(first[member] <= set(partitions) for member, partitions in second.items())


@given(owned_once(equal=True) | owned_once(equal=False))
def test_nothing_moves_when_nothing_changed(group: Group) -> None:
    """Repeated with its own result, an assignment takes no partition away."""
    topics, members = group
    answer = Answer()
    for _ in range(2):
        answer = assign(topics, members)
        members = tuple(
            attrs.evolve(member, owned=tuple(answer[member.member_id]), generation_id=4)
            for member in members
        )
    assert assign(topics, members) == answer


@pytest.mark.parametrize(
    ("field", "sent", "keeps"), [(-1, 6, "a"), (4, 9, "b"), (6, 1, "a"), (-1, None, "b")]
)
def test_the_field_comes_before_the_user_data(field: int, sent: int | None, keeps: str) -> None:
    """The generation in the subscription counts; the one in the user data only without it."""
    owned = (TopicPartition("t", 0), TopicPartition("t", 1))
    data = None if sent is None else encode_generation(sent)
    members = (
        MemberSubscription(
            member_id="a", topics=("t",), owned=owned, generation_id=field, user_data=data
        ),
        MemberSubscription(member_id="b", topics=("t",), owned=owned, generation_id=5),
    )
    answer = assign({"t": TopicInfo(name="t", partitions=2)}, members)
    assert {member: len(partitions) for member, partitions in answer.items() if partitions} == {
        keeps: 1
    }


def test_says_its_generation() -> None:
    """The user data is the generation, as Kafka's members send it."""
    owned = [TopicPartition("t", 0)]
    assert CooperativeStickyAssignor().user_data(owned, 7) == b"\0\0\0\x07"
    assert CooperativeStickyAssignor().user_data(None, -1) == b"\xff\xff\xff\xff"
