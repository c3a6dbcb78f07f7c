r"""Regular expressions from clients, matched in time that grows with the text and the pattern.

Kafka uses RE2, which never backtracks. Python's expressions do: ``(a+)+b`` against forty letters
would block the broker for ever. So the broker matches a part of RE2's language itself: characters,
``.``, classes in brackets, ``\d \w \s`` and their opposites, each with an optional ``*``, ``+`` or
``?`` behind it, and ``|`` between whole alternatives. Groups and counts are refused.
"""

from __future__ import annotations

import re
from typing import Final, final

from kgroup.broker.request_error import RequestError
from kgroup.error_codes import ErrorCode

_LONGEST: Final = 200
"""Characters of a pattern."""
_MAY_LACK: Final = ("*", "?")
_MAY_REPEAT: Final = ("*", "+")
_ATOM: Final = re.compile(
    r"(?P<one>\\[dDwWsS]|\\[^a-zA-Z0-9]|\[\^?\]?(?:\\.|[^\]\\])*\]|[^\\\[\](){}*+?|^$])(?P<times>[*+?]?)"
)
_IN_CLASS: Final = re.compile(r"(\\.)|([\[&~|])", re.DOTALL)
"""An escape, or a character to which Python may give a meaning in classes one day."""


@final
class Pattern:
    """A compiled pattern: the characters of all alternatives in one row, an end behind each.

    Every place in the row is a bit, so one pass over a text matches all alternatives.

    Raises:
        RequestError: INVALID_REGULAR_EXPRESSION: it is none, or needs more than is supported.
    """

    def __init__(self, text: str) -> None:
        if len(text) > _LONGEST:
            raise _refused(f"a pattern of {len(text)} characters")
        self._ones: dict[int, re.Pattern[str]] = {}
        """For each place that is no end, the characters that match there."""
        self._found: dict[str, int] = {}
        """For each character seen in a text, the places where it matches."""
        self._starts = self._ends = self._repeated = lacking = 0
        replicas = 0
        for part in _parts(text):
            self._starts |= 1 << replicas
            for one, times in part:
                self._ones[replicas] = _compiled(one)
                lacking |= (times in _MAY_LACK) << replicas
                self._repeated |= (times in _MAY_REPEAT) << replicas
                replicas += 1
            self._ends |= 1 << replicas
            replicas += 1
        self._skips = _skips(lacking)

    def matches(self, text: str) -> bool:
        """Whether the whole text matches the pattern."""
        replicas = self._skipped(self._starts)
        for character in text:
            meant = replicas & self._may_be(character)
            replicas = self._skipped(meant << 1 | meant & self._repeated)
            if not replicas:
                return False
        return bool(replicas & self._ends)

    def _may_be(self, character: str) -> int:
        known = self._found.get(character)
        if known is None:
            known = sum(
                1 << replicas for replicas, one in self._ones.items() if one.fullmatch(character)
            )
            self._found[character] = known
        return known

    def _skipped(self, replicas: int) -> int:
        """These places, and those that are reached by leaving out optional characters."""
        for distance, skippable in self._skips:
            replicas |= (replicas & skippable) << distance
        return replicas


def _skips(lacking: int) -> tuple[tuple[int, int], ...]:
    """Distances 1, 2, 4 and so on, each with the places from which it can be skipped."""
    skips = []
    distance, skippable = 1, lacking
    while skippable:
        skips.append((distance, skippable))
        skippable &= skippable >> distance
        distance *= 2
    return tuple(skips)


def _parts(text: str) -> list[list[tuple[str, str]]]:
    """The alternatives, each as its atoms with the operator behind them."""
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


def _compiled(one: str) -> re.Pattern[str]:
    if one.startswith("["):
        if "--" in one:
            raise _refused(f"{one!r}, in which '--' may mean a range or a difference")
        one = "[" + _IN_CLASS.sub(lambda found: found[1] or f"\\{found[2]}", one[1:])
    try:
        return re.compile(one, re.DOTALL)
    except re.error as error:
        raise _refused(str(error)) from error


def _refused(what: str) -> RequestError:
    return RequestError(
        ErrorCode.INVALID_REGULAR_EXPRESSION,
        f"{what}: the embedded broker supports characters, classes, '.', '*', '+', '?' and '|'",
    )
