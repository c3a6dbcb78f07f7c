"""The range assignor: compared with Kafka's answers, and properties that must always hold."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given

from kgroup.assignors.range import RangeAssignor
from kgroup.assignors.validation import check_assignments
from kgroup.types import MemberSubscription, TopicInfo, TopicPartition
from tests.assignors.golden import Line, golden
from tests.assignors.strategies import Group, groups


@pytest.mark.parametrize("line", golden("range"), ids=lambda line: line.name)
def test_equals_kafka(line: Line) -> None:
    """Every member gets the partitions that Kafka's RangeAssignor gives it."""
    answer = RangeAssignor().assign(line.topics, line.members)
    assert {member: frozenset(partitions) for member, partitions in answer.items()} == line.answer


def shares(
    topics: dict[str, TopicInfo], members: Sequence[MemberSubscription]
) -> dict[tuple[str, str], int]:
    """How many partitions each member gets of each topic of which it gets any."""
    counts: dict[tuple[str, str], int] = {}
    for member, partitions in RangeAssignor().assign(topics, members).items():
        for partition in partitions:
            counts[member, partition.topic] = counts.get((member, partition.topic), 0) + 1
    return counts


@given(groups())
def test_gives_out_everything_evenly(group: Group) -> None:
    """A topic's partitions all go to its subscribers, who differ by one at most."""
    topics, members = group
    answer = RangeAssignor().assign(topics, members)
    checked = check_assignments("range", topics, members, answer)
    assert checked.unassigned == ()
    counts = shares(topics, members)
    for name in topics:
        of_topic = [counts.get((m.member_id, name), 0) for m in members if name in m.topics]
        assert max(of_topic, default=0) - min(of_topic, default=0) <= 1


@given(groups())
def test_the_order_of_members_and_topics_does_not_matter(group: Group) -> None:
    """The result does not depend on the order in which members and topics come."""
    topics, members = group
    turned = dict(reversed(topics.items()))
    assert RangeAssignor().assign(turned, members[::-1]) == RangeAssignor().assign(topics, members)


@given(groups())
def test_equal_topics_are_divided_in_the_same_way(group: Group) -> None:
    """Topics with the same members and partition counts give a member the same numbers."""
    topics, members = group
    twins = {
        name: TopicInfo(name=name, partitions=7, racks=topic.racks[:0])
        for name, topic in topics.items()
    }
    answer = RangeAssignor().assign(twins, members)
    for member in members:
        numbers = {name: set[int]() for name in twins}
        for partition in answer[member.member_id]:
            numbers[partition.topic].add(partition.partition)
        for name, own in numbers.items():
            for other, others in numbers.items():
                same = all((name in m.topics) == (other in m.topics) for m in members)
                assert not same or own == others


def test_reads_in_its_own_rack() -> None:
    """A member gets the partitions with a replica in its rack before any other."""
    topic = TopicInfo(name="t", partitions=4, racks=(("b",), ("a",), ("b",), ("a",)))
    members = [
        MemberSubscription(member_id=rack, topics=("t",), rack_id=rack) for rack in ("a", "b")
    ]
    assert RangeAssignor().assign({"t": topic}, members) == {
        "a": [TopicPartition("t", 1), TopicPartition("t", 3)],
        "b": [TopicPartition("t", 0), TopicPartition("t", 2)],
    }


def test_cost_is_linear() -> None:
    """Each partition is visited a bounded number of times, however many members there are."""
    visits = 0

    class Rack(str):
        __slots__ = ()

        def __hash__(self) -> int:
            nonlocal visits
            visits += 1
            return super().__hash__()

        def __eq__(self, other: object) -> bool:
            return str.__eq__(self, other) is True

    count = 2_000
    racks = tuple((Rack(f"r{number % 3}"),) for number in range(count))
    topic = TopicInfo(name="t", partitions=count, racks=racks)
    members = [
        MemberSubscription(member_id=f"m{number}", topics=("t",), rack_id=f"r{number % 2}")
        for number in range(count // 2)
    ]
    RangeAssignor().assign({"t": topic}, members)
    assert visits <= 10 * count
