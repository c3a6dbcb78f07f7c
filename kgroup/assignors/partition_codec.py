"""Partitions by topic as Kafka's messages carry them: an ARRAY of a STRING and an ARRAY of INT32.

Assignments, the owned partitions in subscriptions and the sticky assignors' user data all have this
form. The leader of a large group reads and writes a million partitions, most of them alone in their
topic, so both directions take few steps for each.

Source: Kafka's protocol guide (ARRAY, STRING, INT32); ConsumerProtocolAssignment.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, final
from weakref import WeakKeyDictionary

from kgroup.assignors.partition_index import LazyPartitions, MemberPartitions, PartitionIndex
from kgroup.types import LONGEST_TEXT, LONGEST_TOPIC, TopicPartition, by_topic

_LENGTH: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_TWO: Final = struct.Struct(">ii")
_SWAP: Final = sys.byteorder == "little"
_SINGLE_PREFIXES: Final = WeakKeyDictionary[PartitionIndex, list[bytes]]()
"""Caches ``_single_prefixes``; one index serves the shares of thousands of members."""

_CACHED_NAMES: Final[dict[bytes, str]] = {}
"""Topic names that were decoded, by their bytes, length included. ``sys.intern`` would do, but on
Python 3.12 it keeps every string for good."""
_MAX_CACHED_NAMES: Final = 20_000
"""The largest number of cached names. Names that are too long for a topic are not cached: other
members send them, and they would take this process's memory."""

TopicSpans = Mapping[bytes, tuple[int, int]]
"""For each topic the index of its first partition and their number, by its name as a STRING."""


def encode_string(topic: str) -> bytes:
    """Encode a topic's name as a STRING."""
    name = topic.encode()
    return _LENGTH.pack(len(name)) + name


def topic_spans(partition_index: PartitionIndex) -> TopicSpans:
    """Return the span of each topic, for ``decode_indexes``."""
    return {
        encode_string(name): (partition_index.starts[place], len(partition_index.span(place)))
        for name, place in partition_index.places.items()
    }


def encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    """Encode partitions by topic, topics and numbers rising."""
    if isinstance(partitions, MemberPartitions):
        return _pack_share(partitions)
    topics = by_topic(partitions)
    pieces = [_INT.pack(len(topics))]
    for topic, numbers in topics.items():
        pieces += encode_string(topic), _INT.pack(len(numbers)), _ints(numbers)
    return b"".join(pieces)


def _pack_share(share: MemberPartitions) -> bytes:
    partition_index = share.partition_index
    topics = list(map(partition_index.topic_of.__getitem__, share.indexes))
    numbers = _ints(map(partition_index.number_of.__getitem__, share.indexes))
    counts = Counter(topics)
    pieces: Iterable[bytes]
    if len(counts) == len(topics):
        prefixes = map(_single_prefixes(partition_index).__getitem__, topics)
        each = struct.unpack("4s" * len(topics), numbers)
        pieces = chain.from_iterable(zip(prefixes, each, strict=True))
    else:
        pieces = _pieces(partition_index, counts, numbers)
    return _INT.pack(len(counts)) + b"".join(pieces)


def _pieces(
    partition_index: PartitionIndex, counts: Mapping[int, int], numbers: bytes
) -> Iterator[bytes]:
    prefixes, names = _single_prefixes(partition_index), partition_index.names
    at = 0
    for topic, count in counts.items():
        after = at + count * _INT.size
        if count == 1:
            yield prefixes[topic]
        else:
            yield encode_string(names[topic])
            yield _INT.pack(count)
        yield numbers[at:after]
        at = after


def _single_prefixes(partition_index: PartitionIndex) -> list[bytes]:
    """For each topic the bytes before a partition's number, if it is the only one of the topic."""
    if partition_index not in _SINGLE_PREFIXES:
        _SINGLE_PREFIXES[partition_index] = [
            encode_string(name) + _INT.pack(1) for name in partition_index.names
        ]
    return _SINGLE_PREFIXES[partition_index]


def decode_indexes(data: bytes, at: int, known: TopicSpans) -> tuple[list[int], int]:
    """Decode the indexes of the partitions that exist; also return the offset after all of them.

    Raises:
        ValueError | IndexError | struct.error: the bytes do not have this form.
    """
    found: list[int] = []
    (topics,) = _INT.unpack_from(data, at)
    at += _INT.size
    if not 0 <= topics <= len(data):
        raise ValueError(f"an array of {topics} items in {len(data)} bytes")
    # The last array can be empty. The padding is then read in place of its first number.
    data += bytes(_INT.size)
    width = 0
    for _ in range(topics):
        # Most names are as long as the previous one.
        spot = known.get(data[at : at + width])
        if spot is None:
            length = data[at] << 8 | data[at + 1]
            if length > LONGEST_TEXT:
                raise ValueError("a topic is null")
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
            raise ValueError("an array is null")
        at += len(numbers)
        if spot is not None and numbers:
            first, size = spot
            found += [first + number for number in _from_ints(numbers) if 0 <= number < size]
    if at > len(data) - _INT.size:
        raise ValueError("the bytes end too early")
    return found, at


@final
class PartitionList(LazyPartitions):
    """Decoded partitions.

    Attributes:
        topics: the topic of each partition.
        numbers: the number of each partition.
    """

    __slots__ = ("numbers", "topics")

    def __init__(self, topics: Sequence[str], numbers: Sequence[int]) -> None:
        self.topics = topics
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def at(self, place: int) -> TopicPartition:
        """See ``LazyPartitions``."""
        return TopicPartition(self.topics[place], self.numbers[place])

    def __iter__(self) -> Iterator[TopicPartition]:
        return map(TopicPartition, self.topics, self.numbers)


def decode_partitions(data: bytes, at: int) -> tuple[PartitionList, int]:
    """Decode partitions; also return the offset after them.

    Raises:
        ValueError | IndexError | struct.error: the bytes do not have this form, or nothing
            follows them.
    """
    topics: list[str] = []
    numbers = array("i")
    (count,) = _INT.unpack_from(data, at)
    at += _INT.size
    width = 0
    for _ in range(checked_count(count, data)):
        # Most names are as long as the previous one, and were already sent by another member.
        name = _CACHED_NAMES.get(data[at : at + width])
        if name is None:
            name, after = decode_string(data, at)
            width = after - at
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
    """Decode a STRING; also return the offset after it.

    The same name is mostly the same object, since a thousand members send the same names.

    Raises:
        ValueError | IndexError: the bytes do not have this form, or are too few.
    """
    length = data[at] << 8 | data[at + 1]
    after = at + _LENGTH.size + length
    if length > LONGEST_TEXT or after > len(data):
        raise ValueError(f"a text of {length} bytes in {len(data)}, or null")
    with_length = data[at:after]
    name = _CACHED_NAMES.get(with_length)
    if name is None:
        name = str(with_length[_LENGTH.size :], "utf-8")
        if len(name) <= LONGEST_TOPIC:
            if len(_CACHED_NAMES) >= _MAX_CACHED_NAMES:
                _CACHED_NAMES.clear()
            _CACHED_NAMES[with_length] = name
    return name, after


def checked_count(count: int, data: bytes) -> int:
    """Return the number of an array's items if the bytes can hold so many.

    Raises:
        ValueError: they cannot, or the array is null.
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
