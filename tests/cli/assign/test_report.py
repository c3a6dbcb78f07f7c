"""Results side by side: tables for people, JSON for programs."""

from __future__ import annotations

import io
import json
from typing import Any

from rich.console import Console

from kgroup.assignors import BUILTIN
from kgroup.cli.assign.group_input import GroupInput, read_group
from kgroup.cli.assign.lines import answer_line
from kgroup.cli.assign.report import as_json, print_results, ranges
from kgroup.cli.assign.results import evaluate
from kgroup.types import TopicPartition
from tests.cli.assign.groups import ORDERS, line, member, owning


def printed(group: GroupInput) -> str:
    """The tables of all built-in assignors."""
    file = io.StringIO()
    plans = [evaluate(assignor, group) for assignor in BUILTIN.values()]
    print_results(Console(file=file, width=150), group, plans)
    return file.getvalue()


def rows(text: str) -> dict[str, list[str]]:
    """The rows of the tables, by their first cell."""
    cells = [[cell.strip() for cell in one.split("│")[1:-1]] for one in text.splitlines()]
    return {row[0]: row[1:] for row in cells if row and row[0]}


def group(*members: dict[str, Any], **topics: int) -> GroupInput:
    """A group of these members and topics."""
    named = {name: {"partitions": count} for name, count in topics.items()}
    return read_group({"topics": named or ORDERS, "members": list(members)})


def test_small_groups_are_shown_in_full() -> None:
    """Each member has a row: how many partitions, how many gained and lost, and which."""
    text = printed(group(owning("a", "orders", 0, 1, 2, 3), member("b", "orders")))
    found = rows(text)
    assert found["a"] == ["2 (+0 -2)"] * 4
    assert found["orders"] == ["2 to 2"] * 4
    assert found["move"] == ["2 of 4"] * 4
    assert found["wait for their owner first"] == ["0", "0", "0", "2"]
    assert found["rounds"] == ["1", "1", "1", "2"]
    assert found["by member, most - least"] == ["0 (2 - 2)"] * 4
    assert found["members x partitions"] == ["2 x 2"] * 4
    assert "orders 0-1" in text
    assert "rack" not in text


def test_large_groups_are_summarised() -> None:
    """The members and topics that differ most have rows, and the others are counted."""
    topics = {f"t{number:02}": 1 for number in range(30)}
    members = [member(f"m{number:03}", *topics) for number in range(100)]
    members[77]["owned"] = [[topic, 0] for topic in topics]
    text = printed(group(*members, **topics))
    assert "the 10 of 100 members that change most" in text
    assert "the 10 most uneven of 30 topics" in text
    assert "m077" in text
    assert len(text.splitlines()) < 100


def test_racks_have_a_row_where_there_are_any() -> None:
    """If a member names its rack, the table counts the partitions without a replica there."""
    assert rows(printed(group(member("a", "orders", rack_id="e"))))["not in their member's rack"]


def test_names_are_not_markup() -> None:
    """Members' names are printed literally, without control characters for the terminal."""
    text = printed(group(member("[red]a[/]\x1b[2J", "orders")))
    assert "[red]a[/]?[2J" in text


def test_an_empty_group_has_a_table() -> None:
    """Without members and topics the tables are empty, and nothing fails."""
    assert rows(printed(group()))["partitions given"] == ["0"] * 4


def test_ranges() -> None:
    """Consecutive partitions are shown as a range; beyond some topics, the rest is counted."""
    some = [TopicPartition("t", number) for number in (7, 0, 1, 2, 9)]
    assert ranges([*some, TopicPartition("s", 3)]) == "s 3; t 0-2,7,9"
    many = [TopicPartition(f"t{number}", 0) for number in range(9)]
    assert ranges(many[:6]).endswith("t5 0")
    assert ranges(many).endswith("t1 0; 7 more topics")
    assert ranges([]) == ""


def test_json_has_everything() -> None:
    """The result is JSON, with assignments in the format of the lines."""
    here = read_group(json.loads(line()))
    parsed = json.loads(json.dumps(as_json(here, [evaluate(BUILTIN["range"], here)])))
    assert (parsed["members"], parsed["partitions"]) == (2, {"orders": 4})
    (found,) = parsed["plans"]
    assert found["assignment"] == json.loads(answer_line(line()))["assignment"]
    assert found["by_topic"] == {"orders": {"least": 2, "most": 2, "difference": 0}}
    assert found["members"]["a"] == {"partitions": 2, "gained": 2, "lost": 0}
