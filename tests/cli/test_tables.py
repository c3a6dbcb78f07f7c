"""Tables of the operating commands."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from kgroup.cli.tables import console, plain, ranges, table
from kgroup.types import TopicPartition


def test_partitions_as_ranges() -> None:
    """Partitions are listed by topic, consecutive ones as a range."""
    found = [TopicPartition("b", 5), *(TopicPartition("a", number) for number in (0, 1, 2, 7))]
    assert ranges(found) == "a 0-2,7; b 5"


def test_a_table_is_read_by_people_and_by_awk() -> None:
    """Columns are aligned without lines, an empty cell is a dash, and no markup is interpreted."""
    file = io.StringIO()
    rows = [["[red]x", "1", ""], ["y", "100", "z"]]
    Console(file=file, width=80).print(table(["NAME", "COUNT", "NOTE"], rows, ["COUNT"]))
    assert [line.rstrip() for line in file.getvalue().splitlines()] == [
        "NAME    COUNT  NOTE",
        "[red]x      1  -",
        "y         100  z",
    ]


def test_control_characters_do_not_reach_the_terminal() -> None:
    """Names of clients come from other programs."""
    assert plain("a\x1b[2Jb\n") == "a?[2Jb?"


def test_no_name_is_taken_for_an_emoji(capsys: pytest.CaptureFixture[str]) -> None:
    """What stands between two colons is printed as it is: a name that is copied must be right."""
    console().print("Group team:key:x", markup=False)
    assert capsys.readouterr().out == "Group team:key:x\n"
