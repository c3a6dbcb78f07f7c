"""Reads the topics from a consumer's subscription, which is all that the coordinator needs of it.

Only version 0 of the schema is read. Every later version begins with it, so every version can be
read.

Source: Kafka's ``ConsumerProtocol`` and ``ClassicGroup.computeSubscribedTopics``.
"""

from __future__ import annotations

import struct
from typing import Final

CONSUMER: Final = "consumer"
"""The protocol type of consumer groups."""
MOST_TOPICS: Final = 1_000_000
"""Topics that are read of all subscriptions of a group, which takes a fifth of a second. A topic of
two bytes takes as long as any other, so the bytes of a request do not limit that."""
_VERSION_AND_COUNT: Final = struct.Struct(">hi")
_LENGTH: Final = struct.Struct(">h")
_USER_DATA_LENGTH: Final = struct.Struct(">i")
"""Below zero if there are none."""


def subscribed_topics(metadata: bytes, most: int = MOST_TOPICS) -> tuple[str, ...] | None:
    """The topics of a ConsumerProtocolSubscription, or None if the bytes are not one.

    Args:
        metadata: the bytes.
        most: how many topics are read; with more, the result is None too.
    """
    try:
        _, count = _VERSION_AND_COUNT.unpack_from(metadata)
        if count > most:
            return None
        position = _VERSION_AND_COUNT.size
        topics = []
        for _ in range(_counted(count, metadata)):
            (length,) = _LENGTH.unpack_from(metadata, position)
            position += _LENGTH.size
            topics.append(_text(metadata, position, length))
            position += length
        # Kafka reads the user data too, so a subscription that ends within them is none.
        (user_data,) = _USER_DATA_LENGTH.unpack_from(metadata, position)
        if user_data > len(metadata) - position - _USER_DATA_LENGTH.size:
            return None
    except (struct.error, ValueError):
        return None
    return tuple(topics)


def _counted(count: int, metadata: bytes) -> int:
    if not 0 <= count <= len(metadata):
        raise ValueError(f"{count} topics in {len(metadata)} bytes")
    return count


def _text(metadata: bytes, start: int, length: int) -> str:
    if not 0 <= length <= len(metadata) - start:
        raise ValueError(f"a topic of {length} bytes where {len(metadata) - start} are left")
    return metadata[start : start + length].decode()
