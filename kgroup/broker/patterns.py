r"""Regular expressions from clients, matched in time that grows with the text and the pattern.

Kafka takes RE2's, which never backtrack. Python's do: ``(a+)+b`` against forty letters would stop
the broker for good. So this is a language of its own, a part of RE2's: characters, ``.``, classes
in brackets, ``\d \w \s`` and their opposites, each with ``*``, ``+`` or ``?`` behind it, and ``|``
between whole alternatives. Groups and counts are refused.
"""

from __future__ import annotations

import re
from typing import Final, final

import attrs
from kio.schema.errors import ErrorCode

from kgroup.broker.refusal import RefusedError

_LONGEST: Final = 200
"""Characters of a pattern."""
_ATOM: Final = re.compile(
    r"(?P<one>\\[dDwWsS]|\\[^a-zA-Z0-9]|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[\](){}*+?|^$])(?P<times>[*+?]?)"
)


@final
@attrs.frozen
class _Alternative:
    """Characters one behind the other. Each is a bit, in the three sets of them.

    Attributes:
        ones: what each character may be.
        lacking: those that may be left out.
        repeated: those that may be there again.
        found: for a character of a text, those that it may be; filled as texts come.
    """

    ones: tuple[re.Pattern[str], ...]
    lacking: int
    repeated: int
    found: dict[str, int] = attrs.field(factory=dict, eq=False)

    def fits(self, text: str) -> bool:
        """Go through the text once, with every place here that may be meant as a bit."""
        places = self._skipped(1)
        for character in text:
            meant = places & self._may_be(character)
            places = self._skipped(meant << 1 | meant & self.repeated)
            if not places:
                return False
        return bool(places >> len(self.ones) & 1)

    def _may_be(self, character: str) -> int:
        known = self.found.get(character)
        if known is None:
            known = sum(
                1 << place for place, one in enumerate(self.ones) if one.fullmatch(character)
            )
            self.found[character] = known
        return known

    def _skipped(self, places: int) -> int:
        while (more := places | (places & self.lacking) << 1) != places:
            places = more
        return places


@final
class Pattern:
    """A compiled pattern.

    Raises:
        RefusedError: INVALID_REGULAR_EXPRESSION: it is none, or more than is understood here.
    """

    def __init__(self, text: str) -> None:
        if len(text) > _LONGEST:
            raise _refused(f"a pattern of {len(text)} characters")
        self._alternatives = [_compiled(part) for part in _parts(text)]

    def matches(self, text: str) -> bool:
        """Whether the whole of a text is of this pattern."""
        return any(one.fits(text) for one in self._alternatives)


def _parts(text: str) -> list[list[tuple[str, str]]]:
    """The alternatives, each as its atoms and what stands behind them."""
    parts: list[list[tuple[str, str]]] = [[]]
    at = 0
    while at < len(text):
        if text[at] == "|":
            parts.append([])
            at += 1
            continue
        found = _ATOM.match(text, at)
        if found is None:
            raise _refused(f"the pattern {text!r} at character {at}")
        parts[-1].append((found["one"], found["times"]))
        at = found.end()
    return parts


def _compiled(part: list[tuple[str, str]]) -> _Alternative:
    try:
        ones = tuple(re.compile(one, re.DOTALL) for one, _ in part)
    except re.error as error:
        raise _refused(str(error)) from error
    return _Alternative(ones, _places(part, "*?"), _places(part, "*+"))


def _places(part: list[tuple[str, str]], marks: str) -> int:
    return sum(1 << place for place, (_, times) in enumerate(part) if times and times in marks)


def _refused(what: str) -> RefusedError:
    return RefusedError(
        ErrorCode.invalid_regular_expression,
        f"{what}: the embedded broker understands characters, classes, '.', '*', '+', '?' and '|'",
    )
