"""The orders of Kafka's assignors."""

from __future__ import annotations

from kgroup.assignors.order import in_order, java_order, lay_out, subscribers, subscriptions
from kgroup.types import MemberSubscription, TopicInfo


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
    wanted = subscriptions(members)
    layout = lay_out(topics, wanted)
    assert layout.names == ("t",)
    assert subscribers(layout, wanted) == [[0]]


def test_equal_subscriptions_are_one_object() -> None:
    """In whatever order members list their topics, equal subscriptions are compared only once."""
    listed = (("a", "b"), ("b", "a"), ("b", "a"), ("c",), ("a", "b"))
    members = [MemberSubscription(member_id=str(at), topics=of) for at, of in enumerate(listed)]
    wanted = subscriptions(members)
    assert len({id(topics) for topics in wanted}) == 2
    layout = lay_out({n: TopicInfo(name=n, partitions=1) for n in "cba"}, wanted)
    assert layout.names == ("a", "b", "c")
    found = subscribers(layout, wanted)
    assert found == [[0, 1, 2, 4], [0, 1, 2, 4], [3]]
    assert found[0] is found[1]
