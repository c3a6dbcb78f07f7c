"""The round-robin assignor: compared with Kafka's answers, and what must always hold."""

from __future__ import annotations

import pytest
from hypothesis import given

from kgroup.assignors.roundrobin import RoundRobinAssignor
from kgroup.assignors.validation import check_assignments
from kgroup.types import MemberSubscription, TopicInfo
from tests.assignors.golden import Line, golden
from tests.assignors.strategies import Group, groups


@pytest.mark.parametrize("line", golden("roundrobin"), ids=lambda line: line.name)
def test_equals_kafka(line: Line) -> None:
    """Every member gets the partitions that Kafka's RoundRobinAssignor gives it."""
    answer = RoundRobinAssignor().assign(line.topics, line.members)
    assert {member: frozenset(partitions) for member, partitions in answer.items()} == line.answer


@given(groups())
def test_gives_out_everything(group: Group) -> None:
    """All partitions of subscribed topics go to members that subscribe to them."""
    topics, members = group
    answer = RoundRobinAssignor().assign(topics, members)
    assert check_assignments("roundrobin", topics, members, answer).unassigned == ()


@given(groups())
def test_equal_subscriptions_come_out_even(group: Group) -> None:
    """Members with equal subscriptions differ by at most one partition, over all topics."""
    topics, members = group
    alike = [
        MemberSubscription(member_id=member.member_id, topics=tuple(topics)) for member in members
    ]
    counts = [len(given) for given in RoundRobinAssignor().assign(topics, alike).values()]
    assert max(counts) - min(counts) <= 1


@given(groups())
def test_the_order_of_members_and_topics_does_not_matter(group: Group) -> None:
    """The result does not depend on the order in which members and topics come."""
    topics, members = group
    turned = dict(reversed(topics.items()))
    assert RoundRobinAssignor().assign(turned, members[::-1]) == RoundRobinAssignor().assign(
        topics, members
    )


def test_a_turn_continues_in_the_next_topic() -> None:
    """The next topic begins with the member after the one that got the last partition."""
    topics = {name: TopicInfo(name=name, partitions=1) for name in ("t1", "t2", "t3")}
    members = [MemberSubscription(member_id=m, topics=tuple(topics)) for m in ("m1", "m2")]
    answer = RoundRobinAssignor().assign(topics, members)
    assert {member: [str(p) for p in given] for member, given in answer.items()} == {
        "m1": ["t1-0", "t3-0"],
        "m2": ["t2-0"],
    }
