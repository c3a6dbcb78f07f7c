"""The values: their rules, their order and their texts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.types import (
    INT32_MAX,
    INT64_MAX,
    LONGEST_TEXT,
    Assignment,
    BrokerAddress,
    Cause,
    End,
    Membership,
    OffsetAndMetadata,
    TopicPartition,
    by_topic,
    text_fault,
    topic_fault,
)

PARTITIONS = st.builds(TopicPartition, st.sampled_from(["a", "b", "a-1"]), st.integers(0, 20))


@pytest.mark.parametrize("name", ["a", "A.b_c-9", "...", "x" * 249, "__consumer_offsets"])
def test_valid_names_of_topics(name: str) -> None:
    """Kafka's ``Topic.validate`` accepts these names."""
    assert topic_fault(name) is None


@pytest.mark.parametrize(
    ("name", "fault"),
    [
        ("", "is empty"),
        (".", "is '.' or '..'"),
        ("..", "is '.' or '..'"),
        ("x" * 250, "has 250 characters, more than 249"),
        ("a/b", "has a character other than"),
        ("ä", "has a character other than"),
        ("a\n", "has a character other than"),
        (b"a", "is a bytes, not a str"),
        (None, "is a NoneType, not a str"),
    ],
)
def test_invalid_names_of_topics(name: object, fault: str) -> None:
    """The fault is a phrase that continues a sentence after the name."""
    assert (topic_fault(name) or "").startswith(fault)


def test_partitions_sort_by_topic_and_number() -> None:
    """Partition 10 comes after 9, and the text is Kafka's ``topic-number``."""
    names = [TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 9)]
    assert list(map(str, sorted(names))) == ["a-9", "a-10", "b-0"]


def test_a_broker_is_shown_with_its_address() -> None:
    """This is its text in errors and events."""
    assert str(BrokerAddress(3, "here", 9092)) == "broker 3 at here:9092"


def test_bounds_of_an_offset_to_commit() -> None:
    """Every value that fits into OffsetCommit is accepted, up to the largest."""
    most = OffsetAndMetadata(INT64_MAX, INT32_MAX, "x" * LONGEST_TEXT)
    assert most.offset == INT64_MAX
    assert OffsetAndMetadata(0) == OffsetAndMetadata(0, -1, "")


@pytest.mark.parametrize(
    ("given_", "kind", "words"),
    [
        ((-1,), ValueError, "offset=-1 is refused"),
        ((2**63,), ValueError, "offset=9223372036854775808 is refused"),
        ((True,), TypeError, "offset=True is refused: it must be an int"),
        (("5",), TypeError, "offset='5' is refused"),
        ((1.0,), TypeError, "offset=1.0 is refused"),
        ((0, -2), ValueError, "leader_epoch=-2 is refused"),
        ((0, 2**31), ValueError, "leader_epoch=2147483648 is refused"),
        ((0, None), TypeError, "leader_epoch=None is refused"),
        ((0, -1, None), TypeError, "metadata"),
        ((0, -1, "x" * 32768), ValueError, "metadata='xxx.*has 32768 bytes in UTF-8"),
        ((0, -1, "\ud800"), ValueError, "metadata=.*cannot be encoded in UTF-8"),
    ],
)
def test_an_offset_that_no_request_could_carry(
    given_: tuple[object, ...], kind: type[Exception], words: str
) -> None:
    """It is refused when it is made; later, it would fail other callers' commits too."""
    with pytest.raises(kind, match=words):
        OffsetAndMetadata(*given_)  # type: ignore[arg-type]


@given(st.text())
def test_a_text_is_measured_in_bytes(text: str) -> None:
    """A text without a fault can be encoded in UTF-8, and fits into a STRING."""
    if text_fault(text) is None:
        assert len(text.encode()) <= LONGEST_TEXT


