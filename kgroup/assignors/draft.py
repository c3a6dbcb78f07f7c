"""An assignment in the making, where members subscribe to different topics.

Members are ints in the order of their ids, topics places in a layout; who has least is the
smallest of ``count * members + member``.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from typing import Final, final

from kgroup.assignors.order import subscribers
from kgroup.assignors.partition_index import MemberPartitions, PartitionIndex

NOBODY: Final = -1
"""The owner of a partition that nobody has."""

Topics = Sequence[tuple[int, Sequence[int]]]
"""Partitions to walk over: topics in the order of the walk, and of each its indexes."""


@final
class DraftAssignment:
    """Who subscribes to what, and who has what so far."""

    def __init__(self, layout: PartitionIndex, wanted: Sequence[frozenset[str]]) -> None:
        self.layout = layout
        self.members = len(wanted)
        places = {
            topics: frozenset(map(layout.places.__getitem__, topics & layout.places.keys()))
            for topics in set(wanted)
        }
        self.subscribed = [places[topics] for topics in wanted]
        self.subscribers = subscribers(layout, wanted)
        self.sharing = {
            member for members in self.subscribers if len(members) > 1 for member in members
        }
        self.order = sorted(
            range(len(layout.names)), key=lambda topic: (len(self.subscribers[topic]), topic)
        )
        self.owner = [NOBODY] * len(layout)
        self.counts = [0] * self.members

    def give(self, index: int, member: int) -> None:
        """Give a partition that nobody has."""
        self.owner[index] = member
        self.counts[member] += 1

    def unassigned(self) -> Topics:
        """What nobody has."""
        free = []
        for topic in self.order:
            span = self.layout.span(topic)
            owners = self.owner[span.start : span.stop]
            if NOBODY in owners:
                free.append(
                    (topic, [i for i, owner in zip(span, owners, strict=True) if owner < 0])
                )
        return free

    def key(self, member: int) -> int:
        """Sorts members by how many partitions they have, then by their ids."""
        return self.counts[member] * self.members + member

    def least(self, topic: int) -> int:
        """The subscriber of a topic that has least."""
        return min(map(self.key, self.subscribers[topic])) % self.members

    def imbalance(self, counts: Sequence[int]) -> int:
        """The sum of the differences between any two members that share a topic with others."""
        rising = sorted(counts[member] for member in self.sharing)
        return sum(count * (2 * at - len(rising) + 1) for at, count in enumerate(rising))

    def balanced(self) -> bool:
        """Whether no subscriber has two less than somebody who has a partition of the topic.

        A member that has as many partitions as its topics have does not count as one who lacks.
        """
        has = [self.counts[member] for member in self.sharing]
        if not has or max(has) - min(has) <= 1:
            return True
        spans = map(self.layout.span, range(len(self.layout.names)))
        most = [max(self.counts[owner] for owner in self.owner[s.start : s.stop]) for s in spans]
        return all(
            self.counts[member] == sum(len(self.layout.span(topic)) for topic in topics)
            or all(most[topic] <= self.counts[member] + 1 for topic in topics)
            for member, topics in enumerate(self.subscribed)
            if member in self.sharing
        )

    def valid(self) -> bool:
        """Whether every partition is with a subscriber of its topic."""
        return all(
            topic in self.subscribed[member]
            for topic in range(len(self.layout.names))
            for member in set(self.owner[self.layout.starts[topic] : self.layout.starts[topic + 1]])
        )

    def shares(self) -> list[MemberPartitions]:
        """For each member its partitions."""
        shares: list[list[int]] = [[] for _ in range(self.members)]
        for index, member in enumerate(self.owner):
            shares[member].append(index)
        return [MemberPartitions(self.layout, array("i", indexes)) for indexes in shares]
