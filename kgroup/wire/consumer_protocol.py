"""The blobs inside JoinGroup and SyncGroup: a consumer's subscription and its assignment.

The broker does not look inside; they are between the members. Each begins with its own version,
0 to 3. A blob of a newer version is read as version 3, and bytes after the last known field are
ignored: fields are only ever appended.

Source: Kafka's ``ConsumerProtocol``; KIP-429 (owned partitions), KIP-792 (generation), KIP-881
(rack).
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Any, Final

from kio.index import load_entity_schema
from kio.static.constants import EntityType

from kgroup.errors import ProtocolError
from kgroup.model import MemberSubscription, TopicPartition, by_topic
from kgroup.packed import pack
from kgroup.wire.border import decode_data, encode_data

HIGHEST: Final = 3
"""The newest version of both blobs."""

_VERSION: Final = struct.Struct(">h")
_LENGTH: Final = struct.Struct(">i")
_SUBSCRIPTION: Final[tuple[Any, ...]] = tuple(
    load_entity_schema("consumer_protocol_subscription", version, EntityType.data)
    for version in range(HIGHEST + 1)
)
_ASSIGNMENT: Final[tuple[Any, ...]] = tuple(
    load_entity_schema("consumer_protocol_assignment", version, EntityType.data)
    for version in range(HIGHEST + 1)
)


def encode_subscription(
    *,
    topics: Iterable[str],
    user_data: bytes | None = None,
    owned: Iterable[TopicPartition] = (),
    generation_id: int = -1,
    rack_id: str | None = None,
    version: int = HIGHEST,
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
    return _VERSION.pack(version) + pack(partitions) + data


def decode_assignment(data: bytes) -> tuple[TopicPartition, ...]:
    """The partitions that the leader gave; none if there are no bytes at all.

    Raises:
        ProtocolError: the bytes are no assignment.
    """
    if not data:
        return ()
    _, entity = _decode(_ASSIGNMENT, data, "the assignment")
    return _flattened(entity.assigned_partitions)


def _decode(schemas: tuple[Any, ...], data: bytes, what: str) -> tuple[int, Any]:
    if len(data) < _VERSION.size:
        raise ProtocolError(f"{what} has {len(data)} bytes, too few for its version", sent=True)
    (announced,) = _VERSION.unpack_from(data)
    if announced < 0:
        raise ProtocolError(f"{what} has version {announced}", sent=True)
    version = min(announced, HIGHEST)
    try:
        return version, decode_data(schemas[version], data, _VERSION.size)
    except ProtocolError as error:
        raise ProtocolError(f"{what} (version {announced}): {error}", sent=True) from error


def _grouped(partitions: Iterable[TopicPartition]) -> list[dict[str, Any]]:
    return [
        {"topic": topic, "partitions": numbers} for topic, numbers in by_topic(partitions).items()
    ]


def _flattened(topics: Iterable[Any]) -> tuple[TopicPartition, ...]:
    return tuple(
        TopicPartition(topic.topic, number) for topic in topics for number in topic.partitions
    )