def test_a_character_of_two_bytes_counts_twice() -> None:
    """A text of half as many such characters already has the greatest length."""
    assert text_fault("ä" * (LONGEST_TEXT // 2)) is None
    assert text_fault("ä" * (LONGEST_TEXT // 2 + 1)) == "has 32768 bytes in UTF-8, more than 32767"


@given(now=st.lists(PARTITIONS), before=st.lists(PARTITIONS), retained=st.lists(PARTITIONS))
def test_what_another_member_may_have_owned_meanwhile_is_not_kept(
    now: list[TopicPartition], before: list[TopicPartition], retained: list[TopicPartition]
) -> None:
    """Only retained partitions are kept; others that it has again are added, not removed."""
    assignment = Assignment(now, before, retained)
    assert assignment.kept == set(now) & set(before) & set(retained)
    assert assignment.added == set(now) - assignment.kept
    assert assignment.removed == set(before) - set(now)
    assert (assignment == Assignment(now, before)) == (assignment.kept == set(now) & set(before))


@given(now=st.lists(PARTITIONS), before=st.lists(PARTITIONS))
def test_an_assignment_knows_what_changed(
    now: list[TopicPartition], before: list[TopicPartition]
) -> None:
    """Added and kept make the assignment, removed and kept the one before; it is sorted."""
    assignment = Assignment(now, before)
    assert list(assignment) == sorted(set(now))
    assert len(assignment) == len(set(now))
    assert assignment.added | assignment.kept == set(now)
    assert assignment.removed | assignment.kept == set(before)
    assert not assignment.added & assignment.kept
    assert not assignment.removed & set(now)
    assert all(name in assignment for name in now)
    assert assignment.topics() == tuple(sorted({name.topic for name in now}))


def test_an_assignment_is_a_value() -> None:
    """Assignments are equal if their partitions and those before are equal."""
    one = TopicPartition("a", 0)
    assert Assignment((one,)) == Assignment((one, one))
    assert Assignment((one,)) != Assignment((one,), frozenset({one}))
    assert hash(Assignment((one,))) == hash(Assignment((one,)))
    assert TopicPartition("a", 1) not in Assignment((one,))


@given(st.lists(PARTITIONS, unique=True))
def test_partitions_are_grouped_by_topic(partitions: list[TopicPartition]) -> None:
    """Topics and numbers are sorted, and no partition is missing."""
    named = by_topic(partitions)
    assert list(named) == sorted(named)
    assert all(numbers == sorted(numbers) for numbers in named.values())
    assert {TopicPartition(topic, n) for topic, ns in named.items() for n in ns} == set(partitions)


@pytest.mark.parametrize("cause", list(Cause))
def test_a_cause_says_whether_a_commit_can_succeed(cause: Cause) -> None:
    """A commit cannot succeed only if the membership is lost, or there is no drain."""
    lost = {"fenced", "membership lost", "coordinator lost", "cancelled"}
    assert cause.can_commit is (cause.value not in lost)
    assert End(cause).can_commit is cause.can_commit


def test_the_text_of_an_end() -> None:
    """The text has the cause, and the detail if there is one."""
    assert str(End(Cause.REBALANCE)) == "rebalance"
    assert str(End(Cause.CLOSED, "the block was left")) == "closed: the block was left"
    assert End(Cause.FENCED, "x", ValueError()) == End(Cause.FENCED, "x")


@pytest.mark.parametrize(
    ("instance", "words"),
    [
        (None, "member 'm-1' of group 'orders' in generation 7"),
        ("one", "member 'm-1' (instance 'one') of group 'orders' in generation 7"),
    ],
)
def test_the_text_of_a_membership(instance: str | None, words: str) -> None:
    """This is how errors name member, group and generation."""
    membership = Membership(
        group_id="orders",
        member_id="m-1",
        group_instance_id=instance,
        generation_id=7,
        epoch=1,
        assignor="range",
        leader=False,
    )
    assert str(membership) == words


def test_sorting_compares_no_partitions(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only topics and numbers are compared, which is quick for the many of another member."""

    def compared(one: object, other: object) -> bool:
        raise AssertionError(f"{one} was compared with {other}")

    monkeypatch.setattr(TopicPartition, "__lt__", compared)
    mixed = [TopicPartition(topic, number) for topic in "ba" for number in (2, 0, 1, 2)]
    numbers = [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("b", 2)]
    assert [(name.topic, name.partition) for name in Assignment(mixed)] == numbers
    assert by_topic(mixed) == {"a": [0, 1, 2, 2], "b": [0, 1, 2, 2]}
    assert list(by_topic(mixed)) == ["a", "b"]
