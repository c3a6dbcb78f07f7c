"""A reader of Java's ``.properties`` files.

Errors name the line and never show its text, because it may hold a password.

Source: ``java.util.Properties.load``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

_LINE_END: Final = re.compile(r"\r\n|\r|\n")
_BLANKS: Final = " \t\f"
_PAIR: Final = re.compile(
    r"(?P<name>(?:[^\\=: \t\f]|\\.)*)[ \t\f]*[=:]?[ \t\f]*(?P<value>.*)", re.DOTALL
)
_ESCAPE: Final = re.compile(r"\\(?:u(?P<code>[0-9a-fA-F]{4})|(?P<letter>.)|$)", re.DOTALL)
_LONGEST_LINE: Final = 1 << 20
"""Characters of a line; certificates and keys in one have some thousands."""
_LETTERS: Final = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRONG_CODE: Final = re.compile(r"(?<!\\)(?:\\\\)*\\u(?![0-9a-fA-F]{4})")


def decode(data: bytes) -> str:
    """The text of a file: UTF-8, or else Latin-1, which Java assumes."""
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError:
        return data.decode("latin-1")


def parse(text: str) -> list[tuple[str, str]]:
    r"""The names and values of a file, in order; a name may occur more than once.

    Raises:
        ValueError: a ``\u`` is not followed by four hexadecimal digits, or a line is too long
            for a properties file; the message names the line.
    """
    pairs = []
    for number, line in _logical_lines(text):
        if len(line) > _LONGEST_LINE:
            raise ValueError(f"line {number} has {len(line)} characters: this is no property file")
        if _WRONG_CODE.search(line):
            raise ValueError(f"line {number} has a \\u without four hexadecimal digits")
        found = _PAIR.fullmatch(line)
        assert found is not None  # the pattern matches every text
        pairs.append((_unescaped(found["name"]), _unescaped(found["value"])))
    return pairs


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines without comments and blank ones, continuations joined, with their numbers."""
    pieces: list[str] = []
    start = 0
    for number, natural in enumerate(_LINE_END.split(text), 1):
        line = natural.lstrip(_BLANKS)
        if not pieces:
            if not line or line[0] in "#!":
                continue
            start = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            pieces.append(line[:-1])
            continue
        if line or any(pieces):
            yield start, "".join((*pieces, line))
        pieces = []
    if any(pieces):
        yield start, "".join(pieces)


def _unescaped(text: str) -> str:
    def character(found: re.Match[str]) -> str:
        if found["code"]:
            return chr(int(found["code"], 16))
        letter = found["letter"] or ""
        return _LETTERS.get(letter, letter)

    plain = _ESCAPE.sub(character, text)
    # Two escapes may be the two halves of one character.
    return plain.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
