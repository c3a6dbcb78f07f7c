"""Any kio dataclass from bytes, with what a newer broker may add.

Why not kio's own native reader: it refuses a tagged field or an error number that it does not
know, although both are how Kafka evolves within a version (KIP-482); it lets null pass where an
array must be; and it allocates what an array's length announces before it looks at what is there,
which ends the whole process on a few bytes of garbage. This one reads the same dataclasses by
their annotations, skips unknown tagged fields and keeps unknown error numbers.

Invariants: nothing is allocated for an array that cannot be in the bytes left; reading takes time
and memory in proportion to the bytes, and `limit_items` bounds the items besides; an array that is
declared not null is a tuple; an error code is an int whatever its number.

To be quick, neighbouring fields of fixed size are read as one struct, and so is an array of them.
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
"""Takes the bytes and an offset, gives the value and the offset behind it."""

DECODE_ERRORS: Final = (ValueError, LookupError, OverflowError, struct.error, SerialError)
"""What a reader raises on bytes that are something else."""

_VARINT_MOST: Final = 5
"""Bytes of the longest varint: an unsigned one of 32 bits, as Kafka's ``ByteUtils`` reads it."""

_LONGEST_TEXT: Final = 2**15 - 1
"""Bytes of a text, in flexible versions too: what came in by one must fit an answer by another."""

_Values = dict[str, Any]
_Step = Callable[[bytes, int, _Values], int]
"""Reads some fields of an entity into its values, gives the offset behind them."""
_Convert = Callable[[Any], Any]


def _milliseconds(number: int) -> timedelta:
    return timedelta(milliseconds=number)


def _uuid(raw: bytes) -> UUID | None:
    value = UUID(bytes=raw)
    return None if value == uuid_zero else value


#: Types of fixed size: their struct format, and what makes the value of it.
_FIXED: Final[Mapping[str, tuple[str, _Convert | None]]] = {
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


class _Allowance(threading.local):
    """How many array items may still be read, in all, by the thread that reads."""

    left: float = math.inf


_ALLOWANCE: Final = _Allowance()


@contextmanager
def limit_items(items: int) -> Iterator[None]:
    """Let what is read inside have at most so many array items in all, nested ones included.

    An item of one byte becomes an object of a hundred: the length of a message does not bound
    what it costs. Where there are more, reading raises ``ValueError``.
    """
    before, _ALLOWANCE.left = _ALLOWANCE.left, items
    try:
        yield
    finally:
        _ALLOWANCE.left = before


#: The other types, by (type, flexible version, nullable); kio's give the size, not the offset.
#: Compact strings and bytes are read here (`_compact`): kio takes varints of any length.
_COMPACT: Final = ("string", "bytes")
_SIZED: Final[Mapping[tuple[str, bool, bool], Reader]] = {
    ("string", False, False): readers.read_legacy_string,
    ("string", False, True): readers.read_nullable_legacy_string,
    ("bytes", False, False): readers.read_legacy_bytes,
    ("bytes", False, True): readers.read_nullable_legacy_bytes,
    # -1 is no time also where kio's class has no null: DescribeTransactions says so of the start.
    ("datetime_i64", True, False): readers.read_nullable_datetime_i64,
    ("datetime_i64", False, False): readers.read_nullable_datetime_i64,
    ("datetime_i64", True, True): readers.read_nullable_datetime_i64,
    ("datetime_i64", False, True): readers.read_nullable_datetime_i64,
}


@cache
def entity_reader(entity_type: Any) -> Reader:
    """The reader of one kio dataclass.

    Called with bytes that are no such entity it raises one of `DECODE_ERRORS`.
    """
    fields = dataclasses.fields(entity_type)
    steps = field_steps(
        [field for field in fields if "tag" not in field.metadata],
        _FIXED,
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
    if first < 0x80:  # nearly always one byte
        return first, offset + 1
    value, shift = first & 0x7F, 7
    for at in range(offset + 1, offset + _VARINT_MOST):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at + 1
        shift += 7
    raise ValueError(f"a varint of more than {_VARINT_MOST} bytes")


def _fixed_step(run: list[dataclasses.Field[Any]]) -> _Step:
    names = [field.name for field in run]
    types = [_FIXED[field.metadata["kafka_type"]] for field in run]
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
    # A tagged field that is null is left out instead: its own form has no null.
    nullable = shape.nullable and "tag" not in field.metadata
    if shape.entity is not None:
        read_entity = entity_reader(shape.entity)
        if shape.is_array:
            return _array(_repeated(read_entity), flexible=flexible, nullable=nullable)
        return _nullable(read_entity) if nullable else read_entity
    kafka_type = field.metadata["kafka_type"]
    if kafka_type in _FIXED:
        read_items = _fixed_items(kafka_type)
        if shape.is_array:
            return _array(read_items, flexible=flexible, nullable=nullable)
        return _first(read_items)
    if kafka_type == "records":
        kafka_type = "bytes"
    # A request header's client id has the old form even in flexible versions.
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
    """Text or bytes behind a varint that says their length plus one, or 0 for null."""

    def read(data: bytes, offset: int) -> tuple[Any, int]:
        length, offset = _read_varint(data, offset)
        if length == 0:
            if nullable:
                return None, offset
            raise ValueError("null where a value must be")
        if text and length > _LONGEST_TEXT + 1:
            raise ValueError(f"a text of {length - 1} bytes, {_LONGEST_TEXT} is the most")
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
        # KIP-893: a byte says whether the entity is there.
        return (None, offset + size) if marker < 0 else read_entity(data, offset + size)

    return read


_Items = Callable[[bytes, int, int], tuple[tuple[Any, ...], int]]
"""Takes the bytes, an offset and a count, gives that many items and the offset behind them."""


def _repeated(read_one: Reader) -> _Items:
    def read(data: bytes, offset: int, count: int) -> tuple[tuple[Any, ...], int]:
        items = []
        for _ in range(count):
            item, offset = read_one(data, offset)
            items.append(item)
        return tuple(items), offset

    return read


def _fixed_items(kafka_type: str) -> _Items:
    form, convert = _FIXED[kafka_type]
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
            raise ValueError("null where an array must be")
        if length == 0:
            return (), offset
        if length > len(data) - offset:  # no item takes less than a byte
            raise ValueError(f"an array of {length} items, {len(data) - offset} bytes left")
        left = _ALLOWANCE.left - length
        if left < 0:
            raise ValueError(f"an array of {length} items, {_ALLOWANCE.left:.0f} more are allowed")
        _ALLOWANCE.left = left
        return read_items(data, offset, length)

    return read
