"""Decodes any kio dataclass, including what a newer broker may add.

Why not kio's own reader? It refuses tagged fields and error codes that it does not know, although
brokers add both within a version (KIP-482). It accepts null where an array is required. And it
allocates as much as an array's length announces before it checks whether the bytes are there, so
that a few bytes of garbage can end the whole process. This reader decodes the same dataclasses by
their annotations, skips unknown tagged fields and keeps unknown error codes.

INVARIANTS: nothing is allocated for an array that does not fit into the remaining bytes; time and
memory are in proportion to the bytes, and `limit_items` also bounds the array items and the tagged
fields; an array that must not be null is a tuple; an error code is an int whatever its number.

For speed, neighbouring fields of fixed size are read as one struct, and so is an array of them.
"""

from __future__ import annotations

import dataclasses
import math
import struct
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import timedelta
from functools import cache
from typing import Any, Final
from uuid import UUID

from kio.serial import readers
from kio.serial.errors import SerialError
from kio.static.constants import uuid_zero

from kgroup.wire.entities import error_code, field_shape, field_steps

Reader = Callable[[bytes, int], tuple[Any, int]]
"""Takes bytes and an offset; returns the value and the offset after it."""

DECODE_ERRORS: Final = (ValueError, LookupError, OverflowError, struct.error, SerialError)
"""The errors that a reader raises for invalid bytes."""

_MAX_VARINT_BYTES: Final = 5
"""The bytes of the longest varint, which has 32 bits without a sign, as in ``ByteUtils``."""

_MAX_STRING_BYTES: Final = 2**15 - 1
"""The bytes of the longest string, in flexible versions too: a string that arrives in a request of
one version may have to fit a response of another."""

_Values = dict[str, Any]
_Step = Callable[[bytes, int, _Values], int]
"""Reads some fields of an entity into its values; returns the offset after them."""
_Convert = Callable[[Any], Any]


