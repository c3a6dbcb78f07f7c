"""Bounds: which values a setting or an argument may have, as a check and in words.

A `Bound` is a value with three uses: it validates a field of an attrs class, `Bound.check` checks
an argument of a function, and `Bound.read` parses a text of a command line or a properties file.
docs/configuration.md prints its words. INVARIANT: for any object whatever, a check returns None or
raises an error that names the field or argument, the value and the bounds: a ``ConfigError`` for
settings, an ``ArgumentError`` for arguments (``kgroup.arguments``).
"""

from __future__ import annotations

import difflib
import enum
import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from itertools import islice
from typing import Any, Final, TypeGuard, TypeVar, cast, final

import attrs

from kgroup.addresses import split_address
from kgroup.errors import ArgumentError, ConfigError, short_repr
from kgroup.types import INT32_MAX, text_fault

LONGEST_DURATION: Final = INT32_MAX / 1000
"""Seconds; the most that Kafka's int32 of milliseconds holds."""
SHORTEST_DURATION: Final = 0.001
"""Seconds; one millisecond, the unit of Kafka's protocol."""
MOST_BUFFERED: Final = 2**41
"""The most bytes that one process may be set to buffer; 2 TiB."""
MOST_SERVERS: Final = 1000
"""The most brokers of one list."""
SERVERS: Final = (
    f"it must name 1 to {MOST_SERVERS} brokers as 'host:port', separated by commas or in a list"
)
_LEAST_MEANT: Final = 0.1
"""The shortest duration, in seconds, that a number is taken to mean in milliseconds: 15 is not."""
SUSPECT: Final = 5000
"""From so many seconds on, a time-out may be a number of milliseconds; see `is_milliseconds`."""
SUSPECT_WAIT: Final = 1000
"""The same for waits, of which more than a few minutes make little sense."""
_HOUR: Final = 3600
_DAY: Final = 24 * _HOUR
_WEEK: Final = 7 * _DAY
_YEAR: Final = 366 * _DAY
_LONGEST_NAME: Final = 100
"""As much of an unknown name is compared with the known ones: the time grows with its length."""
_NUMBERS: Final = frozenset((int, float, bool, type(None)))
_RAISED_BY_NUMBERS: Final = (TypeError, AttributeError, ValueError, ArithmeticError)
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,40}")
_DECIMAL: Final = re.compile(r"[+-]?([0-9]{1,40}\.?[0-9]{0,40}|\.[0-9]{1,40})(e[+-]?[0-9]{1,4})?")


def _no_advice(_: Any) -> str:
    return ""


@final
@attrs.frozen
class Bound:
    """Which values are allowed.

    Attributes:
        holds: returns whether a value is allowed; if it raises, the value is not allowed.
        allowed: the same in words, "it must be ...".
        least: the least allowed number, if there is one.
        most: the largest allowed number, if there is one.
        advice: returns what an error adds to the words, for a value that is not allowed.
    """

    holds: Callable[[Any], bool]
    allowed: str
    least: float | None = None
    most: float | None = None
    advice: Callable[[Any], str] = _no_advice

    def __call__(self, _: object, attribute: attrs.Attribute[Any], value: object) -> None:
        """Check a field of an attrs class, as its validator.

        Raises:
            ConfigError: the value is not allowed.
        """
        self.check(attribute.name, value)

    def check(
        self, name: str, value: object, error: type[ArgumentError | ConfigError] = ConfigError
    ) -> None:
        """Check a value.

        Args:
            name: what the error calls it.
            value: the value.
            error: the class of the error.

        Raises:
            ArgumentError | ConfigError: the value is not allowed.
        """
        try:
            allowed = self.holds(value)
            advice = "" if allowed else self.advice(value)
        except Exception as failure:
            # To compare an object of the program's own class may run any code of the program. What
            # comparing a number does not raise comes from a signal handler, and is not for us.
            if type(value) in _NUMBERS and not isinstance(failure, _RAISED_BY_NUMBERS):
                raise
            raise error(name, value, self.allowed) from failure
        if not allowed:
            raise error(name, value, self.allowed + advice)

    def read(self, text: str) -> Any:
        """Parse a number.

        Raises:
            ValueError: the text is no number, or the number is not allowed; the message says only
                what is allowed.
        """
        words = text.strip().lower()
        number: Any = None
        if _WHOLE.fullmatch(words):
            number = int(words)
        elif _DECIMAL.fullmatch(words):
            number = float(words)
        if number is None:
            raise ValueError(self.allowed)
        if not self.holds(number):
            raise ValueError(self.allowed + self.advice(number))
        return number


