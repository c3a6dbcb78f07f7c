"""No value in a file of events ends the command in a traceback, or makes it slow."""

from __future__ import annotations

import json
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from kgroup.cli import main
from kgroup.cli.timeline.command import stories_of
from kgroup.cli.timeline.page import html
from kgroup.cli.timeline.reader import read
from tests.cli.timeline.lines import line, two_members

#: Values as JSON has them; Python's own writer refuses some of these numbers, or cannot make them.
VALUES: Final = (
    "1" + "0" * 400,
    "-1" + "0" * 400,
    "1" + "0" * 5000,
    "1e300",
    "1e999",
    "-1e999",
    "5e-324",
    "253402300799",
    "2147483648",
    "0",
    "-1",
    "-0.5",
    "NaN",
    "true",
    "false",
    "null",
    "[]",
    "[null]",
    '["\\ud800"]',
    "{}",
    '{"cause": null}',
    '{"cause": "\\ud800"}',
    '""',
    '"\\ud800"',
    '"\\u0000"',
    '"\\u001b[2J"',
    '"\\uffff"',
    '"\u2028"',
    json.dumps("</script>" * 10_000),
)
#: One line of each kind, with all fields that the timeline uses in it.
LINES: Final = (
    line(100.2, "b", "Joining", 1, member_id="b-1"),
    line(
        100.5,
        "b",
        "Joined",
        1,
        member_id="b-1",
        session_timeout=30.0,
        group_instance_id="one",
        leader=True,
        members=3,
    ),
    line(100.6, "b", "Assigned", 1, assignment=["t-2"]),
    line(101.0, "b", "GenerationStarted", 1),
    line(103.0, "b", "Committed", 1, seconds=0.1),
    line(104.0, "b", "LoopBlocked", 1, level="WARNING", seconds=2.0),
    line(110.5, "b", "GenerationDraining", 1, end={"cause": "rebalance", "detail": ""}),
    line(
        110.6, "b", "GenerationEnded", 1, end={"cause": "rebalance", "detail": ""}, cut_short=True
    ),
    line(110.7, "b", "BackingOff", 1, seconds=1.0),
    line(110.8, "b", "Left", 1, notified=False),
)
PLACES: Final = [(number, name) for number, text in enumerate(LINES) for name in json.loads(text)]


def with_value(text: str, name: str, value: str) -> str:
    """A line one of whose fields has another value."""
    return json.dumps({**json.loads(text), name: "here"}).replace('"here"', value)


def drawn(folder: Path, lines: list[str], out: str) -> str:
    """What the command writes to a file, after it has ended as it should."""
    (folder / "events").write_text("\n".join(lines), encoding="utf-8")
    file = folder / out
    file.unlink(missing_ok=True)
    options = ("--group", "g", "--out", str(file))
    result = CliRunner().invoke(main, ["timeline", str(folder / "events"), *options])
    assert result.exit_code == 0, (result.output, result.exception)
    return file.read_text(encoding="utf-8")


@pytest.mark.parametrize(("number", "name"), PLACES, ids=[f"{a}-{b}" for a, b in PLACES])
def test_any_value_of_any_field_is_drawn_or_refused(tmp_path: Path, number: int, name: str) -> None:
    """With a hostile value in one field of one line, both the page and the picture are drawn."""
    for value in VALUES:
        lines = [*two_members(), *LINES]
        lines[len(two_members()) + number] = with_value(LINES[number], name, value)
        drawn(tmp_path, lines, "page.html")
        ET.fromstring(drawn(tmp_path, lines, "picture.svg"))  # noqa: S314 - our own file


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("at", "1e300"),
        ("at", "1" + "0" * 400),
        ("at", "-1"),
        ("at", "true"),
        ("member", "1e999"),
        ("member", '"1"'),
        ("generation_id", "1e999"),
        ("generation_id", "-2"),
        ("pid", "null"),
        ("host", "7"),
        ("group_id", "null"),
        ("message", "[]"),
        ("session_timeout", "1" + "0" * 400),
        ("session_timeout", "null"),
        ("assignment", "[1]"),
        ("end", '{"cause": 1}'),
    ],
)
def test_a_value_that_a_field_cannot_have_makes_a_line_no_event(
    tmp_path: Path, name: str, value: str
) -> None:
    """The line is left out, and counted with the others that are no events."""
    file = tmp_path / "events"
    file.write_text(with_value(LINES[1], name, value), encoding="utf-8")
    entries, (source,) = read([file])
    assert (entries, source.refused) == ([], 1)


def test_characters_that_cannot_be_written_are_replaced(tmp_path: Path) -> None:
    """Lone surrogates and control characters are U+FFFD; the ends of lines are those of files."""
    texts = {"host": "h\ud800", "message": "a\x00b\u2028c", "group_id": "\x1b[2J"}
    file = tmp_path / "events"
    written = json.dumps({**json.loads(LINES[0]), **texts}).replace("\\u2028", "\u2028")
    file.write_text(f"{written}\r\n", encoding="utf-8", newline="")
    (entry,), _ = read([file])
    assert entry.member == "b (h\ufffd, 7)"
    assert entry.message == "a\ufffdb\u2028c"
    assert entry.group_id == "\ufffd[2J"


def blocked_loops(count: int) -> Iterator[str]:
    """A member's loop is blocked again and again."""
    yield line(1.0, "a", "Joining")
    yield line(1.1, "a", "GenerationStarted", 1)
    for number in range(count):
        yield line(10.0 + number, "a", "LoopBlocked", 1, seconds=0.5)


def processes(count: int) -> Iterator[str]:
    """Each process joins, and is killed."""
    for number in range(count):
        yield line(1.0 + number, "a", "Joining", pid=number)
        yield line(1.1 + number, "a", "Joined", 1, pid=number, session_timeout=30.0)
        yield line(1.2 + number, "a", "GenerationStarted", 1, pid=number)


@pytest.mark.parametrize("lines", [blocked_loops, processes])
def test_time_grows_with_the_number_of_events(
    tmp_path: Path, lines: Callable[[int], Iterator[str]]
) -> None:
    """Eight times as many events take far less than 64 times as long."""

    def seconds(count: int) -> float:
        file = tmp_path / "events"
        file.write_text("\n".join(lines(count)), encoding="utf-8")
        began = time.process_time()
        html(stories_of([file]))
        return time.process_time() - began

    seconds(100)  # the page's files are read
    assert seconds(8000) < 25 * seconds(1000)
