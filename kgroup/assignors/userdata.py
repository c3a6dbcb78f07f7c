"""What the sticky assignors' members send along with their subscriptions, and read from others.

``sticky`` sends what the member owned and in which generation, because an eager member owns
nothing any more when it joins; the oldest clients send no generation. ``cooperative-sticky`` sends
only the generation; what is owned is in the subscription itself.

INVARIANT: reading never fails. Bytes that mean nothing are a member that owned nothing.

Source: Kafka's ``StickyAssignor`` (``STICKY_ASSIGNOR_USER_DATA_V0``, ``V1``) and
``CooperativeStickyAssignor``.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Iterable, Mapping
from typing import Final

from kgroup.model import TopicPartition, by_topic

NO_GENERATION: Final = -1
"""The generation of a member that was in none."""

_LENGTH: Final = struct.Struct(">h")
_INT: Final = struct.Struct(">i")
_ONE: Final = struct.Struct(">ii")
_SWAP: Final = sys.byteorder == "little"

Spots = Mapping[bytes, range]
"""For each topic's name in UTF-8 the indexes of its partitions."""


def encode_sticky(owned: Iterable[TopicPartition], generation_id: int) -> bytes:
    """What ``sticky`` sends: version 1, partitions by topic and the generation."""
    topics = by_topic(owned)
    pieces = [_INT.pack(len(topics))]
    for topic, numbers in topics.items():
        name = topic.encode()
        pieces += (
            _LENGTH.pack(len(name)),
            name,
            struct.pack(f">i{len(numbers)}i", len(numbers), *numbers),
        )
    pieces.append(_INT.pack(generation_id))
    return b"".join(pieces)


def decode_sticky(data: bytes | None, spots: Spots) -> tuple[list[int], int | None]:
    """The indexes of what a member says it owned, and the generation, None where it tells none.

    Partitions that do not exist are left out.
    """
    if not data:
        return [], None
    try:
        return _read_owned(data, spots)
    except (IndexError, struct.error, ValueError):
        return [], NO_GENERATION


def _read_owned(data: bytes, spots: Spots) -> tuple[list[int], int | None]:
    indexes: list[int] = []
    (topics,) = _INT.unpack_from(data)
    if not 0 <= topics <= len(data):
        raise ValueError(topics)
    at = _INT.size
    for _ in range(topics):
        name_at = at + _LENGTH.size
        count_at = name_at + (data[at] << 8 | data[at + 1])
        (count,) = _INT.unpack_from(data, count_at)
        numbers_at = count_at + _INT.size
        at = numbers_at + count * _INT.size
        if count < 0 or at > len(data) or data[name_at - _LENGTH.size] > 127:
            raise ValueError(count)
        spot = spots.get(data[name_at:count_at])
        if spot is None:
            continue
        if count == 1:
            (number,) = _INT.unpack_from(data, numbers_at)
            if 0 <= number < len(spot):
                indexes.append(spot.start + number)
            continue
        numbers = array("i", data[numbers_at:at])
        if _SWAP:
            numbers.byteswap()
        indexes.extend([spot.start + number for number in numbers if 0 <= number < len(spot)])
    generation = _INT.unpack_from(data, at)[0] if len(data) - at >= _INT.size else None
    return indexes, generation


def encode_generation(generation_id: int) -> bytes:
    """What ``cooperative-sticky`` sends: the generation."""
    return _INT.pack(generation_id)


def decode_generation(data: bytes | None) -> int | None:
    """The generation that a ``cooperative-sticky`` member sent, None where it sent nothing."""
    if data is None:
        return None
    return int(_INT.unpack_from(data)[0]) if len(data) >= _INT.size else NO_GENERATION
