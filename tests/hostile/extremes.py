"""Every field of any Kafka message at its extremes, made from kio's own entity classes.

An honest entity is encoded with one field replaced by bytes that no honest peer writes there: the
ends of an integer's range, a null that is not allowed, a count of 2**31-1 items, text that is no
UTF-8. A new message of kio is covered without a change here.

The code under test encodes only the honest rest of the message. The bytes of an extreme are written
here, because half of the extremes are no value of their Python type.
"""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from random import Random
from typing import Any, Final, final
from uuid import UUID

import attrs
from kio.schema.errors import ErrorCode

from kgroup.wire.entities import FieldShape, field_shape
from kgroup.wire.entity_writer import _field_writer as field_writer
from kgroup.wire.entity_writer import entity_writer

Path = tuple[str | int, ...]
"""The path to a field: names, and indexes of items in arrays."""

#: Types of fixed size: the struct format of their bytes.
_FORMS: Final[Mapping[str, str]] = {
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
    "error_code": "h",
    "timedelta_i32": "i",
    "timedelta_i64": "q",
    "datetime_i64": "q",
}
_TEXTS: Final[Mapping[str, bytes]] = {
    "empty": b"",
    "249 letters": b"a" * 249,
    "250 letters": b"a" * 250,
    "513 letters": b"a" * 513,
    "32767 letters": b"a" * 32767,
    "no UTF-8": b"\xff\xfe",
    "half a surrogate": b"\xed\xa0\x80",
    "a NUL": b"a\0b",
    "a space": b"my topic",
    "a line": b"a\r\n\x1b[2Jb",
    "one dot": b".",
    "two dots": b"..",
    "a..b": b"a..b",
    "a number": b"-1",
    "beyond ASCII": "тема☃".encode(),
}
_BLOBS: Final[Mapping[str, bytes]] = {
    "empty": b"",
    "one byte": b"\0",
    "zeros": bytes(64),
    "ones": b"\xff" * 64,
    "version 3 and nothing": b"\0\3",
    "a huge array": b"\0\1\x7f\xff\xff\xff",
}
_MANY: Final = 300
"""How often an array's items are repeated."""

_shape_of: Final = cache(field_shape)


@final
@attrs.frozen
class Change:
    """One field with a value that is not allowed.

    Attributes:
        path: the path to the field; empty for the whole message.
        name: the change, in words.
        data: the bytes in its place, or a function that changes the whole message's bytes.
    """

    path: Path
    name: str
    data: bytes | Callable[[bytes], bytes]

    def __str__(self) -> str:
        return f"{'.'.join(map(str, self.path)) or 'the message'}: {self.name}"


