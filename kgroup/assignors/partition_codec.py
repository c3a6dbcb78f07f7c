"""Partitions by topic as Kafka's blobs carry them: an ARRAY of a STRING and an ARRAY of INT32.

Assignments, the owned partitions of subscriptions and the sticky assignor's user data all have
this shape. A leader of a large group writes and reads a million of them, most of them alone in
their topic, so both are made of few steps for each.

Source: Kafka's protocol guide (ARRAY, STRING, INT32); ConsumerProtocolAssignment.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, final, overload
from weakref import WeakKeyDictionary

from kgroup.assignors.partition_index import MemberPartitions, PartitionIndex
from kgroup.types import LONGEST_TEXT, LONGEST_TOPIC, TopicPartition, by_topic

_LENGTH: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_TWO: Final = struct.Struct(">ii")
_SWAP: Final = sys.byteorder == "little"
_BEFORE: Final = WeakKeyDictionary[PartitionIndex, list[bytes]]()
"""See ``_alone``; thousands of members' shares are packed by one layout."""

_NAMES: Final[dict[bytes, str]] = {}
"""Topics of partitions that were read, by their bytes with the length before them."""
_MANY_NAMES: Final = 20_000
"""So many names are kept at most, and none that is longer than a topic's: other members send them,
and the memory is the process's."""

TopicSpans = Mapping[bytes, tuple[int, int]]
"""For each topic's name, with its length before it, where it starts and how many it has."""


def encode_string(topic: str) -> bytes:
    """A topic's name as a STRING."""
    name = topic.encode()
    return _LENGTH.pack(len(name)) + name


def topic_spans(layout: PartitionIndex) -> TopicSpans:
    """By what to know the topics of a layout."""
    return {
        encode_string(name): (layout.starts[place], len(layout.span(place)))
        for name, place in layout.places.items()
    }


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """The partitions by topic, topics and numbers rising."""
    if isinstance(partitions, MemberPartitions):
        return _pack_share(partitions)
    topics = by_topic(partitions)
    pieces = [_INT.pack(len(topics))]
    for topic, numbers in topics.items():
        pieces += encode_string(topic), _INT.pack(len(numbers)), _ints(numbers)
    return b"".join(pieces)


def _pack_share(share: MemberPartitions) -> bytes:
    layout = share.layout
    topics = list(map(layout.topic_of.__getitem__, share.indexes))
    numbers = _ints(map(layout.number_of.__getitem__, share.indexes))
    counts = Counter(topics)
    pieces: Iterable[bytes]
    if len(counts) == len(topics):
        alone = map(_alone(layout).__getitem__, topics)
        each = struct.unpack("4s" * len(topics), numbers)
        pieces = chain.from_iterable(zip(alone, each, strict=True))
    else:
        pieces = _pieces(layout, counts, numbers)
    return _INT.pack(len(counts)) + b"".join(pieces)


def _pieces(layout: PartitionIndex, counts: Mapping[int, int], numbers: bytes) -> Iterator[bytes]:
    alone, names = _alone(layout), layout.names
    at = 0
    for topic, count in counts.items():
        after = at + count * _INT.size
        if count == 1:
            yield alone[topic]
        else:
            yield encode_string(names[topic])
            yield _INT.pack(count)
        yield numbers[at:after]
        at = after


def _alone(layout: PartitionIndex) -> list[bytes]:
    """For each topic what stands before the number of a partition that is alone in it."""
    if layout not in _BEFORE:
        _BEFORE[layout] = [encode_string(name) + _INT.pack(1) for name in layout.names]
    return _BEFORE[layout]


def decode_indexes(data: bytes, at: int, known: TopicSpans) -> tuple[list[int], int]:
    """The indexes of those partitions in a blob that exist, and where the blob goes on.

    Raises:
        ValueError | IndexError | struct.error: the bytes are not of this shape.
    """
    found: list[int] = []
    (topics,) = _INT.unpack_from(data, at)
    at += _INT.size
    if not 0 <= topics <= len(data):
        raise ValueError(f"an array of {topics} items in {len(data)} bytes")
    # An empty array can be the last there is; then this is read instead of a number after it.
    data += bytes(_INT.size)
    width = 0
    for _ in range(topics):
        # Most names are as long as the one before.
        spot = known.get(data[at : at + width])
        if spot is None:
            length = data[at] << 8 | data[at + 1]
            if length > LONGEST_TEXT:
                raise ValueError("null where a topic must be")
            width = _LENGTH.size + length
            spot = known.get(data[at : at + width])
        count, number = _TWO.unpack_from(data, at + width)
        at += width + _INT.size
        if count == 1:
            at += _INT.size
            if spot is not None and 0 <= number < spot[1]:
                found.append(spot[0] + number)
            continue
        numbers = data[at : at + count * _INT.size]
        if count < 0:
            raise ValueError("null where an array must be")
        at += len(numbers)
        if spot is not None and numbers:
            first, size = spot
            found += [first + number for number in _from_ints(numbers) if 0 <= number < size]
    if at > len(data) - _INT.size:
        raise ValueError("the bytes end too early")
    return found, at


