"""The reader of Java's properties files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kgroup.security.properties_file import decode, parse

TEXT = st.text(st.characters(codec="utf-8"), max_size=12)


def written(text: str) -> str:
    """A text as Java's ``Properties.store`` escapes it."""
    codes = text.encode("utf-16-be")
    units = [int.from_bytes(codes[at : at + 2]) for at in range(0, len(codes), 2)]
    plain = {ord(letter) for letter in "abcXYZ019./-_"}
    return "".join(chr(unit) if unit in plain else f"\\u{unit:04x}" for unit in units)


def escaped(text: str) -> str:
    """A text with a backslash before everything that could mean something else."""
    short = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\f": "\\f"}
    return "".join(short.get(one, f"\\{one}" if one in "\\=: #!" else one) for one in text)


@given(st.lists(st.tuples(TEXT.filter(bool), TEXT), max_size=5), st.sampled_from("=:"), st.data())
def test_what_was_written_is_read(
    pairs: list[tuple[str, str]], separator: str, data: st.DataObject
) -> None:
    """Names and values of any characters come back, whichever way they are escaped."""
    lines = []
    for name, value in pairs:
        write = data.draw(st.sampled_from([written, escaped]))
        lines += [data.draw(st.sampled_from(["", "# note\n", "  \n", "!x\\\n"]))]
        lines += [f"{write(name)} {separator} {write(value)}\r\n"]
    assert parse("".join(lines)) == pairs


@pytest.mark.parametrize(
    ("text", "pairs"),
    [
        ("", []),
        ("# a=b\n ! c=d\n\n", []),
        ("a=b=c", [("a", "b=c")]),
        ("a b", [("a", "b")]),
        ("a:b", [("a", "b")]),
        ("  a\t=  b  ", [("a", "b  ")]),
        ("a", [("a", "")]),
        ("=b", [("", "b")]),
        ("a\\ b=c", [("a b", "c")]),
        ("a=b\\\n   c", [("a", "bc")]),
        ("a=b\\\r\n# c\nd=e", [("a", "b# c"), ("d", "e")]),
        ("a=b\\\\\nc=d", [("a", "b\\"), ("c", "d")]),
        ("a=b\\", [("a", "b")]),
        ("\\\n\na=b\n\\\n", [("a", "b")]),
        ("a=b\\\n\nc=d", [("a", "b"), ("c", "d")]),
        ("a=\\u00e4\\ud83d\\ude00\\x", [("a", "ä😀x")]),
        ("a=\\\\u12", [("a", "\\u12")]),
        ("a=1\ra=2", [("a", "1"), ("a", "2")]),
    ],
)
def test_the_rules_of_the_format(text: str, pairs: list[tuple[str, str]]) -> None:
    """Comments, separators, continuations and escapes are Java's."""
    assert parse(text) == pairs


def test_a_wrong_escape_is_named_by_its_line() -> None:
    """The error has the number of the line, and not its text."""
    with pytest.raises(ValueError, match="line 2 has a .u without four") as caught:
        parse("a=b\npassword=hunter2\\u12")
    assert "hunter2" not in str(caught.value)


def test_a_file_is_utf_8_or_latin_1() -> None:
    """A byte order mark is left out."""
    assert decode("ä".encode()) == decode("ä".encode("latin-1")) == "ä"
    assert decode(b"\xef\xbb\xbfa=b") == "a=b"
