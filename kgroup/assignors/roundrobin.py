"""The round-robin assignor: all partitions dealt in turn, as Kafka's ``RoundRobinAssignor`` does.

Partitions go by topic and number, members in their order; a member that does not subscribe to a
topic is passed over. Neither racks nor what members owned before play a part.

Topics next to each other with the same subscribers are dealt as one, by slices: O(members) where
all subscribe to the same.
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
    topic_sets,
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
        wanted = topic_sets(ordered)
        layout = PartitionIndex.of_subscribed(topics, wanted)
        hands: list[list[Sequence[int]]] = [[] for _ in ordered]
        turn = 0
        for span, places in _stretches(layout, layout.subscribers(wanted)):
            first = bisect_left(places, turn)
            for step in range(min(len(span), len(places))):
                place = places[(first + step) % len(places)]
                hands[place].append(span[step :: len(places)])
            turn = places[(first + len(span) - 1) % len(places)] + 1
        return {
            member.member_id: MemberPartitions.of(layout, hand)
            for member, hand in zip(ordered, hands, strict=True)
        }


def _stretches(
    layout: PartitionIndex, found: Sequence[Sequence[int]]
) -> Iterator[tuple[range, Sequence[int]]]:
    """Indexes next to each other whose topics have the same subscribers, and those."""
    for _, topics in groupby(range(len(found)), key=lambda topic: id(found[topic])):
        stretch = list(topics)
        start, stop = layout.starts[stretch[0]], layout.starts[stretch[-1] + 1]
        yield range(start, stop), found[stretch[0]]
