"""The range assignor: each topic cut into ranges, as Kafka's ``RangeAssignor`` does it.

The members of a topic, in their order, get neighbouring partitions, the first ones one more where
it does not come out even; so topics with the same members and as many partitions are cut alike,
and what belongs together by key stays together.

With racks (KIP-881) members first get partitions that have a replica in their rack, as far as
their share goes; only what is left is given out regardless. A topic qualifies where its members'
racks meet its partitions' and it makes a difference which partition one reads.

Without racks, topics with the same members and as many partitions are cut in one go: O(members)
for each such set of topics, plus O(partitions) where the pieces are no even row.

INVARIANT: a member's share never depends on racks, only which partitions make it up.
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
    topic_sets,
)
from kgroup.types import MemberSubscription, TopicInfo

_ANY: Final = None
"""The rack of a member that has none: every partition suits it."""


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
        wanted = topic_sets(ordered)
        layout = PartitionIndex.of_subscribed(topics, wanted)
        places = layout.subscribers(wanted)
        racks = [member.rack_id or _ANY for member in ordered]
        pieces: list[list[Sequence[int]]] = [[] for _ in ordered]
        # Making the cuts looks at every partition; most groups have no racks.
        cuts = _cuts(topics, layout, places, racks) if any(racks) else []
        if any(cut.by_rack for cut in cuts):
            _cut_by_rack(cuts, pieces)
        else:
            _cut_evenly(layout, places, pieces)
        return {
            member.member_id: MemberPartitions.of(layout, piece)
            for member, piece in zip(ordered, pieces, strict=True)
        }


def _cut_evenly(
    layout: PartitionIndex, places: Sequence[Sequence[int]], pieces: list[list[Sequence[int]]]
) -> None:
    """Cut all topics without regard to racks."""
    alike: dict[tuple[int, int], list[int]] = defaultdict(list)
    for topic, members in enumerate(places):
        alike[len(layout.span(topic)), id(members)].append(topic)
    for (count, _), together in alike.items():
        members = places[together[0]]
        starts = [layout.starts[topic] for topic in together]
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


def _cuts(
    topics: Mapping[str, TopicInfo],
    layout: PartitionIndex,
    places: Sequence[Sequence[int]],
    racks: Sequence[str | None],
) -> list[_Cut]:
    return [
        _Cut(topics[name], layout.starts[topic], members, [racks[member] for member in members])
        for topic, (name, members) in enumerate(zip(layout.names, places, strict=True))
    ]


def _cut_by_rack(cuts: Sequence[_Cut], pieces: list[list[Sequence[int]]]) -> None:
    """Cut all topics, by rack where that can be."""
    for together in _cut_together(cuts):
        _match_racks(together)
    for cut in cuts:
        cut.give_rest()
        for member, numbers in cut.given.items():
            pieces[cut.places[member]].append([cut.start + number for number in sorted(numbers)])


@final
class _Cut:
    """How one topic is being cut: what each of its members has got, and may still get."""

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
        """How many more partitions the member may get; it only ever falls."""
        share = self._least + (self._extra > 0)
        return max(0, share - len(self.given.get(member, ())))

    def give(self, member: int, numbers: list[int]) -> None:
        """Give the member partitions, no more than it has room for."""
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
        """Give each member in turn what suits its rack, lowest numbers first."""
        suiting: dict[str | None, list[int]] = defaultdict(list)
        for number, racks in enumerate(self.rack_sets):
            for one in racks:
                suiting[one].append(number)
        unseen: dict[str | None, Iterator[int]] = {
            rack: iter(numbers) for rack, numbers in suiting.items()
        }
        unseen[_ANY] = iter(range(self.count))
        for member, rack in enumerate(self.racks):
            if rack in unseen:
                self.give(member, self._next_free(unseen[rack], self.room(member)))

    def give_rest(self) -> None:
        """Give each member in turn what it still has room for, lowest numbers first."""
        unseen = iter(range(self.count))
        for member in range(len(self.places)):
            if not self._left:
                break
            self.give(member, self._next_free(unseen, self.room(member)))

    def _next_free(self, unseen: Iterator[int], most: int) -> list[int]:
        free = (number for number in unseen if self._free[number])
        return list(islice(free, most))


def _racks_matter(racks: list[str | None], rack_sets: Sequence[frozenset[str]]) -> bool:
    """Whether a topic qualifies: racks meet, and not every partition is in all of them."""
    here = {rack for rack in racks if rack is not _ANY}
    there = frozenset[str]().union(*rack_sets)
    return not here.isdisjoint(there) and any(of != there for of in rack_sets)


def _cut_together(cuts: Sequence[_Cut]) -> list[list[_Cut]]:
    """Topics of the same members and as many partitions, which are to be cut alike."""
    alike: dict[tuple[int, tuple[int, ...]], list[_Cut]] = defaultdict(list)
    for cut in cuts:
        alike[cut.count, tuple(cut.places)].append(cut)
    return list(alike.values())


def _match_racks(together: list[_Cut]) -> None:
    if len(together) > 1:
        _match_alike(together)
    elif together[0].by_rack:
        together[0].give_matching()


def _match_alike(cuts: list[_Cut]) -> None:
    """Give each partition number, in all topics at once, to the first member that it suits.

    It suits a member that has room and, in every one of the topics, a replica in its rack. All
    topics have given the same so far, so that the room in the first is that in all.
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
