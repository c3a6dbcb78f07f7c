"""docs/assignors.md: its assignor works as the page says, and its JSON file is accepted."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from kgroup.assignors import BUILTIN
from kgroup.assignors.validation import check_assignments
from kgroup.cli.assign.group_input import read_group, read_json
from kgroup.cli.assign.results import evaluate
from kgroup.types import MemberSubscription, TopicInfo

PAGE: Final = (Path(__file__).resolve().parents[2] / "docs" / "assignors.md").read_text()


def block(language: str) -> str:
    """The page's one block in a language."""
    (found,) = re.findall(rf"^```{language}\n(.*?)^```$", PAGE, re.DOTALL | re.MULTILINE)
    return str(found)


def test_its_assignor_is_whole() -> None:
    """It assigns whole topics in turn, and leaves no partition unassigned."""
    names: dict[str, Any] = {}
    exec(block("python"), names)  # noqa: S102 # the page's own code
    assignor = names["OneEach"]()
    topics = {name: TopicInfo(name=name, partitions=2) for name in ("x", "y", "z")}
    members = [MemberSubscription(member_id=name, topics=tuple(topics)) for name in "ab"]
    checked = check_assignments(assignor.name, topics, members, assignor.assign(topics, members))
    assert checked.unassigned == ()
    topics_of = {name: {one.topic for one in got} for name, got in checked.assignments.items()}
    assert topics_of == {"a": {"x", "z"}, "b": {"y"}}


def test_its_group_is_read() -> None:
    """Every assignor assigns all partitions of the page's group; the short form is read too."""
    group = read_group(read_json(block("json")))
    assert {evaluate(assignor, group).unassigned for assignor in BUILTIN.values()} == {0}
    short = {"topics": {}, "members": [{"member_id": "a", "topics": []}]}
    assert read_group(read_json(json.dumps(short))).members


def test_the_page_has_every_built_in_assignor() -> None:
    """The first table has a row for each built-in assignor, in the order of ``BUILTIN``."""
    rows = re.findall(r"^\| `([a-z-]+)` \|.*\| (?:yes|no) \|", PAGE, re.MULTILINE)
    assert rows == list(BUILTIN)
