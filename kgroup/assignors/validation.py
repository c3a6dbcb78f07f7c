"""Checks an assignor's result before the leader sends it, since a mistake would affect all members.

A partition that no member gets is not a mistake, because a custom assignor may intend it. It is
reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, final

import attrs

from kgroup.assignors.partition_index import (
    MemberPartitions,
    PartitionIndex,
    mark,
    subscriptions_of,
    unmarked,
)
from kgroup.errors import InvalidAssignmentError
from kgroup.types import MemberAssignments, MemberSubscription, TopicInfo, TopicPartition

_SHOWN: Final = 5
"""The number of faults that an error lists."""

_Owners = dict[str, list[str | None]]
"""For each topic, by partition number, the member that has it. These are lists because hashing a
million partitions takes longer than assigning them."""


@final
@attrs.frozen(kw_only=True)
class CheckedAssignments:
    """Assignments that a group can follow.

    Attributes:
        assignments: the partitions of every member of the group, in the assignor's order.
        unassigned: partitions of subscribed topics that no member gets, sorted.
    """

    assignments: MemberAssignments
    unassigned: tuple[TopicPartition, ...]


def check_assignments(
    assignor: str,
    topics: Mapping[str, TopicInfo],
    members: Iterable[MemberSubscription],
    assignments: Any,
) -> CheckedAssignments:
    """Refuse a result with a partition that does not exist, is given twice or to a wrong member.

    Args:
        assignor: the assignor's name, for the error.
        topics: the topics that it was given.
        members: the members that it was given.
        assignments: what it returned; a custom assignor can return anything.

    Raises:
        InvalidAssignmentError: it lists the first faults and counts the others.
    """
    known = list(members)
    subscriptions = dict(zip((m.member_id for m in known), subscriptions_of(known), strict=True))
    free = _free(topics, subscriptions, assignments)
    if free is not None:
        return CheckedAssignments(
            assignments={member: assignments.get(member, ()) for member in subscriptions},
            unassigned=tuple(free),
        )
    owners: _Owners = {name: [None] * topic.partitions for name, topic in topics.items()}
    lists, faults = _lists(assignments, subscriptions)
    if not faults:
        faults = list(_faults(owners, subscriptions, lists))
    if faults:
        shown = "; ".join(faults[:_SHOWN])
        more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise InvalidAssignmentError(
            f"assignor {assignor!r} returned an invalid assignment: {shown}{more}."
            " It was not sent to any member"
        )
    unassigned = (
        TopicPartition(topic, number)
        for topic in sorted(frozenset[str]().union(*subscriptions.values()) & topics.keys())
        for number, owner in enumerate(owners[topic])
        if owner is None
    )
    return CheckedAssignments(
        assignments={member: lists.get(member, ()) for member in subscriptions},
        unassigned=tuple(unassigned),
    )


def _free(
    topics: Mapping[str, TopicInfo], subscriptions: Mapping[str, frozenset[str]], assignments: Any
) -> MemberPartitions | None:
    """The unassigned partitions, if the result is of one ``PartitionIndex`` and has no fault.

    The built-in assignors return such results, and to check a million partitions one by one takes
    longer than to divide them. Anything else gives None, and is then checked one by one.
    """
    shares = _shares(assignments)
    partition_index = next((share.partition_index for share in shares.values()), None)
    if partition_index is None or not shares.keys() <= subscriptions.keys():
        return None
    expected = PartitionIndex.of_subscribed(topics, subscriptions.values())
    if (partition_index.names, partition_index.starts) != (expected.names, expected.starts):
        return None
    everything = {
        topics for topics in set(subscriptions.values()) if topics.issuperset(partition_index.names)
    }
    taken = bytearray(len(partition_index))
    for member, share in shares.items():
        subscribed = subscriptions[member]
        if subscribed not in everything and not all(
            partition_index.names[place] in subscribed for place, _ in share.runs()
        ):
            return None
        mark(taken, share.indexes)
    if taken.count(1) != sum(map(len, shares.values())):
        return None
    return MemberPartitions(partition_index, unmarked(taken))


def _shares(assignments: Any) -> dict[str, MemberPartitions]:
    """The result itself if all its values are of one ``PartitionIndex``, else nothing."""
    if not isinstance(assignments, Mapping):
        return {}
    given = list(assignments.values())
    if all(
        type(share) is MemberPartitions and share.partition_index is given[0].partition_index
        for share in given
    ):
        return dict(assignments)
    return {}


def _lists(
    assignments: Any, members: Mapping[str, object]
) -> tuple[dict[str, tuple[TopicPartition, ...]], list[str]]:
    """The result as partitions by member, and the faults that prevent that."""
    if not isinstance(assignments, Mapping):
        fault = f"it is a {type(assignments).__name__}, not a mapping of member ids to partitions"
        return {}, [fault]
    lists: dict[str, tuple[TopicPartition, ...]] = {}
    faults: list[str] = []
    for member, given in assignments.items():
        if member not in members:
            faults.append(f"{member!r} gets {_shortened(given)}, but is not a member of the group")
        elif isinstance(given, str | bytes) or not isinstance(given, Iterable):
            faults.append(f"member {member!r} gets {given!r}, which is not a list of partitions")
        else:
            lists[member] = tuple(given)
            faults.extend(
                f"member {member!r} gets {one!r}, which is not a TopicPartition"
                for one in lists[member]
                if not _is_partition(one)
            )
    return lists, faults


def _is_partition(one: Any) -> bool:
    return type(one) is TopicPartition and type(one.topic) is str and type(one.partition) is int


def _shortened(given: Any) -> str:
    """Describe the partitions of an unknown member, shortened."""
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        return "something"
    shown = ", ".join(map(str, given[:_SHOWN]))
    return f"{shown}{', ...' if len(given) > _SHOWN else ''}" or "nothing"


def _faults(
    owners: _Owners,
    subscriptions: Mapping[str, frozenset[str]],
    lists: Mapping[str, tuple[TopicPartition, ...]],
) -> Iterator[str]:
    """The faults of the lists; fills in the owner of every partition."""
    for member, partitions in lists.items():
        subscribed = subscriptions[member]
        for partition in partitions:
            topic, number = partition.topic, partition.partition
            slots = owners.get(topic)
            if slots is None:
                yield f"member {member!r} gets {partition}, of a topic that does not exist"
            elif not 0 <= number < len(slots):
                yield f"member {member!r} gets {partition}, but the topic has {len(slots)}"
            elif topic not in subscribed:
                yield f"member {member!r} gets {partition}, but does not subscribe to the topic"
            elif slots[number] is not None:
                yield f"{partition} goes to {slots[number]!r} and again to {member!r}"
            else:
                slots[number] = member
