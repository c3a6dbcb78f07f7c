"""Answers recorded calls of assignors, one JSON object a line.

A line is the input of an assignor; the answer is the same object with the ``assignment`` of
kgroup's assignor, so that it can be compared with the answers of other tools.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import IO

from kgroup.assignors import BUILTIN
from kgroup.assignors.validation import check_assignments
from kgroup.cli.assign.group_input import (
    LONGEST_INPUT,
    GroupInput,
    WrongInputError,
    read_group,
    read_json,
)
from kgroup.cli.options import with_kind
from kgroup.errors import short_repr
from kgroup.interfaces import Assignor
from kgroup.types import MemberAssignments, TopicInfo


def answer_line(line: bytes, assignor: Assignor | None = None) -> str:
    """Return the line with the assignment, without a line end.

    Args:
        line: the recorded call.
        assignor: the assignor to use instead of the one that the line names.

    Raises:
        WrongInputError: the line is wrong; the text says where.
        InvalidAssignmentError: the assignor returned an invalid assignment.
        Exception: raised by a custom assignor.
    """
    fields = read_json(line)
    group = read_group(fields)
    used = _named(fields) if assignor is None else assignor
    fields["assignor"] = used.name
    fields["assignment"] = {
        member: [[one.topic, one.partition] for one in partitions]
        for member, partitions in answer(used, group).items()
    }
    try:
        return json.dumps(fields, separators=(",", ":"), allow_nan=False)
    except RecursionError as error:
        raise WrongInputError("its arrays and objects are nested too deeply") from error


def answer(assignor: Assignor, group: GroupInput) -> MemberAssignments:
    """The assignment of a group as its leader would send it: checked, with every member in it.

    Raises:
        InvalidAssignmentError: the assignor returned an invalid assignment.
        Exception: raised by a custom assignor.
    """
    topics = subscribed(group)
    given = assignor.assign(topics, group.members)
    return check_assignments(assignor.name, topics, group.members, given).assignments


def subscribed(group: GroupInput) -> dict[str, TopicInfo]:
    """The existing topics to which a member of the group subscribes."""
    wanted = frozenset[str]().union(*(member.topics for member in group.members))
    return {name: topic for name, topic in group.topics.items() if name in wanted}


def lines_of(stream: IO[bytes]) -> Callable[[], bytes]:
    """Make a function that reads the next line.

    Of a line that is too long it returns only so much that it is recognised as too long.
    """

    def read() -> bytes:
        line = stream.readline(LONGEST_INPUT + 1)
        rest = line
        while len(line) > LONGEST_INPUT and rest and not rest.endswith(b"\n"):
            rest = stream.readline(LONGEST_INPUT)
        return line

    return read


def answer_each(
    lines: Callable[[], bytes],
    write: Callable[[str], None],
    report: Callable[[str], None],
    assignor: Assignor | None = None,
) -> bool:
    """Answer each line before the next is read, until there are no more.

    Args:
        lines: returns the next line; empty at the end.
        write: is called with each answer.
        report: is called with the number of a line that could not be answered, and the reason.
        assignor: the assignor to use instead of the one that each line names.

    Returns:
        Whether every line was answered.
    """
    number, all_answered = 0, True
    while line := lines():
        number += 1
        try:
            answered = answer_line(line, assignor)
        except WrongInputError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 # a custom assignor may raise anything
            reason = with_kind(error)
        else:
            write(answered)
            continue
        all_answered = False
        report(f"line {number}: {reason}")
    return all_answered


def _named(fields: Mapping[str, object]) -> Assignor:
    name = fields.get("assignor")
    if not isinstance(name, str) or name not in BUILTIN:
        raise WrongInputError(f"assignor is {short_repr(name)}, not one of {', '.join(BUILTIN)}")
    return BUILTIN[name]
