"""Which results of an assignor are accepted, and which are refused before SyncGroup."""

from __future__ import annotations

import re
from array import array
from typing import Any

import pytest

from kgroup.assignors.partition_index import MemberPartitions, PartitionIndex
from kgroup.assignors.validation import check_assignments
from kgroup.errors import InvalidAssignmentError
from kgroup.types import MemberSubscription, TopicInfo, TopicPartition

TOPICS = {
    "t": TopicInfo(name="t", partitions=2),
    "u": TopicInfo(name="u", partitions=1),
    "none": TopicInfo(name="none", partitions=0),
}
MEMBERS = (
    MemberSubscription(member_id="m1", topics=("t", "none")),
    MemberSubscription(member_id="m2", topics=("t",)),
    MemberSubscription(member_id="m3", topics=("gone",)),
)
T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


def test_every_member_is_in_the_answer() -> None:
    """A member that was left out gets an empty assignment."""
    checked = check_assignments("mine", TOPICS, MEMBERS, {"m1": iter([T1, T0])})
    assert checked.assignments == {"m1": (T1, T0), "m2": (), "m3": ()}
    assert checked.unassigned == ()


def test_unassigned_partitions_are_reported() -> None:
    """A partition that no member gets is reported if a member subscribes to its topic."""
    assert check_assignments("mine", TOPICS, MEMBERS, {"m2": [T1]}).unassigned == (T0,)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (None, "it is a NoneType, not a mapping"),
        ([("m1", [T0])], "it is a list, not a mapping"),
        ({"m9": [T0, T1]}, "'m9' gets t-0, t-1, but is not a member of the group"),
        ({"m9": [T0] * 6}, "t-0, ..., but is not a member of the group"),
        ({"m9": ()}, "'m9' gets nothing, but is not a member of the group"),
        ({"m9": None}, "'m9' gets something, but is not a member of the group"),
        ({None: [T0]}, "None gets t-0, but is not a member of the group"),
        ({"m1": 7}, "member 'm1' gets 7, which is not a list of partitions"),
        ({"m1": "t-0"}, "member 'm1' gets 't-0', which is not a list of partitions"),
        ({"m1": [("t", 0)]}, "member 'm1' gets ('t', 0), which is not a TopicPartition"),
        ({"m1": [TopicPartition("t", True)]}, "which is not a TopicPartition"),
        ({"m1": [TopicPartition([], 0)]}, "which is not a TopicPartition"),  # type: ignore[arg-type]
        ({"m1": [TopicPartition("v", 0)]}, "member 'm1' gets v-0, of a topic that does not exist"),
        ({"m1": [TopicPartition("t", 2)]}, "member 'm1' gets t-2, but the topic has 2"),
        ({"m1": [TopicPartition("t", -1)]}, "member 'm1' gets t--1, but the topic has 2"),
        ({"m1": [TopicPartition("none", 0)]}, "member 'm1' gets none-0, but the topic has 0"),
        ({"m1": [U0]}, "member 'm1' gets u-0, but does not subscribe to the topic"),
        ({"m1": [T0], "m2": [T0]}, "t-0 goes to 'm1' and again to 'm2'"),
        ({"m1": [T0, T0]}, "t-0 goes to 'm1' and again to 'm1'"),
    ],
)
def test_a_mistake_is_refused(answer: Any, fault: str) -> None:
    """Each mistake is one error that names the assignor, the member and the partition."""
    with pytest.raises(InvalidAssignmentError, match=re.escape(fault)) as refusal:
        check_assignments("mine", TOPICS, MEMBERS, answer)
    assert "assignor 'mine'" in str(refusal.value)


def test_many_mistakes_are_one_error() -> None:
    """The first faults are named, the others counted."""
    answer = {"m1": [TopicPartition("v", number) for number in range(8)]}
    with pytest.raises(InvalidAssignmentError, match="v-4.*and 3 more"):
        check_assignments("mine", TOPICS, MEMBERS, answer)


def share(*indexes: int, partition_index: PartitionIndex | None = None) -> MemberPartitions:
    """The partitions of a member, as built-in assignors return them; index 0 is t-0, 1 is t-1."""
    return MemberPartitions(
        WHOLE if partition_index is None else partition_index, array("i", indexes)
    )


WHOLE = PartitionIndex({"t": 2})
WIDER = PartitionIndex({"t": 3, "u": 1})


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        ({"m1": share(0), "m9": share(1)}, "'m9' gets t-1, but is not a member of the group"),
        ({"m1": share(0, 1), "m2": share(1)}, "t-1 goes to 'm1' and again to 'm2'"),
        ({"m1": share(0, 0)}, "t-0 goes to 'm1' and again to 'm1'"),
        ({"m3": share(0)}, "member 'm3' gets t-0, but does not subscribe to the topic"),
        ({"m1": share(2, partition_index=WIDER)}, "member 'm1' gets t-2, but the topic has 2"),
        ({"m1": share(3, partition_index=WIDER)}, "member 'm1' gets u-0, but does not subscribe"),
    ],
)
def test_a_mistake_in_member_partitions_is_refused(answer: Any, fault: str) -> None:
    """The same mistakes in `MemberPartitions` are found and named too."""
    with pytest.raises(InvalidAssignmentError, match=re.escape(fault)):
        check_assignments("mine", TOPICS, MEMBERS, answer)


def test_member_partitions_and_lists_may_be_mixed() -> None:
    """A result may mix lists and `MemberPartitions`, also of several indexes."""
    for second in ([T1], share(1, partition_index=WIDER)):
        checked = check_assignments("mine", TOPICS, MEMBERS, {"m1": share(0), "m2": second})
        assert checked.assignments == {"m1": (T0,), "m2": (T1,), "m3": ()}
        assert checked.unassigned == ()
