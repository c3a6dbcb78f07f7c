"""The range assignor: each topic is cut into ranges, as by Kafka's ``RangeAssignor``.

The members of a topic get neighbouring partitions in the order of the members. If the partitions do
not divide evenly, the first members get one more. Topics with the same members and the same number
of partitions are therefore divided in the same way, so that records with the same key in two topics
are read by the same member.

With racks (KIP-881), members first get partitions with a replica in their rack, up to their share.
The rest is given out regardless of racks. This applies to a topic if some member's rack has a
replica and not every partition has one in all racks.

Without racks, topics with the same members and number of partitions are cut in one step: O(members)
for each such set of topics, plus O(partitions) if the ranges are longer than one partition.

INVARIANT: the size of a member's share never depends on racks, only which partitions are in it.
"""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final, final

import attrs

from kgroup.assignors.partition_index import (
    MemberPartitions,
    PartitionIndex,
    static_members_first,
    subscriptions_of,
)
from kgroup.types import MemberSubscription, TopicInfo

_ANY: Final = None
"""The rack of a member without a rack: every partition suits it."""


@final
@attrs.frozen
class RangeAssignor:
    """Kafka's ``range``: topic by topic, in ranges, close to the members' racks."""

    name: str = attrs.field(default="range", init=False)

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> dict[str, MemberPartitions]:
        """See ``Assignor.assign``."""
        ordered = static_members_first(members)
        subscriptions = subscriptions_of(ordered)
        partition_index = PartitionIndex.of_subscribed(topics, subscriptions)
        places = partition_index.subscribers(subscriptions)
        racks = [member.rack_id or _ANY for member in ordered]
        pieces: list[list[Sequence[int]]] = [[] for _ in ordered]
        cuts: list[_Cut] = []
        if any(racks):  # a cut reads every partition of its topic, and most groups have no racks
            for topic, takers in enumerate(places):
                info, start = topics[partition_index.names[topic]], partition_index.starts[topic]
                cuts.append(_Cut(info, start, takers, [racks[member] for member in takers]))
        if any(cut.by_rack for cut in cuts):
            _cut_by_rack(cuts, pieces)
        else:
            _cut_evenly(partition_index, places, pieces)
        return {
            member.member_id: MemberPartitions.of(partition_index, piece)
            for member, piece in zip(ordered, pieces, strict=True)
        }


def _cut_evenly(
    partition_index: PartitionIndex,
    places: Sequence[Sequence[int]],
    pieces: list[list[Sequence[int]]],
) -> None:
    """Cut all topics without regard to racks."""
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for topic, members in enumerate(places):
        alike[len(partition_index.span(topic)), id(members)].append(topic)
    for (count, _), together in alike.items():
        members = places[together[0]]
        starts = [partition_index.starts[topic] for topic in together]
        row = range(starts[0], starts[-1] + 1, count)
        even = starts == list(row)
        least, extra = divmod(count, len(members))
        at = 0
        for nth, member in enumerate(members[:count]):
            width = least + (nth < extra)
            if width == 1 and even:
                piece: Sequence[int] = range(row.start + at, row.stop + at, count)
            else:
                firsts = [start + at for start in starts]
                lasts = [first + width for first in firsts]
                piece = array("i", chain.from_iterable(map(range, firsts, lasts)))
            pieces[member].append(piece)
            at += width


def _cut_by_rack(cuts: Sequence[_Cut], pieces: list[list[Sequence[int]]]) -> None:
    """Cut all topics, by rack where racks apply.

    Topics with the same members and number of partitions are cut in the same way.
    """
    alike: dict[tuple[int, tuple[int, ...]], list[_Cut]] = defaultdict(list)
    for cut in cuts:
        alike[cut.count, tuple(cut.places)].append(cut)
    for together in alike.values():
        if len(together) > 1:
            _match_alike(together)
        elif together[0].by_rack:
            together[0].give_matching()
    for cut in cuts:
        cut.give_rest()
        for member, numbers in cut.given.items():
            pieces[cut.places[member]].append([cut.start + number for number in sorted(numbers)])


@final
class _Cut:
    """The cut of one topic: what each member has been given, and how much more it may get."""

    def __init__(
        self, topic: TopicInfo, start: int, places: Sequence[int], racks: list[str | None]
    ) -> None:
        self.start = start
        self.count = topic.partitions
        self.places = places
        self.racks = racks
        distinct = {of: frozenset(of) for of in set(topic.racks)}
        self.rack_sets = [distinct[of] for of in topic.racks]
        self.by_rack = _racks_matter(racks, self.rack_sets)
        self.given: dict[int, list[int]] = {}
        self._least, self._extra = divmod(self.count, len(places))
        self._free = [True] * self.count
        self._left = self.count

    def racks_of(self, number: int) -> frozenset[str]:
        """The racks that have a replica of a partition."""
        return self.rack_sets[number] if self.rack_sets else frozenset()

    def room(self, member: int) -> int:
        """How many more partitions the member may get; the number only falls."""
        share = self._least + (self._extra > 0)
        return max(0, share - len(self.given.get(member, ())))

    def give(self, member: int, numbers: list[int]) -> None:
        """Give the member partitions, at most as many as it has room for."""
        if not numbers:
            return
        for number in numbers:
            self._free[number] = False
        self._left -= len(numbers)
        given = self.given.setdefault(member, [])
        given.extend(numbers)
        if len(given) > self._least:
            self._extra -= 1

    def give_matching(self) -> None:
        """Give each member in turn the partitions that suit its rack, lowest numbers first."""
        suiting: dict[str | None, list[int]] = defaultdict(list)
        for number, racks in enumerate(self.rack_sets):
            for one in racks:
                suiting[one].append(number)
        remaining: dict[str | None, Iterator[int]] = {
            rack: iter(numbers) for rack, numbers in suiting.items()
        }
        remaining[_ANY] = iter(range(self.count))
        for member, rack in enumerate(self.racks):
            if rack in remaining:
                self.give(member, self._next_free(remaining[rack], self.room(member)))

    def give_rest(self) -> None:
        """Fill up each member in turn, lowest numbers first."""
        remaining = iter(range(self.count))
        for member in range(len(self.places)):
            if not self._left:
                break
            self.give(member, self._next_free(remaining, self.room(member)))

    def _next_free(self, remaining: Iterator[int], most: int) -> list[int]:
        free = (number for number in remaining if self._free[number])
        return list(islice(free, most))


def _racks_matter(racks: list[str | None], rack_sets: Sequence[frozenset[str]]) -> bool:
    """Whether racks apply: members' racks have replicas, but not of every partition in each."""
    here = {rack for rack in racks if rack is not _ANY}
    there = frozenset[str]().union(*rack_sets)
    return not here.isdisjoint(there) and any(of != there for of in rack_sets)


def _match_alike(cuts: list[_Cut]) -> None:
    """Give each partition number, in all topics at once, to the first member that it suits.

    It suits a member that has room, and whose rack has a replica of it in every topic. All topics
    have given out the same numbers so far, so the room in the first topic is the room in all.
    """
    first = cuts[0]
    waiting: dict[str | None, list[int]] = defaultdict(list)
    for member in reversed(range(len(first.places))):
        waiting[first.racks[member]].append(member)
    for number in range(first.count):
        common = frozenset.intersection(*(cut.racks_of(number) for cut in cuts))
        suited: list[int] = []
        for rack in (*common, _ANY):
            queue = waiting.get(rack, [])
            while queue and not first.room(queue[-1]):
                queue.pop()
            suited.extend(queue[-1:])
        if suited:
            for cut in cuts:
                cut.give(min(suited), [number])
