"""The range assignor: each topic cut into ranges, as Kafka's ``RangeAssignor`` does it.

The members of a topic, in their order, get neighbouring partitions, the first ones one more where
it does not come out even; so topics with the same members and as many partitions are cut alike,
and what belongs together by key stays together.

With racks (KIP-881) members first get partitions that have a replica in their rack, as far as
their share goes; only what is left is given out regardless. A topic qualifies where its members'
racks meet its partitions' and it makes a difference which partition one reads.

INVARIANT: a member's share never depends on racks, only which partitions make it up.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, final

import attrs

from kgroup.assignors.order import in_order, subscribers
from kgroup.model import MemberSubscription, TopicInfo, TopicPartition

_ANY: Final = None
"""The rack of a member that has none: every partition suits it."""


@final
@attrs.frozen
class RangeAssignor:
    """Kafka's ``range``: topic by topic, in ranges, close to the members' racks."""

    name: str = attrs.field(default="range", init=False)

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """See ``Assignor.assign``."""
        ordered = in_order(members)
        racks = [member.rack_id or _ANY for member in ordered]
        cuts = [
            _Cut(topics[topic], places, [racks[place] for place in places])
            for topic, places in subscribers(topics, ordered).items()
        ]
        if any(cut.by_rack for cut in cuts):
            for together in _cut_together(cuts):
                _match_racks(together)
        ranges: list[list[TopicPartition]] = [[] for _ in ordered]
        for cut in cuts:
            cut.give_rest()
            for member, numbers in cut.given.items():
                partitions = [TopicPartition(cut.name, number) for number in sorted(numbers)]
                ranges[cut.places[member]].extend(partitions)
        return {
            member.member_id: partitions for member, partitions in zip(ordered, ranges, strict=True)
        }


@final
class _Cut:
    """How one topic is being cut: what each of its members has got, and may still get."""

    def __init__(self, topic: TopicInfo, places: list[int], racks: list[str | None]) -> None:
        self.name = topic.name
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
