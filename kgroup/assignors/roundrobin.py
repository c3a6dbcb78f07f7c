"""The round-robin assignor: all partitions are dealt in turn, as by Kafka's ``RoundRobinAssignor``.

Partitions are sorted by topic and number, and members by `static_members_first`. A member that does
not subscribe to a topic is skipped. Neither racks nor owned partitions play a part.

Neighbouring topics with the same subscribers are dealt together, by slices, which costs O(members)
if all members subscribe to the same topics.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from typing import final

import attrs

from kgroup.assignors.partition_index import (
    MemberPartitions,
    PartitionIndex,
    static_members_first,
    subscriptions_of,
)
from kgroup.types import MemberSubscription, TopicInfo


@final
@attrs.frozen
class RoundRobinAssignor:
    """Kafka's ``roundrobin``: even over all topics together."""

    name: str = attrs.field(default="roundrobin", init=False)

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> dict[str, MemberPartitions]:
        """See ``Assignor.assign``."""
        ordered = static_members_first(members)
        subscriptions = subscriptions_of(ordered)
        partition_index = PartitionIndex.of_subscribed(topics, subscriptions)
        parts: list[list[Sequence[int]]] = [[] for _ in ordered]
        turn = 0
        for span, places in _stretches(partition_index, partition_index.subscribers(subscriptions)):
            first = bisect_left(places, turn)
            for step in range(min(len(span), len(places))):
                place = places[(first + step) % len(places)]
                parts[place].append(span[step :: len(places)])
            turn = places[(first + len(span) - 1) % len(places)] + 1
        return {
            member.member_id: MemberPartitions.of(partition_index, part)
            for member, part in zip(ordered, parts, strict=True)
        }


def _stretches(
    partition_index: PartitionIndex, found: Sequence[Sequence[int]]
) -> Iterator[tuple[range, Sequence[int]]]:
    """Ranges of indexes whose topics have the same subscribers, each with these subscribers."""
    for _, topics in groupby(range(len(found)), key=lambda topic: id(found[topic])):
        stretch = list(topics)
        start, stop = partition_index.starts[stretch[0]], partition_index.starts[stretch[-1] + 1]
        yield range(start, stop), found[stretch[0]]
