"""The blobs inside JoinGroup and SyncGroup: a consumer's subscription and its assignment.

The broker does not look inside; they are between the members. Each begins with its own version,
0 to 3. A blob of a newer version is read as version 3, and bytes after the last known field are
ignored: fields are only ever appended.

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
"""The newest version of both blobs."""

MAX_ASSIGNMENT_BYTES: Final = 1024 * 1024
"""The most bytes of one member's assignment: 250,000 partitions of few topics.

A coordinator writes the assignments of all members into one record, which by its default
(``message.max.bytes``) has no more bytes than this. Eight times as much held the event loop of the
member that took it over for fifteen seconds.
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
    """What a member tells the group's leader about itself.

    Args:
        topics: the topics it subscribes to.
        user_data: its assignor's own data, or None.
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
    """What another member told; who it is comes from the JoinGroup answer around it.

    Raises:
        ProtocolError: the bytes are no subscription.
    """
    try:
        told = _read(data)
    except (IndexError, ValueError, struct.error):
        told = None
    if told is not None:
        topics, user_data, owned, generation_id, rack_id, version = told
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
    """What the leader gives to one member.

    All versions have the same fields. Version 0 is what every client of whatever age can read.
    """
    data = _LENGTH.pack(-1) if user_data is None else _LENGTH.pack(len(user_data)) + user_data
    return _VERSION.pack(version) + encode_partitions(partitions) + data


def decode_assignment(data: bytes) -> Sequence[TopicPartition]:
    """The partitions that the leader gave; none if there are no bytes at all.

    Each is made only when it is looked at, because the event loop waits for this.

    Raises:
        ProtocolError: the bytes are no assignment.
    """
    if not data:
        return ()
    if len(data) > MAX_ASSIGNMENT_BYTES:
        raise ProtocolError(
            f"the assignment has {len(data)} bytes, more than {MAX_ASSIGNMENT_BYTES}", sent=True
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


_Told = tuple[tuple[str, ...], bytes | None, Sequence[TopicPartition], int, str | None, int]
"""Topics, user data, owned partitions, generation, rack and version of a subscription."""


def _read(data: bytes) -> _Told:
    """Read a subscription in few steps: a leader may have a million topics and partitions to read.

    Raises:
        IndexError | ValueError | struct.error: kio is to have a look.
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
class _Latest:
    """The topics that were read last, and their bytes."""

    topics: tuple[bytes, tuple[str, ...]] = (b"no topics begin like this", ())


_LATEST: Final = _Latest()
_LONGEST_KEPT: Final = 1 << 20
"""Longer ones are not kept: another member decides how long they are."""


def _read_topics(data: bytes) -> tuple[tuple[str, ...], int]:
    # Most members of a group subscribe to the same topics. An array says how long it is, so what
    # begins with the same bytes begins with the same array.
    known, topics = _LATEST.topics
    at = _VERSION.size
    if data.startswith(known, at):
        return topics, at + len(known)
    (count,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    found: list[str] = []
    for _ in range(checked_count(count, data)):
        topic, at = decode_string(data, at)
        found.append(topic)
    if at <= _LONGEST_KEPT:
        _LATEST.topics = data[_VERSION.size : at], tuple(found)
    return tuple(found), at


def _read_bytes(data: bytes, at: int, length: struct.Struct) -> tuple[bytes | None, int]:
    """Bytes after their length, None where that is -1."""
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
