"""The consumer protocol: a member's subscription in JoinGroup and its assignment in SyncGroup.

For the broker both are opaque bytes; members write them for each other. Each begins with its own
version, 0 to 3. A newer version is read as version 3, and bytes after the last known field are
ignored, because versions only append fields.

Subscriptions are decoded by hand in few steps, since the leader of a large group decodes a million
topics and partitions. If that fails, kio's schema decodes them and says what is wrong.

Source: Kafka's ``ConsumerProtocol``; KIP-429 (owned partitions), KIP-792 (generation), KIP-881
(rack).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from typing import Any, Final

import attrs
from kio.index import load_entity_schema
from kio.static.constants import EntityType

from kgroup.assignors.partition_codec import (
    checked_count,
    decode_partitions,
    decode_string,
    encode_partitions,
)
from kgroup.errors import ProtocolError
from kgroup.types import MemberSubscription, TopicPartition, by_topic
from kgroup.wire.codec import decode_data, encode_data

LATEST_VERSION: Final = 3
"""The latest version of both."""

MAX_ASSIGNMENT_BYTES: Final = 1024 * 1024
"""The size of the largest assignment of one member: 250,000 partitions of few topics.

A coordinator writes the assignments of all members into one record, which has at most this size by
default (``message.max.bytes``). Eight times as much blocked a member's event loop for fifteen
seconds.
"""
_VERSION: Final = struct.Struct(">h")
_LENGTH: Final = struct.Struct(">i")
_SUBSCRIPTION: Final[tuple[Any, ...]] = tuple(
    load_entity_schema("consumer_protocol_subscription", version, EntityType.data)
    for version in range(LATEST_VERSION + 1)
)


def encode_subscription(
    *,
    topics: Iterable[str],
    user_data: bytes | None = None,
    owned: Iterable[TopicPartition] = (),
    generation_id: int = -1,
    rack_id: str | None = None,
    version: int = LATEST_VERSION,
) -> bytes:
    """Encode a member's subscription, for the group's leader.

    Args:
        topics: the topics it subscribes to.
        user_data: the data of its assignor, or None.
        owned: the partitions it owns (version 1 and up).
        generation_id: the generation it owns them in, -1 for none (version 2 and up).
        rack_id: its rack (version 3 and up).
        version: 0 to 3.

    Raises:
        ValueError: the version lacks a field that carries a value.
    """
    fields = {
        "topics": sorted(topics),
        "user_data": user_data,
        "owned_partitions": _grouped(owned),
        "generation_id": generation_id,
        "rack_id": rack_id,
    }
    return _VERSION.pack(version) + encode_data(_SUBSCRIPTION[version], fields)


def decode_subscription(
    data: bytes, *, member_id: str = "", group_instance_id: str | None = None
) -> MemberSubscription:
    """Decode another member's subscription. Its ids come from the JoinGroup response around it.

    Raises:
        ProtocolError: the bytes are not a subscription.
    """
    try:
        topics, user_data, owned, generation_id, rack_id, version = _read_subscription(data)
    except (IndexError, ValueError, struct.error):
        pass
    else:
        return MemberSubscription(
            member_id=member_id,
            group_instance_id=group_instance_id,
            topics=topics,
            user_data=user_data,
            owned=owned,
            generation_id=generation_id,
            rack_id=rack_id,
            version=version,
        )
    version, entity = _decode(_SUBSCRIPTION, data, f"the subscription of member {member_id!r}")
    return MemberSubscription(
        member_id=member_id,
        group_instance_id=group_instance_id,
        topics=entity.topics,
        user_data=entity.user_data,
        owned=_flattened(entity.owned_partitions) if version >= 1 else (),
        generation_id=entity.generation_id if version >= 2 else -1,
        rack_id=entity.rack_id if version >= 3 else None,
        version=version,
    )


def encode_assignment(
    partitions: Iterable[TopicPartition], user_data: bytes | None = None, version: int = 0
) -> bytes:
    """Encode one member's assignment.

    All versions have the same fields. Every client can read version 0.
    """
    data = _LENGTH.pack(-1) if user_data is None else _LENGTH.pack(len(user_data)) + user_data
    return _VERSION.pack(version) + encode_partitions(partitions) + data


def decode_assignment(data: bytes) -> Sequence[TopicPartition]:
    """Decode an assignment; no bytes at all are an empty one.

    Each ``TopicPartition`` is made only when a caller reads it, because the event loop waits here.

    Raises:
        ProtocolError: the bytes are not an assignment, or too many.
    """
    if not data:
        return ()
    if len(data) > MAX_ASSIGNMENT_BYTES:
        raise ProtocolError(
            f"the assignment has {len(data)} bytes; {MAX_ASSIGNMENT_BYTES} is the maximum",
            sent=True,
        )
    announced = _announced(data, "the assignment")
    try:
        partitions, at = decode_partitions(data, _VERSION.size)
        _read_bytes(data, at, _LENGTH)
    except (IndexError, ValueError, struct.error) as error:
        raise ProtocolError(
            f"the assignment (version {announced}) cannot be read: {error}", sent=True
        ) from error
    return partitions


def _read_subscription(
    data: bytes,
) -> tuple[tuple[str, ...], bytes | None, Sequence[TopicPartition], int, str | None, int]:
    """Read topics, user data, owned partitions, generation, rack and version.

    Raises:
        IndexError | ValueError | struct.error: the bytes cannot be read.
    """
    (announced,) = _VERSION.unpack_from(data)
    version = min(announced, LATEST_VERSION)
    if version < 0:
        raise ValueError(f"version {announced}")
    topics, at = _read_topics(data)
    user_data, at = _read_bytes(data, at, _LENGTH)
    owned: Sequence[TopicPartition] = ()
    generation_id, rack = -1, None
    if version >= 1:
        owned, at = decode_partitions(data, at)
    if version >= 2:
        (generation_id,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
    if version >= 3:
        rack, at = _read_bytes(data, at, _VERSION)
    return topics, user_data, owned, generation_id, None if rack is None else rack.decode(), version


@attrs.define
class _LastTopics:
    """The bytes of the topics that were read last, and these topics.

    Both are one attribute, so that threads that read subscriptions never see one without the other.
    """

    pair: tuple[bytes, tuple[str, ...]] = (b"no topics begin like this", ())


_LAST_TOPICS: Final = _LastTopics()
_MAX_KEPT: Final = 1 << 20
"""Longer topics are not kept, because another member decides how long they are."""


def _read_topics(data: bytes) -> tuple[tuple[str, ...], int]:
    # Most members of a group subscribe to the same topics. An array begins with its length, so two
    # that begin with the same bytes are equal.
    known, topics = _LAST_TOPICS.pair
    at = _VERSION.size
    if data.startswith(known, at):
        return topics, at + len(known)
    (count,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    found: list[str] = []
    for _ in range(checked_count(count, data)):
        topic, at = decode_string(data, at)
        found.append(topic)
    if at <= _MAX_KEPT:
        _LAST_TOPICS.pair = data[_VERSION.size : at], tuple(found)
    return tuple(found), at


def _read_bytes(data: bytes, at: int, length: struct.Struct) -> tuple[bytes | None, int]:
    """Read bytes after their length, None if that is -1."""
    (size,) = length.unpack_from(data, at)
    at += length.size
    if size == -1:
        return None, at
    if size < 0 or at + size > len(data):
        raise ValueError(f"{size} bytes in {len(data)}")
    return data[at : at + size], at + size


def _decode(schemas: tuple[Any, ...], data: bytes, what: str) -> tuple[int, Any]:
    announced = _announced(data, what)
    version = min(announced, LATEST_VERSION)
    try:
        return version, decode_data(schemas[version], data, _VERSION.size)
    except ProtocolError as error:
        raise ProtocolError(f"{what} (version {announced}): {error}", sent=True) from error


def _announced(data: bytes, what: str) -> int:
    if len(data) < _VERSION.size:
        raise ProtocolError(f"{what} has {len(data)} bytes, too few for its version", sent=True)
    (announced,) = _VERSION.unpack_from(data)
    if announced < 0:
        raise ProtocolError(f"{what} has version {announced}", sent=True)
    return int(announced)


def _grouped(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partitions": numbers} for topic, numbers in by_topic(partitions).items()
    ]


def _flattened(topics: Iterable[Any]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions
    )