def changes(entity: Any) -> Iterator[Change]:
    """Every known change of an honest entity, including those of the whole message."""
    yield from _of_fields(entity, ())
    yield Change((), "nothing", b"")
    yield Change((), "its first half", lambda honest: honest[: len(honest) // 2])
    yield Change((), "all but its last byte", lambda honest: honest[:-1])
    yield Change((), "a byte more", lambda honest: honest + b"\0")
    yield Change((), "itself twice", lambda honest: honest * 2)
    yield Change((), "as many ones", lambda honest: b"\xff" * len(honest))
    yield Change((), "as many zeros", lambda honest: bytes(len(honest)))


def choose(random: Random, entity: Any) -> Change:
    """A random change; every field is equally likely, and so is each of its extremes."""
    by_path: dict[Path, list[Change]] = {}
    for change in changes(entity):
        by_path.setdefault(change.path, []).append(change)
    return random.choice(random.choice(list(by_path.values())))


def message(entity: Any, change: Change | None, **header: Any) -> bytes:
    """A frame body: kio's header of this message, then the entity with the change.

    Args:
        entity: an honest one.
        change: one of `changes(entity)`, or None.
        header: the fields of its header.
    """
    parts: list[bytes] = []
    header_type: Any = type(entity).__header_schema__
    entity_writer(header_type)(parts, header_type(**header))
    return b"".join(parts) + body(entity, change)


def body(entity: Any, change: Change | None) -> bytes:
    """The bytes of an entity with a change, without a header."""
    if change is None or change.path:
        return _entity_bytes(entity, (), change)
    if isinstance(change.data, bytes):
        return change.data
    return change.data(_entity_bytes(entity, (), None))


def sample(entity_type: Any, known: Mapping[str, Any] | None = None) -> Any:
    """An honest entity with one item in every array.

    Args:
        entity_type: kio's class.
        known: values by field name, for a message that is to mean something.
    """
    given = known or {}
    return entity_type(
        **{
            field.name: given[field.name] if field.name in given else _sample(field, given)
            for field in dataclasses.fields(entity_type)
        }
    )


def _sample(field: dataclasses.Field[Any], known: Mapping[str, Any]) -> Any:
    if "tag" in field.metadata and field.default is not dataclasses.MISSING:
        return field.default
    shape = _shape_of(field)
    value = (
        sample(shape.entity, known)
        if shape.entity is not None
        else _SAMPLES.get(field.metadata["kafka_type"], 0)
    )
    return (value,) if shape.is_array else value


_SAMPLES: Final[Mapping[str, Any]] = {
    "string": "topic",
    "bytes": b"",
    "records": b"",
    "bool": False,
    "float64": 0.0,
    "uuid": UUID(int=7),
    "error_code": ErrorCode.none,
    "timedelta_i32": timedelta(0),
    "timedelta_i64": timedelta(0),
    "datetime_i64": datetime.fromtimestamp(0, UTC),
}


def _of_fields(entity: Any, path: Path) -> Iterator[Change]:
    for field in dataclasses.fields(entity):
        shape = _shape_of(field)
        value = getattr(entity, field.name)
        here: Path = (*path, field.name)
        compact = _is_compact(type(entity), field)
        if shape.is_array:
            yield from _of_array(field, shape, value, here, compact=compact)
        elif shape.entity is not None:
            if "tag" not in field.metadata:
                yield Change(here, "null", b"\xff")
            if value is not None:
                yield from _of_fields(value, here)
        else:
            for name, data in _scalars(field.metadata["kafka_type"], compact=compact).items():
                yield Change(here, name, data)


def _of_array(
    field: dataclasses.Field[Any],
    shape: FieldShape,
    value: Sequence[Any] | None,
    here: Path,
    *,
    compact: bool,
) -> Iterator[Change]:
    items = tuple(value or ())
    yield Change(here, "null", _count(-1, compact=compact))
    yield Change(here, "empty", _count(0, compact=compact))
    yield Change(here, "2**31-1 items announced", _count(2**31 - 1, compact=compact))
    if not compact:
        yield Change(here, "-2 items announced", _count(-2, compact=False))
    if not items:
        return
    written = b"".join(_item_bytes(field, item, compact=compact) for item in items)
    size = len(items)
    yield Change(here, "one item too few", _count(size + 1, compact=compact) + written)
    yield Change(here, "every item twice", _count(size * 2, compact=compact) + written * 2)
    yield Change(
        here,
        f"every item {_MANY} times",
        _count(size * _MANY, compact=compact) + written * _MANY,
    )
    yield Change(
        here,
        "the first item only",
        _count(1, compact=compact) + _item_bytes(field, items[0], compact=compact),
    )
    for number, item in enumerate(items[:2]):
        if shape.entity is not None:
            yield from _of_fields(item, (*here, number))
        else:
            for name, data in _scalars(field.metadata["kafka_type"], compact=compact).items():
                yield Change((*here, number), name, data)


@cache
def _scalars(kafka_type: str, *, compact: bool) -> dict[str, bytes]:
    """The extreme encodings of a value, by name."""
    if kafka_type in _FORMS:
        return _numbers(kafka_type)
    if kafka_type == "bool":
        return {"true": b"\1", "false": b"\0", "neither": b"\x7f"}
    if kafka_type == "float64":
        numbers = (float("nan"), float("inf"), float("-inf"), 1e308, -0.0)
        return {repr(number): struct.pack(">d", number) for number in numbers}
    if kafka_type == "uuid":
        return {"zeros": bytes(16), "ones": b"\xff" * 16, "one": bytes(15) + b"\1"}
    if kafka_type == "string":
        found = {
            name: _length(len(text), 2, compact=compact) + text for name, text in _TEXTS.items()
        }
        size = 2
    else:
        found = {
            name: _length(len(data), 4, compact=compact) + data for name, data in _BLOBS.items()
        }
        size = 4
    longest = 2**31 - 2 if compact else 2 ** (8 * size - 1) - 1
    found["null"] = _length(-1, size, compact=compact)
    found[f"{longest} bytes announced"] = _length(longest, size, compact=compact)
    if not compact:
        found["-2 bytes announced"] = _length(-2, size, compact=False)
    return found


def _numbers(kafka_type: str) -> dict[str, bytes]:
    form = struct.Struct(">" + _FORMS[kafka_type])
    bits = 8 * form.size
    signed = _FORMS[kafka_type].islower()
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if signed else (0, 2**bits - 1)
    numbers = {least, most, most - 1, 0, 1}
    if signed:
        numbers |= {-1, -2}
    if kafka_type == "error_code":
        numbers = {code.value for code in ErrorCode} | {least, most, -2, 12345}
    return {str(number): form.pack(number) for number in sorted(numbers)}


def _count(items: int, *, compact: bool) -> bytes:
    return _length(items, 4, compact=compact)


def _length(length: int, size: int, *, compact: bool) -> bytes:
    """The encoded length of a string, or the count of an array; -1 is null."""
    if not compact:
        return length.to_bytes(size, "big", signed=True)
    number = length + 1
    digits = bytearray()
    while number >= 0x80:
        digits.append(number & 0x7F | 0x80)
        number >>= 7
    digits.append(number)
    return bytes(digits)


def _is_compact(entity_type: Any, field: dataclasses.Field[Any]) -> bool:
    old_form = entity_type.__name__ == "RequestHeader" and field.name == "client_id"
    return bool(entity_type.__flexible__) and not old_form


def _item_bytes(field: dataclasses.Field[Any], item: Any, *, compact: bool) -> bytes:
    """The honest bytes of an array's item."""
    parts: list[bytes] = []
    entity = _shape_of(field).entity
    if entity is not None:
        entity_writer(entity)(parts, item)
        return b"".join(parts)
    return _scalar_bytes(field.metadata["kafka_type"], item, compact=compact)


def _scalar_bytes(kafka_type: str, item: Any, *, compact: bool) -> bytes:
    if kafka_type == "uuid":
        return bytes(16) if item is None else bytes(item.bytes)
    if kafka_type == "string":
        text = str(item).encode()
        return _length(len(text), 2, compact=compact) + text
    if kafka_type in ("bytes", "records"):
        return _length(len(item), 4, compact=compact) + bytes(item)
    return struct.pack(">" + _FORMS[kafka_type], item)


def _entity_bytes(entity: Any, path: Path, change: Change | None) -> bytes:
    """An entity's bytes, with the change at its path."""
    if change is None or change.path[: len(path)] != path:
        parts: list[bytes] = []
        kind: Any = type(entity)
        entity_writer(kind)(parts, entity)
        return b"".join(parts)
    fields = dataclasses.fields(entity)
    plain = [field for field in fields if "tag" not in field.metadata]
    data = b"".join(_field_bytes(entity, field, path, change) for field in plain)
    if not type(entity).__flexible__:
        return data
    tagged = {
        field.metadata["tag"]: _field_bytes(entity, field, path, change)
        for field in fields
        if "tag" in field.metadata and _is_present(entity, field, path, change)
    }
    data += _varint(len(tagged))
    for tag, value in sorted(tagged.items()):
        data += _varint(tag) + _varint(len(value)) + value
    return data


def _is_present(entity: Any, field: dataclasses.Field[Any], path: Path, change: Change) -> bool:
    here = (*path, field.name)
    if change.path[: len(here)] == here:
        return True
    value = getattr(entity, field.name)
    return value is not None and value != field.default


def _field_bytes(entity: Any, field: dataclasses.Field[Any], path: Path, change: Change) -> bytes:
    here: Path = (*path, field.name)
    if here == change.path:
        assert isinstance(change.data, bytes)
        return change.data
    value = getattr(entity, field.name)
    if change.path[: len(here)] != here:
        parts: list[bytes] = []
        field_writer(type(entity), field)(parts, value)
        return b"".join(parts)
    shape = _shape_of(field)
    compact = _is_compact(type(entity), field)
    if shape.is_array:
        return _count(len(value), compact=compact) + b"".join(
            _changed_item(field, shape, item, (*here, number), change, compact=compact)
            for number, item in enumerate(value)
        )
    marker = b"\1" if shape.nullable and "tag" not in field.metadata else b""
    return marker + _entity_bytes(value, here, change)


def _changed_item(
    field: dataclasses.Field[Any],
    shape: FieldShape,
    item: Any,
    here: Path,
    change: Change,
    *,
    compact: bool,
) -> bytes:
    if here == change.path:
        assert isinstance(change.data, bytes)
        return change.data
    if shape.entity is not None:
        return _entity_bytes(item, here, change)
    return _item_bytes(field, item, compact=compact)


def _varint(number: int) -> bytes:
    return _length(number - 1, 0, compact=True)
