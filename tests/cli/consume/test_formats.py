"""How records are printed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.cli.consume.formats import Format, Record, as_json, as_text

MOMENT = 1_790_856_000_123


def record(value: bytes | None, key: bytes | None = None, **more: object) -> Record:
    """A record with this value."""
    return Record(topic="orders", partition=3, offset=7, key=key, value=value, **more)  # type: ignore[arg-type]


def test_a_record_for_people() -> None:
    """One line says where it is from, when, its key and headers; the value follows."""
    one = record(b"hello", b"k", timestamp=MOMENT, headers=(("trace", b"ab"), ("none", None)))
    assert as_text(one, Format.TEXT, Format.TEXT) == (
        "orders-3 @7  2026-10-01T12:00:00.123Z  key=k  trace=ab  none=(null)\nhello\n"
    )


@pytest.mark.parametrize(
    ("value", "shape", "shown"),
    [
        (None, Format.TEXT, "(null)"),
        (b"", Format.TEXT, ""),
        (b"two\nlines\t", Format.TEXT, "two\nlines\t"),
        (b"\x1b[2J\0", Format.TEXT, "\\x1b[2J\\x00"),
        (b"\xff\x01", Format.TEXT, "0xff01"),
        (b"ab", Format.HEX, "0x6162"),
        ('{"ä": [1]}'.encode(), Format.JSON, '{\n  "ä": [\n    1\n  ]\n}'),
        (b"null", Format.JSON, "null"),
        (b"no json", Format.JSON, "no json"),
        (b"\xff", Format.JSON, "0xff"),
        (b"NaN", Format.JSON, "NaN"),
        (b"1e999", Format.JSON, "1e999"),
        (b"[" * 100_000, Format.JSON, "[" * 100_000),
        (b'"\\ud800"', Format.JSON, '"\\ud800"'),
        (b"[12345678901234567.89, 1E5]", Format.JSON, "[\n  12345678901234567.89,\n  1E5\n]"),
        (b'{"a": 1, "a": 2}', Format.JSON, '{"a": 1, "a": 2}'),
    ],
)
def test_values_for_people(value: bytes | None, shape: Format, shown: str) -> None:
    """Text is shown without control characters, other bytes in hex, JSON over several lines."""
    assert as_text(record(value), Format.TEXT, shape) == f"orders-3 @7\n{shown}\n"


@pytest.mark.parametrize(
    ("value", "shape", "field"),
    [
        (None, Format.JSON, {"value": None}),
        (b"a\n", Format.TEXT, {"value": "a\n"}),
        (b"\xff\x01", Format.TEXT, {"value_hex": "ff01"}),
        (b"ab", Format.HEX, {"value_hex": "6162"}),
        (b'{"a": null}', Format.JSON, {"value_json": {"a": None}}),
        (b"null", Format.JSON, {"value_json": None}),
        (b"NaN", Format.JSON, {"value": "NaN"}),
        (b"\xff", Format.JSON, {"value_hex": "ff"}),
    ],
)
def test_values_for_programs(value: bytes | None, shape: Format, field: dict[str, object]) -> None:
    """The name of the field says how the bytes are written."""
    line = json.loads(as_json(record(value, headers=(("h", b"\xff"),)), Format.TEXT, shape))
    assert line == {
        "topic": "orders",
        "partition": 3,
        "offset": 7,
        "timestamp": None,
        "key": None,
        "headers": [{"name": "h", "value_hex": "ff"}],
        **field,
    }


def test_numbers_for_programs() -> None:
    """They have all digits of the record, with which some programs compute."""
    line = as_json(record(b'{"b": [-0.10, 12345678901234567.89]}'), Format.TEXT, Format.JSON)
    assert line.endswith('"value_json": {"b": [-0.10, 12345678901234567.89]}}\n')


@pytest.mark.parametrize("shape", Format)
@given(
    value=st.binary(),
    key=st.none() | st.binary(),
    name=st.text(),
    time=st.integers(-(2**63), 2**63 - 1),
)
def test_any_record_can_be_printed(
    shape: Format, value: bytes, key: bytes | None, name: str, time: int
) -> None:
    """Whatever bytes it has, the text can be printed and the line of JSON is one line."""
    one = record(value, key, headers=((name, value),), timestamp=time)
    text = as_text(one, shape, shape)
    assert all(sign.isprintable() or sign in "\n\t" for sign in text)
    line = as_json(one, shape, shape)
    assert line.isascii()
    assert (line.count("\n"), line[-1]) == (1, "\n")
    json.loads(line)
