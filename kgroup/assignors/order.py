"""The orders that Kafka's assignors go by.

INVARIANT: strings sort by UTF-16 code unit, as Java's ``String.compareTo`` has it. Python sorts by
code point, which differs for characters beyond the basic plane.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kgroup.layout import Layout
from kgroup.model import MemberSubscription, TopicInfo


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


def subscribers(
    topics: Mapping[str, TopicInfo], members: Iterable[MemberSubscription]
) -> dict[str, list[int]]:
    """For each topic that has partitions and subscribers, their places among the members.

    The topics are in Java's order, the places rise.
    """
    places: dict[str, list[int]] = {
        name: [] for name in sorted(topics, key=java_order) if topics[name].partitions > 0
    }
    for place, member in enumerate(members):
        for topic in dict.fromkeys(member.topics):
            if topic in places:
                places[topic].append(place)
    return {topic: found for topic, found in places.items() if found}


def lay_out(topics: Mapping[str, TopicInfo], members: Iterable[MemberSubscription]) -> Layout:
    """The topics that have partitions and subscribers, in Java's order."""
    wanted = frozenset[str]().union(*{frozenset(member.topics) for member in members})
    there = [name for name in wanted & topics.keys() if topics[name].partitions > 0]
    return Layout({name: topics[name].partitions for name in sorted(there, key=java_order)})
