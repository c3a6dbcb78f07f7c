"""The orders of Kafka's assignors."""

from __future__ import annotations

from kgroup.assignors.order import in_order, java_order, subscribers
from kgroup.model import MemberSubscription, TopicInfo


def test_strings_sort_by_code_unit() -> None:
    """A character beyond the basic plane sorts before U+E000 and after U+D7FF, as in Java."""
    assert sorted(["\ue000", "\U0001f600", "\ud7ff"], key=java_order) == [
        "\ud7ff",
        "\U0001f600",
        "\ue000",
    ]


def test_a_lone_surrogate_sorts_too() -> None:
    """An id that is no text cannot break the leader."""
    assert java_order("\ud800") < java_order("\ue000")


def test_static_members_come_first() -> None:
    """Static members sort by instance id, before all dynamic ones."""
    members = [
        MemberSubscription(member_id="a"),
        MemberSubscription(member_id="c", group_instance_id="1"),
        MemberSubscription(member_id="b", group_instance_id="2"),
    ]
    assert [member.member_id for member in in_order(members)] == ["c", "b", "a"]


def test_subscribers_counts_each_member_once() -> None:
    """A topic named twice, one without partitions and an unknown one do no harm."""
    topics = {
        "t": TopicInfo(name="t", partitions=1),
        "empty": TopicInfo(name="empty", partitions=0),
        "alone": TopicInfo(name="alone", partitions=1),
    }
    members = [MemberSubscription(member_id="m", topics=("t", "t", "empty", "unknown"))]
    assert subscribers(topics, members) == {"t": [0]}
