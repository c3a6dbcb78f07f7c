"""The bytes that records of groups and offsets take in Kafka's log.

Kafka writes the records of one request as one batch, without compression unless it was configured
to, and refuses a batch that is larger than ``message.max.bytes``: this is the first limit of a
large group, whose members, subscriptions and assignments are one record.

Source: Kafka's ``GroupMetadataKey`` v2 and ``GroupMetadataValue`` v3, ``OffsetCommitKey`` v1 and
``OffsetCommitValue`` v4, ``DefaultRecord.sizeInBytes``, ``CoordinatorRuntime``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kgroup.broker.groups.records import GroupRecord
from kgroup.broker.groups.requests import OffsetToCommit

MAX_BATCH_BYTES: Final = 1_048_588
"""Kafka's default of ``message.max.bytes``."""
_BATCH_HEADER: Final = 61
_VERSION: Final = 2
_INT32: Final = 4
_INT64: Final = 8
_LENGTH: Final = 2
_BYTES_LENGTH: Final = 4
_TOPIC_ID: Final = 19
"""A tagged field: the number of tags, the tag, the length, and 16 bytes."""
_BITS: Final = 7
"""Bits of a byte of a varint."""


def group_batch(record: GroupRecord) -> int:
    """The bytes of a batch with a group's record."""
    value = _VERSION + _text(record.protocol_type) + _INT32 + _text(record.protocol_name)
    value += _text(record.leader) + _INT64 + _INT32
    for member in record.members:
        value += _text(member.member_id) + _text(member.group_instance_id)
        value += _text(member.client_id) + _text(member.client_host) + 2 * _INT32
        value += 2 * _BYTES_LENGTH + len(member.metadata) + len(member.assignment)
    return _BATCH_HEADER + _record(0, _VERSION + _text(record.group_id), value)


def offsets_batch(group_id: str, offsets: Iterable[OffsetToCommit]) -> int:
    """The bytes of a batch with a group's offsets, of topics that exist."""
    group = _VERSION + _text(group_id)
    size = _BATCH_HEADER
    for number, one in enumerate(offsets):
        key = group + _text(one.topic) + _INT32
        metadata = len((one.metadata or "").encode())
        value = _VERSION + _INT64 + _INT32 + _unsigned(metadata + 1) + metadata
        size += _record(number, key, value + _INT64 + _TOPIC_ID)
    return size


def _text(text: str | None) -> int:
    return _LENGTH + len((text or "").encode())


def _record(number: int, key: int, value: int) -> int:
    # Attributes, the distance in time (always 0), and the number of headers take a byte each.
    body = 3 + _signed(number) + _signed(key) + key + _signed(value) + value
    return _signed(body) + body


def _signed(number: int) -> int:
    return _unsigned(2 * number)


def _unsigned(number: int) -> int:
    return max(-(-number.bit_length() // _BITS), 1)
