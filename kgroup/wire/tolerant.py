"""The slow reader: any kio entity, with what a newer broker may add.

kio's native reader refuses a tagged field or an error number it does not know, although both are
how Kafka evolves within a version (KIP-482). This one reads the same dataclasses, skips unknown
tagged fields and keeps unknown error numbers. It is used only where kio's reader has failed.

Invariant: nothing is allocated for an array whose announced length cannot be in the bytes left.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any, Final

from kio.serial import readers

from kgroup.wire.build import error_code, field_shape

Reader = Callable[[bytes, int], tuple[Any, int]]
"""Takes the bytes and an offset, gives the value and the number of bytes it took."""


def _read_bool(data: bytes, offset: int) -> tuple[bool, int]:
    # Kafka's Java code takes any byte but zero for true; kio refuses all but 0 and 1.
    value, size = readers.read_int8(data, offset)
    return value != 0, size


def _read_error_code(data: bytes, offset: int) -> tuple[int, int]:
    number, size = readers.read_int16(data, offset)
    return error_code(number), size


_read_varint: Final[Reader] = readers.read_unsigned_varint

#: Readers of types that are written alike in every version.
_FIXED: Final[dict[str, Reader]] = {
    "int8": readers.read_int8,
    "int16": readers.read_int16,
    "int32": readers.read_int32,
    "int64": readers.read_int64,
    "uint8": readers.read_uint8,
    "uint16": readers.read_uint16,
    "uint32": readers.read_uint32,
    "uint64": readers.read_uint64,
    "float64": readers.read_float64,
    "uuid": readers.read_uuid,
    "bool": _read_bool,
    "error_code": _read_error_code,
    "timedelta_i32": readers.read_timedelta_i32,
    "timedelta_i64": readers.read_timedelta_i64,
}

#: Readers of types whose form depends on (type, flexible version, nullable).
_VARYING: Final[dict[tuple[str, bool, bool], Reader]] = {
    ("string", True, False): readers.read_compact_string,
    ("string", True, True): readers.read_compact_string_nullable,
    ("string", False, False): readers.read_legacy_string,
    ("string", False, True): readers.read_nullable_legacy_string,
    ("bytes", True, False): readers.read_compact_string_as_bytes,
    ("bytes", True, True): readers.read_compact_string_as_bytes_nullable,
    ("bytes", False, False): readers.read_legacy_bytes,
    ("bytes", False, True): readers.read_nullable_legacy_bytes,
    ("datetime_i64", True, False): readers.read_datetime_i64,
    ("datetime_i64", False, False): readers.read_datetime_i64,
    ("datetime_i64", True, True): readers.read_nullable_datetime_i64,
    ("datetime_i64", False, True): readers.read_nullable_datetime_i64,
}


@cache
def tolerant_reader(entity_type: Any) -> Reader:
    """The reader of one kio dataclass: ``(bytes, offset) -> (entity, bytes read)``.

    Raises (when called): ValueError, LookupError or kio's ``SerialError``; nothing else.
    """
    flexible = entity_type.__flexible__
    plain: list[tuple[str, Reader]] = []
    tagged: dict[int, tuple[str, Reader]] = {}
    for field in dataclasses.fields(entity_type):
        tag = field.metadata.get("tag")
        reader = _field_reader(entity_type, field, is_tagged=tag is not None)
        if tag is None:
            plain.append((field.name, reader))
        else:
            tagged[tag] = (field.name, reader)

    def read(data: bytes, offset: int) -> tuple[Any, int]:
        start = offset
        values = {}
        for name, read_field in plain:
            values[name], size = read_field(data, offset)
            offset += size
        if flexible:
            offset += _read_tagged(data, offset, tagged, values)
        return entity_type(**values), offset - start

    return read


def _read_tagged(
    data: bytes, offset: int, known: dict[int, tuple[str, Reader]], values: dict[str, Any]
) -> int:
    start = offset
    count, size = _read_varint(data, offset)
    offset += size
    for _ in range(count):
        tag, size = _read_varint(data, offset)
        offset += size
        length, size = _read_varint(data, offset)
        offset += size
        if length > len(data) - offset:
            raise ValueError(f"tagged field {tag} of {length} bytes, {len(data) - offset} left")
        if tag in known:
            name, read_field = known[tag]
            values[name], used = read_field(data, offset)
            if used > length:
                raise ValueError(f"tagged field {tag} ({name}) is longer than its {length} bytes")
        offset += length
    return offset - start


def _field_reader(entity_type: Any, field: dataclasses.Field[Any], *, is_tagged: bool) -> Reader:
    flexible = entity_type.__flexible__
    shape = field_shape(field)
    # A tagged field that is null is left out instead, so its own form has no null. A request
    # header's client id has the old form even in flexible versions.
    nullable = shape.nullable and not is_tagged
    if shape.entity is not None:
        one = tolerant_reader(shape.entity)
        if nullable and not shape.is_array:
            one = _nullable_entity(one)
    else:
        kafka_type = field.metadata["kafka_type"]
        kafka_type = "bytes" if kafka_type == "records" else kafka_type
        if entity_type.__name__ == "RequestHeader" and field.name == "client_id":
            flexible = False
        one = (
            _FIXED.get(kafka_type)
            or _VARYING[kafka_type, flexible, nullable and not shape.is_array]
        )
    return _array(one, flexible=flexible, nullable=nullable) if shape.is_array else one


def _nullable_entity(read_entity: Reader) -> Reader:
    def read(data: bytes, offset: int) -> tuple[Any, int]:
        marker, size = readers.read_int8(data, offset)
        if marker < 0:  # KIP-893
            return None, size
        entity, used = read_entity(data, offset + size)
        return entity, size + used

    return read


def _array(read_one: Reader, *, flexible: bool, nullable: bool) -> Reader:
    def read(data: bytes, offset: int) -> tuple[tuple[Any, ...] | None, int]:
        start = offset
        if flexible:
            length, size = _read_varint(data, offset)
            length -= 1
        else:
            length, size = _FIXED["int32"](data, offset)
        offset += size
        if length < 0:
            if nullable:
                return None, size
            raise ValueError("null where an array must be")
        if length > len(data) - offset:
            raise ValueError(f"array of {length} items in {len(data) - offset} bytes")
        items = []
        for _ in range(length):
            item, size = read_one(data, offset)
            items.append(item)
            offset += size
        return tuple(items), offset - start

    return read
