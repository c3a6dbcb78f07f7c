"""What of an assignment is read, and what is left out by name."""

from __future__ import annotations

import pytest

from kgroup import types
from kgroup.generation import received_assignment
from kgroup.generation.received_assignment import accept, check_entries
from kgroup.types import Assignment, TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
TOPICS = frozenset({"t"})


@pytest.mark.parametrize(
    "topic", ["", ".", "..", "a" * 250, "a" * 512, "a" * 513, "my topic", "ü", "a\0b", "a/b"]
)
def test_an_impossible_name_is_left_out_and_named(topic: str) -> None:
    """The rest is admitted; the fault is the one that settings have too."""
    admitted = check_entries([T0, TopicPartition(topic, 0), T1], TOPICS)
    assert admitted.partitions == (T0, T1)
    ((entry, fault),) = admitted.left_out.items()
    assert entry == f"{topic!r:.80}-0"
    assert fault.startswith("the topic's name ")


@pytest.mark.parametrize("number", [-1, -(2**31)])
def test_an_impossible_number_is_left_out(number: int) -> None:
    """A partition has a number from 0 up."""
    admitted = check_entries([TopicPartition("t", number), T0], TOPICS)
    assert admitted.partitions == (T0,)
    assert list(admitted.left_out.values()) == ["its number is not 0 to 2147483647"]


def test_a_topic_that_is_not_subscribed_is_left_out() -> None:
    """A leader does not decide what this program reads; what cannot be read is not foreign."""
    secret = TopicPartition("secret", 0)
    admitted = check_entries([secret, T0, TopicPartition("secret", -1), secret], TOPICS)
    assert admitted.partitions == (T0,)
    assert admitted.foreign == {"secret"}
    assert admitted.left_out == {
        "'secret'-0": "this member does not subscribe to the topic",
        "'secret'--1": "its number is not 0 to 2147483647",
    }


def test_a_partition_that_is_named_twice_is_read_once() -> None:
    """Nothing is left out by that."""
    admitted = check_entries([T1, T0, T1], TOPICS)
    assert admitted.partitions == (T1, T0)
    assert not admitted.left_out


def test_what_can_be_read_becomes_the_assignment() -> None:
    """What can be read, sorted, beside what was before; what it owned and has no more, sorted."""
    other = TopicPartition("s", 3)
    accepted = accept([T1, T0, other], TOPICS, [T0], [T1, other, TopicPartition("r", 0)])
    assert accepted.received.partitions == (T1, T0)
    assert accepted.assignment == Assignment((T0, T1), [T0])
    assert accepted.assignment.kept == {T0}
    assert accepted.given_up == (TopicPartition("r", 0), other)


@pytest.mark.parametrize("topic", ["secret", "my topic"])
def test_a_name_is_checked_once(monkeypatch: pytest.MonkeyPatch, topic: str) -> None:
    """However many partitions of the topic there are."""
    checked: list[str] = []
    name_fault = types.name_fault

    def counting(name: str) -> str | None:
        checked.append(name)
        return name_fault(name)

    monkeypatch.setattr(received_assignment, "name_fault", counting)
    admitted = check_entries([TopicPartition(topic, number) for number in range(100)], TOPICS)
    assert len(admitted.left_out) == 100
    assert checked == [topic]