@final
class PartitionList(Sequence[TopicPartition]):
    """Partitions as a member told them; each is made only for who looks at it.

    It compares with any sequence of partitions, by what is in it.

    Attributes:
        topics: for each partition its topic.
        numbers: for each its number.
    """

    __slots__ = ("numbers", "topics")

    def __init__(self, topics: Sequence[str], numbers: Sequence[int]) -> None:
        self.topics = topics
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    @overload
    def __getitem__(self, at: int) -> TopicPartition: ...

    @overload
    def __getitem__(self, at: slice) -> Sequence[TopicPartition]: ...

    def __getitem__(self, at: int | slice) -> TopicPartition | Sequence[TopicPartition]:
        if isinstance(at, slice):
            return PartitionList(self.topics[at], self.numbers[at])
        return TopicPartition(self.topics[at], self.numbers[at])

    def __iter__(self) -> Iterator[TopicPartition]:
        return map(TopicPartition, self.topics, self.numbers)

    def __eq__(self, other: object) -> bool:
        return tuple(self) == tuple(other) if isinstance(other, Sequence) else NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self))

    def __repr__(self) -> str:
        return repr(tuple(self))


def decode_partitions(data: bytes, at: int) -> tuple[PartitionList, int]:
    """The partitions of a blob, and where the blob goes on.

    Raises:
        ValueError | IndexError | struct.error: the bytes are not of this shape, or nothing comes
            after them.
    """
    topics: list[str] = []
    numbers = array("i")
    (count,) = _INT.unpack_from(data, at)
    at += _INT.size
    if len(_NAMES) >= _MANY_NAMES:
        _NAMES.clear()
    width = 0
    for _ in range(checked_count(count, data)):
        # Most names are as long as the one before, and other members have told them as well.
        name = _NAMES.get(data[at : at + width])
        if name is None:
            name, after = decode_string(data, at)
            width = after - at
            if len(name) <= LONGEST_TOPIC and len(_NAMES) < _MANY_NAMES:
                _NAMES[data[at:after]] = name
        count, number = _TWO.unpack_from(data, at + width)
        at += width + _INT.size
        if count == 1:
            topics.append(name)
            numbers.append(number)
        else:
            topics += [name] * checked_count(count, data)
            numbers += _from_ints(data[at : at + count * _INT.size])
        at += count * _INT.size
    if at > len(data):
        raise ValueError("the bytes end too early")
    return PartitionList(topics, numbers), at


def decode_string(data: bytes, at: int) -> tuple[str, int]:
    """A STRING, and where the blob goes on; equal ones are one object, as long as one is used.

    Raises:
        ValueError | IndexError: the bytes are not of this shape, or too few.
    """
    length = data[at] << 8 | data[at + 1]
    at += _LENGTH.size
    if length > LONGEST_TEXT or at + length > len(data):
        raise ValueError(f"a text of {length} bytes in {len(data)}, or null")
    return sys.intern(str(data[at : at + length], "utf-8")), at + length


def checked_count(count: int, data: bytes) -> int:
    """The number of an array's items, if the bytes can hold them.

    Raises:
        ValueError: they cannot, or it is null.
    """
    if not 0 <= count <= len(data):
        raise ValueError(f"an array of {count} items in {len(data)} bytes")
    return count


def _ints(numbers: Iterable[int]) -> bytes:
    packed = array("i", numbers)
    if _SWAP:
        packed.byteswap()
    return packed.tobytes()


def _from_ints(packed: bytes) -> array[int]:
    numbers = array("i", packed)
    if _SWAP:
        numbers.byteswap()
    return numbers
