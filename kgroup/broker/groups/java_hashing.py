"""Two properties of Java that clients see: the hash of a string, and the order of a HashMap.

The hash decides which shard a group belongs to; the order of a HashMap decides ties in the
vote for a protocol.

Source: Java's ``String.hashCode`` and ``HashMap``; Kafka's ``Utils.abs``.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import Final

_SMALLEST_TABLE: Final = 16
_MOST_PER_SLOT: Final = 0.75
_MOST_HASHED: Final = 255
"""The most characters of a name that are hashed: names of 32,767 would take milliseconds each."""


def string_hash(text: str) -> int:
    """The unsigned 32 bits of ``String.hashCode``, over UTF-16 units."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for high, low in zip(units[::2], units[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & 0xFFFFFFFF
    return value


def utf16_length(text: str) -> int:
    """``String.length``: UTF-16 units, two for a character beyond the first 65,536."""
    return len(text.encode("utf-16-be", "surrogatepass")) // 2


def hash_map_order(keys: Iterable[str]) -> list[str]:
    """Distinct keys in the order in which a HashMap yields them, inserted in this order.

    Of longer keys, only the first 255 characters count.
    """
    inserted = list(dict.fromkeys(keys))
    table = _SMALLEST_TABLE
    while len(inserted) > table * _MOST_PER_SLOT:
        table *= 2

    def slot(key: str) -> int:
        value = string_hash(key[:_MOST_HASHED])
        return (value ^ value >> 16) & table - 1

    return sorted(inserted, key=slot)


def shard_of(group_id: str, shards: int) -> int:
    """The partition of the offsets topic that holds a group: ``abs(hash) % shards``.

    Only the first 255 characters count. No client computes the shard of a longer id.
    """
    return _shard_of(group_id[:_MOST_HASHED], shards)


@lru_cache(maxsize=1 << 15)
def _shard_of(hashed: str, shards: int) -> int:
    value = string_hash(hashed)
    signed = value - (1 << 32) if value >> 31 else value
    absolute = 0 if signed == -(1 << 31) else abs(signed)
    return absolute % shards
