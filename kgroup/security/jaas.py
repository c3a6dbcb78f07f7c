"""Reads ``sasl.jaas.config``: the login module of a client, and its options.

Errors never show the text, because it holds a password.

Source: Kafka's ``JaasConfig``; KIP-85 (the property), KIP-255 (OAUTHBEARER's options).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final, final

import attrs

_TOKEN: Final = re.compile(
    r"""\s+|//[^\n]*|/\*.*?\*/
    |(?P<quoted>"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*')
    |(?P<mark>[=;])
    |(?P<word>[^\s=;"']+)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPE: Final = re.compile(r"\\(?P<code>[0-3][0-7]{2}|[0-7]{1,2})|\\(?P<letter>.)", re.DOTALL)
_LETTERS: Final = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "b": "\b", "a": "\a", "v": "\v"}
_FLAGS: Final = {"required", "requisite", "sufficient", "optional"}
_FORM: Final = "it must be 'MODULE required NAME=\"VALUE\" ...;'"


@final
@attrs.frozen
class LoginModule:
    """A login module.

    Attributes:
        name: the name of its class, without its package: copies of Kafka's client have others.
        options: its options; passwords are among them.
    """

    name: str
    options: Mapping[str, str] = attrs.field(repr=False)


def parse_jaas(text: str) -> LoginModule:
    """Read the one login module of a client.

    Raises:
        ValueError: it cannot be read; the message does not show the text.
    """
    tokens = _tokens(text)
    if tokens[-1:] != [(";", True)]:
        raise ValueError(f"it does not end with a semicolon; {_FORM}")
    if tokens.count((";", True)) > 1:
        raise ValueError(f"it has more than one login module; {_FORM}")
    head, rest = tokens[:2], tokens[2:-1]
    if len(head) < 2 or any(mark for _, mark in head) or head[1][0].lower() not in _FLAGS:
        raise ValueError(f"it does not begin with a module and 'required'; {_FORM}")
    options: dict[str, str] = {}
    for number in range(0, len(rest), 3):
        match rest[number : number + 3]:
            case [(name, False), ("=", True), (value, False)]:
                options[name] = value
            case _:
                raise ValueError(f'option {number // 3 + 1} is not NAME="VALUE"; {_FORM}')
    return LoginModule(head[0][0].rpartition(".")[2], options)


def _tokens(text: str) -> list[tuple[str, bool]]:
    """The words of a text, and whether each is ``=`` or ``;``."""
    tokens = []
    at = 0
    while at < len(text):
        found = _TOKEN.match(text, at)
        if found is None:
            raise ValueError(f"a quotation mark at character {at + 1} is not closed; {_FORM}")
        at = found.end()
        if found["quoted"]:
            tokens.append((_ESCAPE.sub(_character, found["quoted"][1:-1]), False))
        elif found["mark"] or found["word"]:
            tokens.append((found[0], bool(found["mark"])))
    return tokens


def _character(found: re.Match[str]) -> str:
    if found["code"]:
        return chr(int(found["code"], 8))
    return _LETTERS.get(found["letter"], found["letter"])
