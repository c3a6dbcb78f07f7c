"""Partitions of several topics as numbers on one line, and a member's share of that line.

A million partitions as objects take longer to make than to divide. A ``PartitionIndex`` lines the
topics up, so that a partition is one int (its index); a ``MemberPartitions`` is a sequence of
``TopicPartition`` to whoever reads it, and makes each of them only then.

INVARIANT: the indexes of a share rise.


The orders that Kafka's assignors go by, and who subscribes to what.

INVARIANT: strings sort by UTF-16 code unit, as Java's ``String.compareTo`` has it. Python sorts by
code point, which differs for characters beyond the basic plane.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, compress, pairwise
from typing import Final, Self, final, overload

from kgroup.types import MemberSubscription, TopicInfo, TopicPartition

_UNMARKED: Final = bytes([1, 0]) + bytes(254)
"""Turns each mark into its opposite."""


def mark(marks: bytearray, indexes: Sequence[int]) -> None:
    """Set the marks (0 or 1, by index) of these to 1."""
    if isinstance(indexes, range):
        marks[indexes.start : indexes.stop : indexes.step] = b"\1" * len(indexes)
    else:
        for index in indexes:
            marks[index] = 1


def unmarked(marks: bytearray) -> list[int]:
    """The indexes whose mark is 0, rising."""
    return list(compress(range(len(marks)), marks.translate(_UNMARKED)))


@final
class PartitionIndex:
    """Topics side by side, in the order given; immutable.

    Attributes:
        names: the topics.
        starts: for each topic the index of its partition 0, and at the end the number of all.
        places: for each topic its place among the names.
    """

    __slots__ = ("__weakref__", "_numbers", "_topics", "names", "places", "starts")

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.names = tuple(counts)
        self.starts = [0, *accumulate(counts[name] for name in self.names)]
        self.places = {name: place for place, name in enumerate(self.names)}
        self._numbers: array[int] | None = None
        self._topics: array[int] | None = None

    def __len__(self) -> int:
        return self.starts[-1]

    def span(self, place: int) -> range:
        """The indexes of a topic's partitions."""
        return range(self.starts[place], self.starts[place + 1])

    def place_of(self, index: int) -> int:
        """The topic that an index belongs to."""
        return bisect_right(self.starts, index) - 1

    def partition(self, index: int) -> TopicPartition:
        """The partition at an index."""
        place = self.place_of(index)
        return TopicPartition(self.names[place], index - self.starts[place])

    @property
    def number_of(self) -> Sequence[int]:
        """For each index the partition's number; made when it is first asked for."""
        if self._numbers is None:
            spans = (range(after - start) for start, after in pairwise(self.starts))
            self._numbers = array("i", chain.from_iterable(spans))
        return self._numbers

    @property
    def topic_of(self) -> Sequence[int]:
        """For each index the place of its topic; made when it is first asked for."""
        if self._topics is None:
            topics = array("i")
            for place in range(len(self.names)):
                topics += array("i", [place]) * len(self.span(place))
            self._topics = topics
        return self._topics

    def by_number(self, indexes: Iterable[int]) -> list[int]:
        """Indexes in order of their partition's number, then topic."""
        # The indexes of equal numbers stay in their order, which is that of the topics.
        return sorted(sorted(indexes), key=self.number_of.__getitem__)


@final
class MemberPartitions(Sequence[TopicPartition]):
    """A member's partitions; compares with any sequence of partitions, by what is in it.

    Attributes:
        layout: what the indexes mean.
        indexes: a range, or an array of ints, that rises.
    """

    __slots__ = ("indexes", "layout")

    def __init__(self, layout: PartitionIndex, indexes: Sequence[int]) -> None:
        self.layout = layout
        self.indexes = indexes

    @classmethod
    def of(cls, layout: PartitionIndex, hands: Sequence[Sequence[int]]) -> Self:
        """The share that these hands make up, none of which has what another has."""
        some = [hand for hand in hands if hand]
        if len(some) == 1 and isinstance(some[0], range | array):
            return cls(layout, some[0])
        return cls(layout, array("i", sorted(chain.from_iterable(some))))

    def runs(self) -> Iterator[tuple[int, Sequence[int]]]:
        """For each topic of which there is a partition its place, and the indexes in it."""
        starts, indexes = self.layout.starts, self.indexes
        at, end = 0, len(indexes)
        while at < end:
            place = bisect_right(starts, indexes[at]) - 1
            after = bisect_left(indexes, starts[place + 1], at + 1)
            yield place, indexes[at:after]
            at = after

    def by_topic(self) -> dict[str, list[int]]:
        """The numbers of the partitions by topic."""
        names, starts = self.layout.names, self.layout.starts
        return {
            names[place]: [index - starts[place] for index in indexes]
            for place, indexes in self.runs()
        }

    def __len__(self) -> int:
        return len(self.indexes)

    def __iter__(self) -> Iterator[TopicPartition]:
        for topic, numbers in self.by_topic().items():
            for number in numbers:
                yield TopicPartition(topic, number)

    @overload
    def __getitem__(self, at: int) -> TopicPartition: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[TopicPartition]: ...

    def __getitem__(self, at: int | slice) -> TopicPartition | Sequence[TopicPartition]:
        if isinstance(at, slice):
            return tuple(self)[at]
        return self.layout.partition(self.indexes[at])

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        shown = ", ".join(map(str, self[:5] if len(self) > 5 else self))
        return f"<MemberPartitions of {len(self)}: {shown}{', ...' if len(self) > 5 else ''}>"


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
