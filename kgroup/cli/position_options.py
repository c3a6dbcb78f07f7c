"""Positions in topics as options name them: ``--to`` and ``--from``, ``TOPIC:PARTITIONS``.

These are values and parsers without I/O; ``chosen`` compares what was named with what exists.
INVARIANT: a parser ends with a value, or with click's usage error of one line.
"""

from __future__ import annotations

import enum
import re
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from typing import Final, final

import attrs
import click

from kgroup.bounds import did_you_mean
from kgroup.cli.admin_client import ClusterError
from kgroup.errors import short_repr
from kgroup.types import INT32_MAX, TopicPartition, topic_fault

__all__ = [
    "Position",
    "PositionKind",
    "TopicChoice",
    "chosen",
    "position_of",
    "position_or_shift",
    "topic_choices",
]

INT64_MAX: Final = 2**63 - 1
_DIGITS: Final = re.compile(r"[0-9]{1,19}")
_SHIFT: Final = re.compile(r"[+-][0-9]{1,19}")
_DURATION: Final = re.compile(
    r"(?=[0-9])(?:(?P<d>[0-9]{1,9})d)?(?:(?P<h>[0-9]{1,9})h)?(?:(?P<m>[0-9]{1,9})m)?"
    r"(?:(?P<s>[0-9]{1,9})s)?"
)
_SECONDS: Final = {"d": 86_400, "h": 3600, "m": 60, "s": 1}
_DAY: Final = re.compile(
    r"(?P<date>[0-9]{4}-[0-9]{2}-[0-9]{2})(?:(?P<zone>Z|[+-][0-9]{2}:?[0-9]{2})|[Z+-].*)?"
)
_ALLOWED: Final = (
    "it must be earliest, latest, an offset, a time with its zone such as 2026-10-01T12:00:00Z, or"
    " a duration ago such as 90m or 2d12h"
)
_NUMBERS: Final = re.compile(r"([0-9]{1,10})(?:-([0-9]{1,10}))?")


@final
class PositionKind(enum.Enum):
    """How a position is named."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"
    SHIFT = "shift"


@final
@attrs.frozen
class Position:
    """A position in every partition it is applied to.

    Attributes:
        kind: how it is named.
        value: the offset; the time in milliseconds since 1970; by how many records to shift.
        text: as it was given.
    """

    kind: PositionKind
    value: int
    text: str


def position_of(
    context: click.Context, option: click.Parameter, value: str | None
) -> Position | None:
    """A callback for a position in the log: parse it.

    Raises:
        BadParameter: it is none; the message says what is allowed.
    """
    del context, option
    return None if value is None else _position(value, _ALLOWED)


def position_or_shift(
    context: click.Context, option: click.Parameter, value: str
) -> Position | None:
    """The same for a position that may also be relative to a committed offset.

    Raises:
        BadParameter: as ``position_of``.
    """
    del context, option
    if _SHIFT.fullmatch(value):
        return _checked(PositionKind.SHIFT, int(value), value)
    return _position(value, f"{_ALLOWED}, or +N or -N to shift by N records")


def _position(text: str, allowed: str) -> Position:
    if text in (PositionKind.EARLIEST.value, PositionKind.LATEST.value):
        return Position(PositionKind(text), 0, text)
    if _DIGITS.fullmatch(text):
        return _checked(PositionKind.OFFSET, int(text), text)
    if found := _DURATION.fullmatch(text):
        ago = sum(int(found[unit] or 0) * size for unit, size in _SECONDS.items())
        return _checked(PositionKind.TIME, round((time.time() - ago) * 1000), text)
    if (day := _DAY.fullmatch(text)) and _is_date(day["date"]):
        # Python takes any character between day and time: "+02:00" would be two o'clock.
        whole = f"{day['date']}T00:00:00{day['zone'] or 'Z'}"
        raise _refused(text, f"it has no time of day; for the beginning of the day write {whole}")
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise _refused(text, allowed) from None
    if moment.tzinfo is None:
        raise _refused(text, "it has no zone; add Z for UTC, or an offset such as +02:00")
    return _checked(PositionKind.TIME, round(moment.timestamp() * 1000), text)


def _is_date(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True


def _checked(kind: PositionKind, value: int, text: str) -> Position:
    if kind is PositionKind.TIME and value < 0:
        raise _refused(text, "the time must not be before 1970")
    if abs(value) > INT64_MAX:
        raise _refused(text, f"the number must be at most {INT64_MAX}")
    return Position(kind, value, text)


def _refused(text: str, reason: str) -> click.BadParameter:
    return click.BadParameter(f"{short_repr(text)} is refused: {reason}")


@final
@attrs.frozen
class TopicChoice:
    """A topic, or some of its partitions.

    Attributes:
        topic: its name.
        partitions: ranges of numbers, both ends included; empty for all partitions.
    """

    topic: str
    partitions: tuple[tuple[int, int], ...] = ()


def topic_choices(
    context: click.Context, option: click.Parameter, values: Sequence[str]
) -> tuple[TopicChoice, ...]:
    """A callback for ``TOPIC`` or ``TOPIC:PARTITIONS``, such as ``orders:0,4-7``.

    Raises:
        BadParameter: a name or a number is impossible.
    """
    del context, option
    return tuple(map(_topic_choice, values))


def _topic_choice(text: str) -> TopicChoice:
    name, colon, listed = text.partition(":")
    if fault := topic_fault(name):
        raise click.BadParameter(f"the topic name {short_repr(name)} {fault}")
    if not colon:
        return TopicChoice(name)
    ranges = []
    for one in listed.split(","):
        found = _NUMBERS.fullmatch(one)
        low, high = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if not low <= high <= INT32_MAX:
            raise _refused(text, f"{short_repr(one)} is no partition, and no range such as 0-3")
        ranges.append((low, high))
    return TopicChoice(name, tuple(ranges))


def chosen(
    choices: Iterable[TopicChoice], topics: Mapping[str, int], operation: str = "DESCRIBE"
) -> list[TopicPartition]:
    """The partitions that choices name, sorted, without repetitions.

    Args:
        choices: the choices.
        topics: the topics of the cluster, with their numbers of partitions.
        operation: what the command needs on them; one that the user lacks may hide a topic.

    Raises:
        ClusterError: a topic or a partition does not exist.
    """
    found = set[TopicPartition]()
    for choice in choices:
        count = topics.get(choice.topic)
        if count is None:
            near = did_you_mean(choice.topic, topics)
            raise ClusterError(
                f"there is no topic {choice.topic!r}, or this user lacks {operation} on it{near}"
            )
        for low, high in choice.partitions or ((0, count - 1),):
            if high >= count:
                has = "one partition, 0" if count == 1 else f"the partitions 0 to {count - 1}"
                raise ClusterError(f"topic {choice.topic!r} has no partition {high}; it has {has}")
            found.update(TopicPartition(choice.topic, number) for number in range(low, high + 1))
    return sorted(found)