def is_whole(value: object) -> TypeGuard[int]:
    """Whether a value is an int; a bool is not."""
    return isinstance(value, int) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Whether a value is an int or a float; a bool is not."""
    return isinstance(value, int | float) and not isinstance(value, bool)


@cache
def whole(least: int, most: int) -> Bound:
    """A whole number within a range that includes both ends."""
    return Bound(
        lambda value: is_whole(value) and least <= value <= most,
        f"it must be a whole number from {least} to {most}",
        least,
        most,
    )


def number(least: float, most: float) -> Bound:
    """A number within a range that includes both ends; NaN is not allowed."""
    return Bound(
        lambda value: is_number(value) and least <= value <= most,
        f"it must be a number from {_plain(least)} to {_plain(most)}",
        least,
        most,
    )


def seconds(least: float = SHORTEST_DURATION, most: float = LONGEST_DURATION) -> Bound:
    """A duration; NaN and infinity are not allowed."""
    return Bound(
        lambda value: is_number(value) and least <= value <= most,
        f"it must be a number of seconds from {_plain(least)} to {_plain(most)}",
        least,
        most,
        lambda value: in_seconds(value, most, least),
    )


def timeout(least: float = SHORTEST_DURATION, suspect: int = SUSPECT) -> Bound:
    """A duration as `seconds` allows it, unless `is_milliseconds` takes it for milliseconds."""
    plain = seconds(least)
    return Bound(
        lambda value: plain.holds(value) and not is_milliseconds(value, suspect),
        plain.allowed,
        plain.least,
        plain.most,
        lambda value: of_milliseconds(value, suspect) or plain.advice(value),
    )


def is_milliseconds(value: object, suspect: int = SUSPECT) -> TypeGuard[int]:
    """Whether a number of seconds was meant in milliseconds, by all appearances: 30000 is, 45 not.

    Those are ints of whole thousands. Programs do have durations of hours and days, which are whole
    hours as a rule, up to a week, or whole days. A float is never taken for milliseconds, so that
    any duration can be given.

    Args:
        value: what was given.
        suspect: the least such number.
    """
    if not is_whole(value):
        return False
    hours = value % _HOUR == 0 and value <= _WEEK
    return value >= suspect and value % 1000 == 0 and not hours and value % _DAY != 0


def of_milliseconds(value: object, suspect: int = SUSPECT) -> str:
    """What an error adds about a number that `is_milliseconds` takes for milliseconds."""
    if not is_milliseconds(value, suspect) or value > LONGEST_DURATION:
        return ""
    return (
        f"; durations are in seconds, not milliseconds: did you mean {value / 1000}? To have"
        f" {value} seconds ({value / _HOUR:.1f} hours), write {float(value)}"
    )


def in_seconds(value: object, most: float, least: float = 0.0) -> str:
    """What an error adds about a duration that would be allowed if it was given in milliseconds.

    Args:
        value: what was given.
        most: the longest duration that is allowed, in seconds.
        least: the shortest one.
    """
    least = max(least, _LEAST_MEANT)
    if is_whole(value) and most == LONGEST_DURATION < value <= _YEAR and value % _DAY == 0:
        # As 30 * 86400: a program that wrote this had days in mind.
        return f"; this is {value // _DAY} days, and the longest is {most / _DAY:.1f} days"
    if is_number(value) and most < value <= most * 1000 and least <= value / 1000:
        return f"; durations are in seconds, not milliseconds: did you mean {float(value) / 1000}?"
    return ""


def flag() -> Bound:
    """True or False."""
    return Bound(lambda value: isinstance(value, bool), "it must be True or False")


def text() -> Bound:
    """A text that Kafka's protocol and librdkafka can carry; the latter trims C strings."""
    return Bound(
        lambda value: (
            isinstance(value, str)
            and bool(value.strip())
            and "\0" not in value
            and text_fault(value) is None
        ),
        "it must be a str that is not blank, without NUL, of at most 32767 bytes in UTF-8",
    )


