"""A group's topics and members in Kafka's order, and its partitions as integers.

A million ``TopicPartition`` objects take longer to make than to divide among members. The
built-in assignors therefore work on integers: a ``PartitionIndex`` places the partitions of all
topics one after the other, so that each partition is one int (its *index*), and members are their
places in a sorted list. A ``MemberPartitions`` is the result for one member. It is a sequence of
``TopicPartition`` and makes each item only when a caller reads it.

INVARIANTS
    Strings sort by UTF-16 code unit, as Java's ``String.compareTo`` does. Python sorts by code
    point, which differs for characters outside the basic plane.
    The indexes of a ``MemberPartitions`` rise.
"""

from __future__ import annotations

from abc import abstractmethod
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate, chain, compress, islice, pairwise
from typing import Final, Self, final, overload

from kgroup.types import MemberSubscription, TopicInfo, TopicPartition

_UNMARKED: Final = bytes([1, 0]) + bytes(254)
"""Turns each mark into its opposite."""


def java_sort_key(text: str) -> bytes:
    """Make the key that sorts strings as Java does."""
    return text.encode("utf-16-be", "surrogatepass")


def static_members_first(members: Iterable[MemberSubscription]) -> list[MemberSubscription]:
    """Sort members: static ones first, by instance id, then dynamic ones by member id.

    Source: Kafka's ``AbstractPartitionAssignor.MemberInfo``.
    """

    def key(member: MemberSubscription) -> tuple[bool, bytes]:
        instance = member.group_instance_id
        dynamic = instance is None
        return dynamic, java_sort_key(member.member_id if instance is None else instance)

    return sorted(members, key=key)


def by_member_id(members: Iterable[MemberSubscription]) -> list[MemberSubscription]:
    """Sort members by member id alone."""
    return sorted(members, key=lambda member: java_sort_key(member.member_id))


def subscriptions_of(members: Iterable[MemberSubscription]) -> list[frozenset[str]]:
    """Return the topics of each member; members with equal subscriptions share one object.

    In most groups all members subscribe to the same topics, in the same order.
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
    """The partitions of several topics, numbered through in the order of the topics; immutable.

    Attributes:
        names: the topics.
        starts: for each topic the index of its partition 0; the last item is the number of all
            partitions.
        places: for each topic its place among the names.
    """

    __slots__ = ("__weakref__", "_numbers", "_topics", "names", "places", "starts")

    def __init__(self, counts: Mapping[str, int]) -> None:
        self.names = tuple(counts)
        self.starts = [0, *accumulate(counts[name] for name in self.names)]
        self.places = {name: place for place, name in enumerate(self.names)}
        self._numbers: array[int] | None = None
        self._topics: array[int] | None = None

    @classmethod
    def of_subscribed(
        cls, topics: Mapping[str, TopicInfo], subscriptions: Iterable[frozenset[str]]
    ) -> Self:
        """Index the topics that have partitions and subscribers, in Java's order."""
        subscribed = frozenset[str]().union(*set(subscriptions))
        present = [name for name in subscribed & topics.keys() if topics[name].partitions > 0]
        return cls({name: topics[name].partitions for name in sorted(present, key=java_sort_key)})

    def __len__(self) -> int:
        return self.starts[-1]

    def subscribers(self, subscriptions: Sequence[frozenset[str]]) -> list[Sequence[int]]:
        """For each topic the places of its subscribers, rising.

        Topics with exactly the same subscribers share one object.
        """
        groups: dict[frozenset[str], list[int]] = {}
        for place, topics in enumerate(subscriptions):
            groups.setdefault(topics, []).append(place)
        groups_of_topic: list[list[int]] = [[] for _ in self.names]
        for number, topics in enumerate(groups):
            for topic in topics:
                if topic in self.places:
                    groups_of_topic[self.places[topic]].append(number)
        members = list(groups.values())
        known: dict[tuple[int, ...], Sequence[int]] = {}
        found = []
        for numbers in map(tuple, groups_of_topic):
            if numbers not in known:
                known[numbers] = sorted(place for number in numbers for place in members[number])
            found.append(known[numbers])
        return found

    def span(self, place: int) -> range:
        """The indexes of a topic's partitions."""
        return range(self.starts[place], self.starts[place + 1])

    def place_of(self, index: int) -> int:
        """The place of the topic that an index belongs to."""
        return bisect_right(self.starts, index) - 1

    def partition(self, index: int) -> TopicPartition:
        """The partition at an index."""
        place = self.place_of(index)
        return TopicPartition(self.names[place], index - self.starts[place])

    @property
    def number_of(self) -> Sequence[int]:
        """For each index the partition's number; computed at the first use."""
        if self._numbers is None:
            spans = (range(after - start) for start, after in pairwise(self.starts))
            self._numbers = array("i", chain.from_iterable(spans))
        return self._numbers

    @property
    def topic_of(self) -> Sequence[int]:
        """For each index the place of its topic; computed at the first use."""
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


class LazyPartitions(Sequence[TopicPartition]):
    """A sequence that makes each ``TopicPartition`` only when a caller reads it.

    It is equal to any sequence of the same partitions in the same order.
    """

    __slots__ = ()

    @abstractmethod
    def at(self, place: int) -> TopicPartition:
        """Make the partition at a place of this sequence."""

    @overload
    def __getitem__(self, at: int) -> TopicPartition: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[TopicPartition]: ...

    def __getitem__(self, at: int | slice) -> TopicPartition | Sequence[TopicPartition]:
        if isinstance(at, slice):
            return tuple(map(self.at, range(*at.indices(len(self)))))
        return self.at(at)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and tuple(self) == tuple(other)

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        shown = ", ".join(map(str, islice(self, 5)))
        more = ", ..." if len(self) > 5 else ""
        return f"<{type(self).__name__} of {len(self)}: {shown}{more}>"


@final
class MemberPartitions(LazyPartitions):
    """A member's partitions.

    Attributes:
        partition_index: the index that the integers belong to.
        indexes: a range, or an array of ints, that rises.
    """

    __slots__ = ("indexes", "partition_index")

    def __init__(self, partition_index: PartitionIndex, indexes: Sequence[int]) -> None:
        self.partition_index = partition_index
        self.indexes = indexes

    @classmethod
    def of(cls, partition_index: PartitionIndex, parts: Sequence[Sequence[int]]) -> Self:
        """Join disjoint parts."""
        some = [part for part in parts if part]
        if len(some) == 1 and isinstance(some[0], range | array):
            return cls(partition_index, some[0])
        return cls(partition_index, array("i", sorted(chain.from_iterable(some))))

    def runs(self) -> Iterator[tuple[int, Sequence[int]]]:
        """For each topic with a partition in it: the topic's place and its indexes."""
        starts, indexes = self.partition_index.starts, self.indexes
        at, end = 0, len(indexes)
        while at < end:
            place = bisect_right(starts, indexes[at]) - 1
            after = bisect_left(indexes, starts[place + 1], at + 1)
            yield place, indexes[at:after]
            at = after

    def by_topic(self) -> dict[str, list[int]]:
        """The numbers of the partitions by topic."""
        names, starts = self.partition_index.names, self.partition_index.starts
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

    def at(self, place: int) -> TopicPartition:
        """See ``LazyPartitions``."""
        return self.partition_index.partition(self.indexes[place])
