"""The orders that Kafka's assignors go by, and who subscribes to what.

INVARIANT: strings sort by UTF-16 code unit, as Java's ``String.compareTo`` has it. Python sorts by
code point, which differs for characters beyond the basic plane.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kgroup.assignors.partition_index import PartitionIndex
from kgroup.types import MemberSubscription, TopicInfo


def java_order(text: str) -> bytes:
    """The key by which Java sorts a string."""
    return text.encode("utf-16-be", "surrogatepass")


def in_order(members: Iterable[MemberSubscription]) -> list[MemberSubscription]:
    """Static members first, by instance id, then dynamic ones by member id.

    Source: Kafka's ``AbstractPartitionAssignor.MemberInfo``.
    """

    def key(member: MemberSubscription) -> tuple[bool, bytes]:
        instance = member.group_instance_id
        dynamic = instance is None
        return dynamic, java_order(member.member_id if instance is None else instance)

    return sorted(members, key=key)


def by_id(members: Iterable[MemberSubscription]) -> list[MemberSubscription]:
    """Members by their ids alone."""
    return sorted(members, key=lambda member: java_order(member.member_id))


def subscriptions(members: Iterable[MemberSubscription]) -> list[frozenset[str]]:
    """What each member subscribes to; members that subscribe to the same have the same object.

    In most groups all members do, and most often they list it in one order.
    """
    known: dict[frozenset[str], frozenset[str]] = {}
    found: list[frozenset[str]] = []
    before: tuple[str, ...] | None = None
    topics = frozenset[str]()
    for member in members:
        if member.topics != before:
            before = member.topics
            topics = frozenset(before)
            topics = known.setdefault(topics, topics)
        found.append(topics)
    return found


def lay_out(topics: Mapping[str, TopicInfo], wanted: Iterable[frozenset[str]]) -> PartitionIndex:
    """The topics that have partitions and subscribers, in Java's order."""
    subscribed = frozenset[str]().union(*set(wanted))
    there = [name for name in subscribed & topics.keys() if topics[name].partitions > 0]
    return PartitionIndex({name: topics[name].partitions for name in sorted(there, key=java_order)})


def subscribers(layout: PartitionIndex, wanted: Sequence[frozenset[str]]) -> list[Sequence[int]]:
    """For each topic the places of its subscribers, rising.

    Topics that the very same members subscribe to have the same object.
    """
    groups: dict[frozenset[str], list[int]] = {}
    for place, topics in enumerate(wanted):
        groups.setdefault(topics, []).append(place)
    of_topic: list[list[int]] = [[] for _ in layout.names]
    for number, topics in enumerate(groups):
        for topic in topics:
            if topic in layout.places:
                of_topic[layout.places[topic]].append(number)
    members = list(groups.values())
    known: dict[tuple[int, ...], Sequence[int]] = {}
    found = []
    for numbers in map(tuple, of_topic):
        if numbers not in known:
            known[numbers] = sorted(place for number in numbers for place in members[number])
        found.append(known[numbers])
    return found