def _milliseconds(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def _uuid(raw: bytes) -> UUID | None:
    value = UUID(bytes=raw)
    return None if value == uuid_zero else value


#: Types of fixed size: the struct format, and the conversion to the value.
_FIXED_SIZE: Final[Mapping[str, tuple[str, _Convert | None]]] = {
    "int8": ("b", None),
    "int16": ("h", None),
    "int32": ("i", None),
    "int64": ("q", None),
    "uint8": ("B", None),
    "uint16": ("H", None),
    "uint32": ("I", None),
    "uint64": ("Q", None),
    "float64": ("d", None),
    "bool": ("b", bool),  # as in Kafka, any byte but zero is true
    "error_code": ("h", error_code),
    "timedelta_i32": ("i", _milliseconds),
    "timedelta_i64": ("q", _milliseconds),
    "uuid": ("16s", _uuid),
}


class _ItemLimit(threading.local):
    """The number of array items and tagged fields that this thread may still read."""

    left: float = math.inf


_ITEM_LIMIT: Final = _ItemLimit()


@contextmanager
def limit_items(items: int) -> Iterator[None]:
    """Limit the array items and the tagged fields that are read inside, nested ones included.

    An item of one byte becomes an object of a hundred bytes, and a tagged field of two bytes is
    skipped in as many steps as one of a thousand. So the size of a message does not limit its cost.
    With more of them, reading raises ``ValueError``.
    """
    before, _ITEM_LIMIT.left = _ITEM_LIMIT.left, items
    try:
        yield
    finally:
        _ITEM_LIMIT.left = before


#: The other types, by (type, flexible version, nullable). kio's readers return the size, not the
#: offset. Compact strings and bytes are read by `_compact`, because kio accepts endless varints.
_COMPACT: Final = ("string", "bytes")
_SIZED: Final[Mapping[tuple[str, bool, bool], Reader]] = {
    ("string", False, False): readers.read_legacy_string,
    ("string", False, True): readers.read_nullable_legacy_string,
    ("bytes", False, False): readers.read_legacy_bytes,
    ("bytes", False, True): readers.read_nullable_legacy_bytes,
    # -1 means no time even where kio's class has no null, as in DescribeTransactions.
    ("datetime_i64", True, False): readers.read_nullable_datetime_i64,
    ("datetime_i64", False, False): readers.read_nullable_datetime_i64,
    ("datetime_i64", True, True): readers.read_nullable_datetime_i64,
    ("datetime_i64", False, True): readers.read_nullable_datetime_i64,
}


def _count(number: int, what: str) -> None:
    """Take array items, or tagged fields, from what this thread may still read."""
    left = _ITEM_LIMIT.left - number
    if left < 0:
        raise ValueError(f"{number} {what}, {_ITEM_LIMIT.left:.0f} more are allowed")
    _ITEM_LIMIT.left = left


@cache
def entity_reader(entity_type: Any) -> Reader:
    """Make the reader of one kio dataclass.

    For bytes that are not such an entity it raises one of `DECODE_ERRORS`.
    """
    fields = dataclasses.fields(entity_type)
    steps = field_steps(
        [field for field in fields if "tag" not in field.metadata],
        _FIXED_SIZE,
        _fixed_step,
        lambda field: _field_step(field.name, _field_reader(entity_type, field)),
    )
    tagged = {
        field.metadata["tag"]: (field.name, _field_reader(entity_type, field))
        for field in fields
        if "tag" in field.metadata
    }
    flexible = entity_type.__flexible__

    def read(data: bytes, offset: int) -> tuple[Any, int]:
        values: _Values = {}
        for step in steps:
            offset = step(data, offset, values)
        if flexible:
            offset = _read_tagged(data, offset, tagged, values)
        return entity_type(**values), offset

    return read


def _read_tagged(
    data: bytes, offset: int, known: Mapping[int, tuple[str, Reader]], values: _Values
) -> int:
    count, offset = _read_varint(data, offset)
    if count:
        _count(count, "tagged fields")
    for _ in range(count):
        tag, offset = _read_varint(data, offset)
        length, offset = _read_varint(data, offset)
        end = offset + length
        if end > len(data):
            raise ValueError(f"tagged field {tag} of {length} bytes, {len(data) - offset} left")
        if tag in known:
            name, read_field = known[tag]
            values[name], after = read_field(data, offset)
            if after > end:
                raise ValueError(f"tagged field {tag} ({name}) is longer than its {length} bytes")
        offset = end
    return offset


def _read_varint(data: bytes, offset: int) -> tuple[int, int]:
    first = data[offset]
    if first < 0x80:  # nearly all have one byte
        return first, offset + 1
    value, shift = first & 0x7F, 7
    for at in range(offset + 1, offset + _MAX_VARINT_BYTES):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
    raise ValueError(f"a varint of more than {_MAX_VARINT_BYTES} bytes")


def _fixed_step(run: list[dataclasses.Field[Any]]) -> _Step:
    names = [field.name for field in run]
    types = [_FIXED_SIZE[field.metadata["kafka_type"]] for field in run]
    layout = struct.Struct(">" + "".join(form for form, _ in types))
    converts = [
        (name, convert)
        for name, (_, convert) in zip(names, types, strict=True)
        if convert is not None
    ]

    def step(data: bytes, offset: int, values: _Values) -> int:
        values.update(zip(names, layout.unpack_from(data, offset), strict=True))
        for name, convert in converts:
            values[name] = convert(values[name])
        return offset + layout.size

    return step


def _field_step(name: str, read: Reader) -> _Step:
    def step(data: bytes, offset: int, values: _Values) -> int:
        values[name], offset = read(data, offset)
        return offset

    return step


def _field_reader(entity_type: Any, field: dataclasses.Field[Any]) -> Reader:
    shape = field_shape(field)
    flexible = entity_type.__flexible__
    # A tagged field that is null is left out, because its encoding has no null.
    nullable = shape.nullable and "tag" not in field.metadata
    if shape.entity is not None:
        read_entity = entity_reader(shape.entity)
        if shape.is_array:
            return _array(_repeated(read_entity), flexible=flexible, nullable=nullable)
        return _nullable(read_entity) if nullable else read_entity
    kafka_type = field.metadata["kafka_type"]
    if kafka_type in _FIXED_SIZE:
        read_items = _fixed_items(kafka_type)
        if shape.is_array:
            return _array(read_items, flexible=flexible, nullable=nullable)
        return _first(read_items)
    if kafka_type == "records":
        kafka_type = "bytes"
    # The client id of a request header is not compact, even in flexible versions.
    old_form = entity_type.__name__ == "RequestHeader"
    in_form = flexible and not old_form
    one_nullable = nullable and not shape.is_array
    if in_form and kafka_type in _COMPACT:
        read = _compact(text=kafka_type == "string", nullable=one_nullable)
    else:
        read = _sized(_SIZED[kafka_type, in_form, one_nullable])
    if shape.is_array:
        return _array(_repeated(read), flexible=flexible, nullable=nullable)
    return read


def _compact(*, text: bool, nullable: bool) -> Reader:
    """Make a reader of text or bytes after a varint: their length plus 1, or 0 for null."""

    def read(data: bytes, offset: int) -> tuple[Any, int]:
        length, offset = _read_varint(data, offset)
        if length == 0:
            if nullable:
                return None, offset
            raise ValueError("a value is null")
        if text and length > _MAX_STRING_BYTES + 1:
            raise ValueError(f"a text of {length - 1} bytes; {_MAX_STRING_BYTES} is the maximum")
        end = offset + length - 1
        value = data[offset:end]
        if len(value) < length - 1:
            raise ValueError(f"a value of {length - 1} bytes, {len(value)} bytes left")
        return (value.decode() if text else value), end

    return read


def _sized(read_sized: Reader) -> Reader:
    def read(data: bytes, offset: int) -> tuple[Any, int]:
        value, size = read_sized(data, offset)
        return value, offset + size

    return read


def _nullable(read_entity: Reader) -> Reader:
    def read(data: bytes, offset: int) -> tuple[Any, int]:
        marker, size = readers.read_int8(data, offset)
        # KIP-893: a byte says whether an entity follows.
        return (None, offset + size) if marker < 0 else read_entity(data, offset + size)

    return read


_Items = Callable[[bytes, int, int], tuple[tuple[Any, ...], int]]
"""Takes bytes, an offset and a count; returns that many items and the offset after them."""


def _repeated(read_one: Reader) -> _Items:
    def read(data: bytes, offset: int, count: int) -> tuple[tuple[Any, ...], int]:
        items = []
        for _ in range(count):
            item, offset = read_one(data, offset)
            items.append(item)
        return tuple(items), offset

    return read


def _fixed_items(kafka_type: str) -> _Items:
    form, convert = _FIXED_SIZE[kafka_type]
    size = struct.calcsize(f">{form}")

    def read(data: bytes, offset: int, count: int) -> tuple[tuple[Any, ...], int]:
        end = offset + count * size
        if end > len(data):
            raise ValueError(f"{count} items of {size} bytes, {len(data) - offset} bytes left")
        layout = f">{count}{form}" if len(form) == 1 else ">" + form * count
        items = struct.unpack_from(layout, data, offset)
        return (items if convert is None else tuple(map(convert, items))), end

    return read


def _first(read_items: _Items) -> Reader:
    def read(data: bytes, offset: int) -> tuple[Any, int]:
        items, offset = read_items(data, offset, 1)
        return items[0], offset

    return read


def _array(read_items: _Items, *, flexible: bool, nullable: bool) -> Reader:
    def read(data: bytes, offset: int) -> tuple[tuple[Any, ...] | None, int]:
        if flexible:
            length, offset = _read_varint(data, offset)
            length -= 1
        else:
            length, size = readers.read_int32(data, offset)
            offset += size
        if length < 0:
            if nullable:
                return None, offset
            raise ValueError("an array is null")
        if length == 0:
            return (), offset
        if length > len(data) - offset:  # an item has at least one byte
            raise ValueError(f"an array of {length} items, {len(data) - offset} bytes left")
        _count(length, "array items")
        return read_items(data, offset, length)

    return read
