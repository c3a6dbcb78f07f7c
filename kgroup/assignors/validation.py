"""Looks at what an assignor answers before the group is told: a leader's mistake is everybody's.

A partition that nobody gets is no mistake, a custom assignor may mean it; it is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, final

import attrs

from kgroup.assignors.partition_index import (
    MemberPartitions,
    PartitionIndex,
    mark,
    topic_sets,
    unmarked,
)
from kgroup.errors import InvalidAssignmentError
from kgroup.types import MemberAssignments, MemberSubscription, TopicInfo, TopicPartition

_SHOWN: Final = 5
"""Faults that the error names one by one."""

_Owners = dict[str, list[str | None]]
"""For each topic, by partition number, the member that has it. Lists, because hashing a million
partitions takes longer than the assignor did."""


@final
@attrs.frozen(kw_only=True)
class CheckedAssignments:
    """Assignments that a group can follow.

    Attributes:
        assignments: for every member of the group its partitions, in the assignor's order.
        unassigned: partitions that somebody subscribes to and nobody gets, sorted.
    """

    assignments: MemberAssignments
    unassigned: tuple[TopicPartition, ...]


def check_assignments(
    assignor: str,
    topics: Mapping[str, TopicInfo],
    members: Iterable[MemberSubscription],
    assignments: Any,
) -> CheckedAssignments:
    """Refuse an answer in which a partition is not there, given twice, or given to the wrong one.

    Args:
        assignor: the assignor's name, for the error.
        topics: what it was given.
        members: what it was given.
        assignments: what it answered; a custom assignor can answer anything.

    Raises:
        InvalidAssignmentError: it names the first faults and counts them all.
    """
    known = list(members)
    wanted = dict(zip((m.member_id for m in known), topic_sets(known), strict=True))
    free = _free(topics, wanted, assignments)
    if free is not None:
        return CheckedAssignments(
            assignments={member: assignments.get(member, ()) for member in wanted},
            unassigned=tuple(free),
        )
    owners: _Owners = {name: [None] * topic.partitions for name, topic in topics.items()}
    lists, faults = _lists(assignments, wanted)
    if not faults:
        faults = list(_faults(owners, wanted, lists))
    if faults:
        shown = "; ".join(faults[:_SHOWN])
        more = f"; and {len(faults) - _SHOWN} more" if len(faults) > _SHOWN else ""
        raise InvalidAssignmentError(
            f"assignor {assignor!r} gave an assignment that no group may follow: {shown}{more}."
            " It was not sent; no member has got it"
        )
    unassigned = (
        TopicPartition(topic, number)
        for topic in sorted(frozenset[str]().union(*wanted.values()) & topics.keys())
        for number, owner in enumerate(owners[topic])
        if owner is None
    )
    return CheckedAssignments(
        assignments={member: lists.get(member, ()) for member in wanted},
        unassigned=tuple(unassigned),
    )


def _free(
    topics: Mapping[str, TopicInfo], wanted: Mapping[str, frozenset[str]], assignments: Any
) -> MemberPartitions | None:
    """What nobody gets, where the answer is the shares of one layout and has no fault.

    So the built-in assignors answer; to look at a million partitions one by one takes longer than
    to divide them. None where it is anything else: that is looked at to name the faults.
    """
    shares = _shares(assignments)
    layout = next((share.layout for share in shares.values()), None)
    if layout is None or not shares.keys() <= wanted.keys():
        return None
    of_all = PartitionIndex.of_subscribed(topics, wanted.values())
    if (layout.names, layout.starts) != (of_all.names, of_all.starts):
        return None
    everything = {topics for topics in set(wanted.values()) if topics.issuperset(layout.names)}
    taken = bytearray(len(layout))
    for member, share in shares.items():
        subscribed = wanted[member]
        if subscribed not in everything and not all(
            layout.names[place] in subscribed for place, _ in share.runs()
        ):
            return None
        mark(taken, share.indexes)
    if taken.count(1) != sum(map(len, shares.values())):
        return None
    return MemberPartitions(layout, unmarked(taken))


def _shares(assignments: Any) -> dict[str, MemberPartitions]:
    """The answer itself, if it is the shares of one layout, else nothing."""
    if not isinstance(assignments, Mapping):
        return {}
    given = list(assignments.values())
    if all(type(share) is MemberPartitions and share.layout is given[0].layout for share in given):
        return dict(assignments)
    return {}


def _lists(
    assignments: Any, members: Mapping[str, object]
) -> tuple[dict[str, tuple[TopicPartition, ...]], list[str]]:
    """The answer as partitions by member, and what keeps it from being that."""
    if not isinstance(assignments, Mapping):
        fault = f"it is a {type(assignments).__name__}, not a mapping of member ids to partitions"
        return {}, [fault]
    lists: dict[str, tuple[TopicPartition, ...]] = {}
    faults: list[str] = []
    for member, given in assignments.items():
        if member not in members:
            faults.append(f"{member!r} gets {_told(given)}, but is no member of the group")
        elif isinstance(given, str | bytes) or not isinstance(given, Iterable):
            faults.append(f"member {member!r} gets {given!r}, which is no list of partitions")
        else:
            lists[member] = tuple(given)
            faults.extend(
                f"member {member!r} gets {one!r}, which is no TopicPartition"
                for one in lists[member]
                if not _is_partition(one)
            )
    return lists, faults


def _is_partition(one: Any) -> bool:
    return type(one) is TopicPartition and type(one.topic) is str and type(one.partition) is int


def _told(given: Any) -> str:
    """What a stranger gets, as far as it is short."""
    if not isinstance(given, Sequence) or isinstance(given, str | bytes):
        return "something"
    shown = ", ".join(map(str, given[:_SHOWN]))
    return f"{shown}{', ...' if len(given) > _SHOWN else ''}" or "nothing"


def _faults(
    owners: _Owners,
    wanted: Mapping[str, frozenset[str]],
    lists: Mapping[str, tuple[TopicPartition, ...]],
) -> Iterator[str]:
    """What is wrong with the lists; notes the owner of every partition on the way."""
    for member, partitions in lists.items():
        subscribed = wanted[member]
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
