"""Bounds: what a setting may be, once for the check and once in the words of its error.

A bound is a value. It checks a field of an attrs class when it is that field's validator, an
argument of a function by `Bound.check`, and a text from a command line or a properties file by
`read`. docs/configuration.md prints its words. INVARIANT: whatever object a caller gives, a check
ends with None or with a ``ConfigError`` that names the field, the value and the bounds.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final, TypeVar, cast, final

import attrs

from kgroup.addresses import split_address
from kgroup.errors import ConfigError, shown
from kgroup.types import INT32_MAX, text_fault

LONGEST_DURATION: Final = INT32_MAX / 1000
"""Seconds; what an int32 of milliseconds holds on the wire."""
SHORTEST_DURATION: Final = 0.001
"""Seconds; one millisecond, the unit of the wire."""
MOST_BUFFERED: Final = 2**41
"""Bytes that one process may be told to hold; 2 TiB."""
MOST_SERVERS: Final = 1000
"""Brokers of one list."""
SERVERS: Final = (
    f"it must name 1 to {MOST_SERVERS} brokers as 'host:port', separated by commas or in a list"
)
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})(e[+-]?[0-9]{1,4})?")


@final
@attrs.frozen
class Bound:
    """What a value may be.

    Attributes:
        holds: whether a value is allowed. Where it raises, the value is not.
        allowed: the same in words, "it must be ...".
        least: the least number, of those that have one.
        most: the largest.
    """

    holds: Callable[[Any], bool]
    allowed: str
    least: float | None = None
    most: float | None = None

    def __call__(self, _: object, attribute: attrs.Attribute[Any], value: object) -> None:
        """Check a field, as its validator.

        Raises:
            ConfigError: the value is not allowed.
        """
        self.check(attribute.name, value)

    def check(self, name: str, value: object) -> None:
        """Check an argument.

        Raises:
            ConfigError: the value is not allowed.
        """
        try:
            allowed = self.holds(value)
        except Exception as error:
            # Comparing a caller's own object may run any code of the caller's.
            raise ConfigError(name, value, self.allowed) from error
        if not allowed:
            raise ConfigError(name, value, self.allowed)

    def read(self, text: str) -> Any:
        """The number that a text says.

        Raises:
            ValueError: it says none, or one that is not allowed; the message has the bounds only.
        """
        words = text.strip().lower()
        number: Any = None
        if _WHOLE.fullmatch(words):
            number = int(words)
        elif _DECIMAL.fullmatch(words):
            number = float(words)
        if number is None or not self.holds(number):
            raise ValueError(self.allowed)
        return number


def is_whole(value: object) -> bool:
    """Whether a value is an int, which a bool is not here."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> bool:
    """Whether a value is an int or a float."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def whole(least: int, most: int) -> Bound:
    """A whole number of a range; both ends are allowed."""
    return Bound(
        lambda value: is_whole(value) and least <= value <= most,
        f"it must be a whole number from {least} to {most}",
        least,
        most,
    )


def number(least: float, most: float) -> Bound:
    """A number of a range; both ends are allowed, NaN is not."""
    return Bound(
        lambda value: is_number(value) and least <= value <= most,
        f"it must be a number from {_plain(least)} to {_plain(most)}",
        least,
        most,
    )


def seconds(least: float = SHORTEST_DURATION, most: float = LONGEST_DURATION) -> Bound:
    """A duration; NaN and infinity are none."""
    return Bound(
        lambda value: is_number(value) and least <= value <= most,
        f"it must be a number of seconds from {_plain(least)} to {_plain(most)}",
        least,
        most,
    )


def flag() -> Bound:
    """True or False."""
    return Bound(lambda value: isinstance(value, bool), "it must be True or False")


def text() -> Bound:
    """A text that both planes can say: librdkafka's values are C strings, and trimmed."""
    return Bound(
        lambda value: (
            isinstance(value, str)
            and bool(value.strip())
            and "\0" not in value
            and text_fault(value) is None
        ),
        "it must be a str that is not blank, without NUL, of at most 32767 bytes in UTF-8",
    )


def instance(kind: type, words: str) -> Bound:
    """An object of a class, which ``words`` name."""
    return Bound(lambda value: isinstance(value, kind), f"it must be {words}")


K = TypeVar("K", bound=enum.Enum)


def member_of(kind: type[K], value: object) -> K:
    """A converter: the member of an enum, or that which has the value.

    What is neither is left as it is, for the field's validator to name.
    """
    try:
        return kind(value)
    except Exception:  # noqa: BLE001 # a caller's object may raise when it is compared
        return cast("K", value)


def one_of(kind: type[enum.Enum]) -> Bound:
    """A member of an enum; the words name the values."""
    words = ", ".join(repr(item.value) for item in kind)
    return instance(kind, f"one of {words}")


def optional(bound: Bound, otherwise: str = "None") -> Bound:
    """What a bound allows, or None."""
    return Bound(
        lambda value: value is None or bound.holds(value), f"{bound.allowed}, or {otherwise}"
    )


def listed(field: str, value: Any, most: int) -> Any:
    """A list of anything as a tuple, for a field's converter.

    What is no list is left as it is, for the field's validator to name. No more than ``most``
    items are taken from an iterator, which may have no end.

    Raises:
        ConfigError: there are more items, or the iteration raises.
    """
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        return value
    try:
        items = tuple(islice(value, most + 1))
    except Exception as error:
        raise ConfigError(field, value, f"iterating over it raised {shown(error)}") from error
    if len(items) > most:
        raise ConfigError(field, value, f"it may have at most {most} items")
    return items


def servers(value: str | Iterable[str]) -> tuple[str, ...]:
    """A converter of ``bootstrap_servers``: ``"a:9092,b:9092"``, or an iterable of such pieces."""
    if isinstance(value, str):
        value = [piece.strip() for piece in value.split(",") if piece.strip()]
    return listed("bootstrap_servers", value, MOST_SERVERS)  # type: ignore[no-any-return]


def check_servers(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    """A validator of what `servers` gave.

    Raises:
        ConfigError: it names a server that is none, and what is wrong with it.
    """
    refuse_servers(attribute.name, value)


def refuse_servers(field: str, value: Any) -> None:
    """Check what `servers` gave, as `check_servers` does.

    Raises:
        ConfigError: it names a server that is none, and what is wrong with it.
    """
    if not isinstance(value, tuple) or not value:
        raise ConfigError(field, value, SERVERS)
    for server in value:
        try:
            split_address(server)
        except ValueError as error:
            raise ConfigError(field, server, f"{error}; {SERVERS}") from None


def _plain(value: float) -> str:
    """A number as people write it: no exponent, no zeros behind."""
    return str(value) if isinstance(value, int) else f"{value:.3f}".rstrip("0").rstrip(".")
