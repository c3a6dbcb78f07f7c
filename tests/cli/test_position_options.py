"""Positions and choices of topics, as options name them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import click
import pytest

from kgroup.cli.admin_client import ClusterError
from kgroup.cli.position_options import (
    Position,
    PositionKind,
    TopicChoice,
    chosen,
    position_of,
    position_or_shift,
    topic_choices,
)
from kgroup.types import TopicPartition

ANY: Any = None
NOW = 1_000_000.0


@pytest.fixture(autouse=True)
def _now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kgroup.cli.position_options.time.time", lambda: NOW)


def milliseconds(*moment: int) -> int:
    """A moment in UTC, in milliseconds since 1970."""
    return round(datetime(*moment, tzinfo=UTC).timestamp() * 1000)  # type: ignore[arg-type, misc]


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("earliest", PositionKind.EARLIEST, 0),
        ("latest", PositionKind.LATEST, 0),
        ("0", PositionKind.OFFSET, 0),
        (str(2**63 - 1), PositionKind.OFFSET, 2**63 - 1),
        ("+5", PositionKind.SHIFT, 5),
        ("-5", PositionKind.SHIFT, -5),
        ("90m", PositionKind.TIME, (1_000_000 - 5400) * 1000),
        ("1d2h3m4s", PositionKind.TIME, (1_000_000 - 93_784) * 1000),
        ("2026-10-01T12:00:00Z", PositionKind.TIME, milliseconds(2026, 10, 1, 12)),
        ("2026-10-01T12:00:00.5+02:00", PositionKind.TIME, milliseconds(2026, 10, 1, 10) + 500),
    ],
)
def test_positions(text: str, kind: PositionKind, value: int) -> None:
    """Words, offsets, shifts, durations ago and moments with a zone are understood."""
    assert position_or_shift(ANY, ANY, text) == Position(kind, value, text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "it must be earliest, latest, an offset, a time with its zone"),
        ("Earliest", "it must be earliest"),
        ("5x", "it must be earliest"),
        ("h", "it must be earliest"),
        ("2026-10-01T12:00:00", "it has no zone; add Z"),
        ("2026-10-01", "it has no time of day; .* write 2026-10-01T00:00:00Z"),
        ("2026-10-01Z", "it has no time of day; .* write 2026-10-01T00:00:00Z"),
        ("2026-10-01+02:00", r"it has no time of day; .* write 2026-10-01T00:00:00\+02:00"),
        ("2026-10-01+02:00Z", "it has no time of day; .* write 2026-10-01T00:00:00Z"),
        ("2026-13-01", "it must be earliest"),
        ("1969-01-01T00:00:00Z", "must not be before 1970"),
        ("100d", "must not be before 1970"),
        ("0001-01-01T00:00:00+23:59", "must not be before 1970"),
        (str(2**63), "at most 9223372036854775807"),
        ("+" + "9" * 19, "at most 9223372036854775807"),
        ("9" * 20, "it must be earliest"),
    ],
)
def test_positions_that_are_refused(text: str, reason: str) -> None:
    """The error shows what was given and what is allowed."""
    with pytest.raises(click.BadParameter, match=reason):
        position_or_shift(ANY, ANY, text)


@pytest.mark.parametrize("text", ["+5", "-5"])
def test_a_shift_needs_a_committed_offset(text: str) -> None:
    """Where nothing is committed, a relative position is refused."""
    with pytest.raises(click.BadParameter, match="a duration ago such as 90m or 2d12h$"):
        position_of(ANY, ANY, text)


def test_choices_of_partitions() -> None:
    """A topic stands for all its partitions, or for those behind the colon, each once."""
    choices = topic_choices(ANY, ANY, ["a", "b:2,0-1,1"])
    assert choices == (TopicChoice("a"), TopicChoice("b", ((2, 2), (0, 1), (1, 1))))
    assert chosen(choices, {"a": 1, "b": 4}) == [
        TopicPartition("a", 0),
        *(TopicPartition("b", number) for number in range(3)),
    ]


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "is empty"),
        ("a/b", "has a character other than"),
        ("a:", "'' is no partition, and no range such as 0-3"),
        ("a:1,x", "'x' is no partition"),
        ("a:3-1", "'3-1' is no partition"),
        ("a:-1", "'-1' is no partition"),
        ("a:2147483648", "'2147483648' is no partition"),
    ],
)
def test_choices_that_are_refused(text: str, reason: str) -> None:
    """The error shows the part that is wrong."""
    with pytest.raises(click.BadParameter, match=reason):
        topic_choices(ANY, ANY, [text])


@pytest.mark.parametrize(
    ("choice", "reason"),
    [
        (
            "ordrs",
            "there is no topic 'ordrs', or this user lacks DESCRIBE on it; did you mean 'orders'?",
        ),
        ("orders:0-2147483647", "has no partition 2147483647; it has the partitions 0 to 5"),
        ("one:1", "topic 'one' has no partition 1; it has one partition, 0"),
    ],
)
def test_what_does_not_exist(choice: str, reason: str) -> None:
    """The error names the nearest topic, or the partitions that there are."""
    with pytest.raises(ClusterError, match=reason):
        chosen(topic_choices(ANY, ANY, [choice]), {"orders": 6, "one": 1})
