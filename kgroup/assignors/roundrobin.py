"""The round-robin assignor: all partitions dealt in turn, as Kafka's ``RoundRobinAssignor`` does.

Partitions go by topic and number, members in their order; a member that does not subscribe to a
topic is passed over. Neither racks nor what members owned before play a part.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from typing import final

import attrs

from kgroup.assignors.order import in_order, subscribers
from kgroup.model import MemberSubscription, TopicInfo, TopicPartition


@final
@attrs.frozen
class RoundRobinAssignor:
    """Kafka's ``roundrobin``: even over all topics together."""

    name: str = attrs.field(default="roundrobin", init=False)

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """See ``Assignor.assign``."""
        ordered = in_order(members)
        dealt: list[list[TopicPartition]] = [[] for _ in ordered]
        turn = 0
        for topic, places in subscribers(topics, ordered).items():
            count = topics[topic].partitions
            first = bisect_left(places, turn)
            for step in range(min(count, len(places))):
                place = places[(first + step) % len(places)]
                numbers = range(step, count, len(places))
                dealt[place].extend([TopicPartition(topic, number) for number in numbers])
            turn = places[(first + count - 1) % len(places)] + 1
        return {
            member.member_id: partitions for member, partitions in zip(ordered, dealt, strict=True)
        }