def function() -> Bound:
    """Anything that can be called."""
    return Bound(callable, "it must be a function")


def instance(kind: type, words: str) -> Bound:
    """An object of a class; ``words`` name the class."""
    return Bound(lambda value: isinstance(value, kind), f"it must be {words}")


K = TypeVar("K", bound=enum.Enum)


def member_of(kind: type[K], value: object) -> K:
    """A converter: the member of an enum, given the member or its value.

    Any other value is returned unchanged, so that the field's validator refuses it.
    """
    try:
        return kind(value)
    except Exception:  # noqa: BLE001 # the program's object may raise when it is compared
        return cast("K", value)


def one_of(kind: type[enum.Enum]) -> Bound:
    """A member of an enum; the words list the values."""
    words = ", ".join(repr(item.value) for item in kind)
    return instance(kind, f"one of {words}")


def optional(bound: Bound, otherwise: str = "None") -> Bound:
    """Any value that a bound allows, or None."""
    return Bound(
        lambda value: value is None or bound.holds(value),
        f"{bound.allowed}, or {otherwise}",
        advice=bound.advice,
    )


def listed(field: str, value: Any, most: int) -> Any:
    """A converter: an iterable of anything, as a tuple.

    A value that is not iterable, a str, bytes or a mapping is returned unchanged, so that the
    field's validator refuses it. An iterator may be endless: it is read up to ``most`` items.

    Raises:
        ConfigError: there are more than ``most`` items, or the iteration raises.
    """
    if not isinstance(value, Iterable) or isinstance(value, str | bytes | Mapping):
        return value
    try:
        items = tuple(islice(value, most + 1))
    except Exception as error:
        raise ConfigError(field, value, f"iterating over it raised {short_repr(error)}") from error
    if len(items) > most:
        raise ConfigError(field, value, f"it may have at most {most} items")
    return items


def servers(value: str | Iterable[str]) -> tuple[str, ...]:
    """A converter for ``bootstrap_servers``: ``"a:9092,b:9092"``, or an iterable of addresses."""
    if isinstance(value, str):
        value = [piece.strip() for piece in value.split(",") if piece.strip()]
    return listed("bootstrap_servers", value, MOST_SERVERS)  # type: ignore[no-any-return]


def check_servers(_: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    """A validator for what `servers` returned.

    Raises:
        ConfigError: an address is wrong; the error says which and why.
    """
    refuse_servers(attribute.name, value)


def refuse_servers(field: str, value: Any) -> None:
    """Check what `servers` returned.

    Raises:
        ConfigError: an address is wrong; the error says which and why.
    """
    if not isinstance(value, tuple) or not value:
        raise ConfigError(field, value, SERVERS)
    for server in value:
        try:
            split_address(server)
        except ValueError as error:
            raise ConfigError(field, server, f"{error}; {SERVERS}") from None


def _plain(value: float) -> str:
    """A number as people write it: no exponent, no trailing zeros."""
    return str(value) if isinstance(value, int) else f"{value:.3f}".rstrip("0").rstrip(".")


def did_you_mean(name: object, known: Iterable[str]) -> str:
    """What an error about an unknown name adds: the known name nearest to it, if one is near."""
    near = difflib.get_close_matches(str(name)[:_LONGEST_NAME], list(known), n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
