"""Recorded calls, answered line by line."""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping, Sequence
from itertools import islice

import pytest

from kgroup.assignors import BUILTIN
from kgroup.cli.assign.group_input import WrongInputError
from kgroup.cli.assign.lines import answer_each, answer_line
from kgroup.types import MemberSubscription, TopicInfo, TopicPartition
from tests.assignors.golden import FILE
from tests.cli.assign.groups import line, member


class Twice:
    """Gives the first partition to every member."""

    name = "twice"

    def assign(
        self, topics: Mapping[str, TopicInfo], members: Sequence[MemberSubscription]
    ) -> dict[str, list[TopicPartition]]:
        """Give one partition to all members, which is wrong for two or more."""
        del topics
        return {one.member_id: [TopicPartition("orders", 0)] for one in members}


def test_the_assignment_is_added() -> None:
    """The answer is the line, with its fields unchanged and an assignment for every member."""
    given = line(case="c", assignment={"x": []}, members=[member("b", "orders"), member("a")])
    answered = json.loads(answer_line(given))
    assert answered == {
        **json.loads(given),
        "assignment": {"a": [], "b": [["orders", number] for number in range(4)]},
    }


@pytest.mark.parametrize("name", BUILTIN)
def test_recorded_lines_get_their_recorded_answer(name: str) -> None:
    """The answers to recorded lines equal Java's, field by field and in the same order.

    Only the order of a member's partitions may differ.
    """

    def shape(text: bytes | str) -> str:
        fields = json.loads(text)
        for partitions in fields["assignment"].values():
            partitions.sort()
        return json.dumps(fields, separators=(",", ":"))

    with gzip.open(FILE) as file:
        mark = f'"assignor":"{name}"'.encode()
        lines = (one for one in file if mark in one and b'"deterministic":true' in one)
        for one in islice(lines, 25):
            assert shape(answer_line(one)) == shape(one)


def test_another_assignor_can_be_used() -> None:
    """An assignor that is given as an option replaces that of the line; the answer names it."""
    answered = json.loads(answer_line(line("none"), BUILTIN["roundrobin"]))
    assert answered["assignor"] == "roundrobin"
    assert answered["assignment"]["a"] == [["orders", 0], ["orders", 2]]


@pytest.mark.parametrize("name", ["mine", None, ["range"]])
def test_an_unknown_assignor_is_refused(name: str) -> None:
    """The error lists the known assignors."""
    with pytest.raises(WrongInputError, match="assignor is .*, not one of range, roundrobin"):
        answer_line(line(name))


def test_each_line_is_answered_before_the_next_is_read() -> None:
    """The output has the answer before another line is read."""
    seen: list[str] = []
    lines = iter([line("range"), line("sticky"), b""])

    def read() -> bytes:
        seen.append("read")
        return next(lines)

    assert answer_each(read, lambda answer: seen.append(json.loads(answer)["assignor"]), print)
    assert seen == ["read", "range", "read", "sticky", "read"]


def test_a_wrong_line_is_reported_with_its_number() -> None:
    """The lines after a wrong one are still answered."""
    lines = iter([line(), b"\n", line(members=3), line(), b""])
    answers: list[str] = []
    faults: list[str] = []
    assert not answer_each(lines.__next__, answers.append, faults.append)
    assert len(answers) == 2
    assert [fault.partition(": ")[0] for fault in faults] == ["line 2", "line 3"]
    assert faults[1] == "line 3: members is 3, not an array"


def test_a_wrong_answer_is_reported_with_its_line() -> None:
    """An error of a custom assignor is reported, and the line has no assignment."""
    lines = iter([line(), b""])
    faults: list[str] = []
    assert not answer_each(lines.__next__, print, faults.append, Twice())
    assert faults[0].startswith("line 1: InvalidAssignmentError: assignor 'twice'")
    assert "orders-0 goes to 'a' and again to 'b'" in faults[0]
