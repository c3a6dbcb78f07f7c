"""How records are printed: for people, and as lines of JSON for programs. Pure functions.

INVARIANTS: what a record contains reaches a terminal without control characters other than line
ends and tabs; a line of JSON is strict JSON in ASCII, and nothing of the record is lost in it.
"""

from __future__ import annotations

import enum
import json
import math
import re
import secrets
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final, final

import attrs

__all__ = ["Format", "Record", "as_json", "as_text"]

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_NULL: Final = "(null)"
_KEPT: Final = "\n\t"
_MARK: Final = f"number {secrets.token_hex(16)} "
"""Begins a string that stands for a number, until JSON is written; no record can contain it."""
_NUMBER: Final = re.compile(f'"{_MARK}([-+.0-9eE]+)"')


@final
class Format(enum.Enum):
    """How bytes are shown."""

    TEXT = "text"
    HEX = "hex"
    JSON = "json"


@final
@attrs.frozen(kw_only=True)
class Record:
    """A record, as it was read.

    Attributes:
        topic: its topic.
        partition: its partition.
        offset: its offset.
        timestamp: its time in milliseconds since 1970; None if it has none.
        key: its key, or None.
        value: its value; None for a tombstone.
        headers: its headers in order; a value may be None.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def as_text(record: Record, key_format: Format, value_format: Format) -> str:
    """A record for people: one line about it, then its value; with the last line end."""
    about = [f"{record.topic}-{record.partition} @{record.offset}"]
    if record.timestamp is not None:
        about.append(_time(record.timestamp))
    if record.key is not None:
        about.append(f"key={_on_one_line(_SHOWN[key_format](record.key))}")
    about += [
        f"{_on_one_line(name)}={_on_one_line(_NULL if value is None else _text(value))}"
        for name, value in record.headers
    ]
    value = _NULL if record.value is None else _SHOWN[value_format](record.value)
    return f"{'  '.join(about)}\n{value}\n"


def as_json(record: Record, key_format: Format, value_format: Format) -> str:
    """A record as a line of JSON; the name of a field says how its bytes are written.

    ``value`` is text or null, ``value_hex`` are hexadecimal digits, ``value_json`` is what the JSON
    in it means. The same holds for the key and for headers.
    """
    line = {
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp": None if record.timestamp is None else _time(record.timestamp),
        **_field("key", record.key, key_format),
        "headers": [
            {"name": name, **_field("value", value, Format.TEXT)} for name, value in record.headers
        ],
        **_field("value", record.value, value_format),
    }
    return f"{_with_numbers(json.dumps(line, allow_nan=False))}\n"


def _field(name: str, value: bytes | None, shape: Format) -> Mapping[str, Any]:
    if value is None:
        return {name: None}
    if shape is Format.JSON:
        parsed = _parsed(value)
        if parsed is not None:
            return {f"{name}_json": parsed[0]}
    if shape is not Format.HEX and (text := _decoded(value)) is not None:
        return {name: text}
    return {f"{name}_hex": value.hex()}


def _text(value: bytes) -> str:
    text = _decoded(value)
    return _hex(value) if text is None else _printable(text)


def _hex(value: bytes) -> str:
    return f"0x{value.hex()}"


def _pretty(value: bytes) -> str:
    """JSON over several lines; what is no JSON is shown as text."""
    parsed = _parsed(value)
    if parsed is None:
        return _text(value)
    shown = json.dumps(parsed[0], indent=2, ensure_ascii=False)
    return _printable(_with_numbers(shown))


_SHOWN: Final[Mapping[Format, Callable[[bytes], str]]] = {
    Format.TEXT: _text,
    Format.HEX: _hex,
    Format.JSON: _pretty,
}


def _decoded(value: bytes) -> str | None:
    try:
        return value.decode()
    except UnicodeDecodeError:
        return None


def _parsed(value: bytes) -> tuple[Any] | None:
    """What JSON means, in a tuple, because it may mean None; None for bytes that are no JSON.

    Fractions are marked strings: a float may have fewer digits than the record.
    """
    try:
        parsed = json.loads(value.decode(), object_pairs_hook=_unique, parse_float=_marked)
        json.dumps(parsed, allow_nan=False)  # Python also reads NaN
    except (ValueError, RecursionError):
        return None
    return (parsed,)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON; one in which a name occurs twice would lose a value."""
    fields = dict(pairs)
    if len(fields) < len(pairs):
        raise ValueError("a name occurs twice")
    return fields


def _marked(number: str) -> str:
    if not math.isfinite(float(number)):
        raise ValueError("readers of JSON take it for infinity")
    return f"{_MARK}{number}"


def _with_numbers(line: str) -> str:
    """JSON in which marked strings are numbers again, as the record has them."""
    return _NUMBER.sub(r"\1", line)


def _printable(text: str) -> str:
    return "".join(one if one.isprintable() or one in _KEPT else _escaped(one) for one in text)


def _on_one_line(text: str) -> str:
    return "".join(one if one.isprintable() else _escaped(one) for one in text)


def _escaped(one: str) -> str:
    return one.encode("unicode_escape").decode()


def _time(milliseconds: int) -> str:
    """ISO 8601 in UTC; for a year that has none the number of milliseconds."""
    try:
        moment = _EPOCH + timedelta(milliseconds=milliseconds)
    except OverflowError:
        return f"{milliseconds} ms"
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")
