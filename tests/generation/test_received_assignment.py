"""A received assignment: which entries are read, and which are left out and named."""

from __future__ import annotations

import pytest

from kgroup import types
from kgroup.generation import received_assignment
from kgroup.generation.received_assignment import accept, check_entries, compare
from kgroup.interfaces import DescribeResult
from kgroup.types import Assignment, MemberSubscription, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPICS = frozenset({"t"})


@pytest.mark.parametrize(
    "topic", ["", ".", "..", "a" * 250, "a" * 512, "a" * 513, "my topic", "ü", "a\0b", "a/b"]
)
def test_an_impossible_name_is_left_out_and_named(topic: str) -> None:
    """Other entries are accepted; the reason is the one that a setting with that name gets."""
    admitted = check_entries([T0, TopicPartition(topic, 0), T1], TOPICS)
    assert admitted.partitions == (T0, T1)
    ((entry, fault),) = admitted.left_out.items()
    assert entry == f"{topic!r:.80}-0"
    assert fault.startswith("the topic's name ")


@pytest.mark.parametrize("number", [-1, -(2**31)])
def test_an_impossible_number_is_left_out(number: int) -> None:
    """A partition's number is 0 or greater."""
    admitted = check_entries([TopicPartition("t", number), T0], TOPICS)
    assert admitted.partitions == (T0,)
    assert list(admitted.left_out.values()) == ["its number is not 0 to 2147483647"]


def test_a_topic_that_is_not_subscribed_is_left_out() -> None:
    """A leader cannot make this program read a topic; an unreadable name is not ``foreign``."""
    secret = TopicPartition("secret", 0)
    admitted = check_entries([secret, T0, TopicPartition("secret", -1), secret], TOPICS)
    assert admitted.partitions == (T0,)
    assert admitted.foreign == {"secret"}
    assert admitted.left_out == {
        "'secret'-0": "this member does not subscribe to the topic",
        "'secret'--1": "its number is not 0 to 2147483647",
    }


def test_a_partition_that_is_named_twice_is_read_once() -> None:
    """A repeated entry is not reported as left out."""
    admitted = check_entries([T1, T0, T1], TOPICS)
    assert admitted.partitions == (T1, T0)
    assert not admitted.left_out


def test_what_can_be_read_becomes_the_assignment() -> None:
    """The assignment is sorted; partitions owned before and not assigned are given up, sorted."""
    other = TopicPartition("s", 3)
    accepted = accept([T1, T0, other], TOPICS, [T0, T1], [T0], [T1, other, TopicPartition("r", 0)])
    assert accepted.received.partitions == (T1, T0)
    assert accepted.assignment == Assignment((T0, T1), [T0, T1], [T0])
    assert accepted.assignment.kept == {T0}
    assert accepted.given_up == (TopicPartition("r", 0), other)


@pytest.mark.parametrize("topic", ["secret", "my topic"])
def test_a_name_is_checked_once(monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    """A topic's name is checked once, however many partitions the topic has."""
    checked: list[str] = []
    name_fault = types.name_fault

    def counting(name: str) -> str | None:
        checked.append(name)
        return name_fault(name)

    monkeypatch.setattr(received_assignment, "name_fault", counting)
    admitted = check_entries([TopicPartition(topic, number) for number in range(100)], TOPICS)
    assert len(admitted.left_out) == 100
    assert checked == [topic]


def test_a_fault_names_some_of_many_topics() -> None:
    """Another member, assigned thousands of foreign topics, does not decide how long a text is."""
    member = MemberSubscription(
        member_id="m", group_instance_id=None, topics=("t",), user_data=None, owned=()
    )
    assigned = tuple(TopicPartition(f"{number:05}" * 1000, 0) for number in range(5000))
    group = DescribeResult(stable=True, members=(member,), assignments={"m": assigned})
    faults, _ = compare({}, group)
    (fault,) = faults
    assert " and 4,980 more, but no subscription" in fault
    assert len(fault) < 2000
