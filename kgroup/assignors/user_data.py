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
from collections.abc import Iterable
from typing import Final

from kgroup.assignors.partition_codec import Heads, indexes, pack
from kgroup.types import TopicPartition

NO_GENERATION: Final = -1
"""The generation of a member that was in none."""

_INT: Final = struct.Struct(">i")


def encode_sticky(owned: Iterable[TopicPartition], generation_id: int) -> bytes:
    """What ``sticky`` sends: version 1, partitions by topic and the generation."""
    return pack(owned) + _INT.pack(generation_id)


def decode_sticky(data: bytes | None, known: Heads) -> tuple[list[int], int | None]:
    """The indexes of what a member says it owned, and the generation, None where it tells none.

    Partitions that do not exist are left out.
    """
    if not data:
        return [], None
    try:
        owned, at = indexes(data, 0, known)
    except (IndexError, struct.error, ValueError):
        return [], NO_GENERATION
    return owned, _INT.unpack_from(data, at)[0] if len(data) - at >= _INT.size else None


def encode_generation(generation_id: int) -> bytes:
    """What ``cooperative-sticky`` sends: the generation."""
    return _INT.pack(generation_id)


def decode_generation(data: bytes | None) -> int | None:
    """The generation that a ``cooperative-sticky`` member sent, None where it sent nothing."""
    if data is None:
        return None
    return int(_INT.unpack_from(data)[0]) if len(data) >= _INT.size else NO_GENERATION
