"""Recorded calls of assignors, a line each, answered one by one.

A line is what an assignor is given, as a JSON object; the answer is the same object with the
``assignment`` that kgroup's assignor gives. So it can be put beside what other tools answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import IO

from kgroup.assignors import BUILTIN
from kgroup.assignors.validation import check_assignments
from kgroup.cli.assign.fields import (
    LONGEST_INPUT,
    GroupInput,
    WrongInputError,
    read_group,
    read_json,
)
from kgroup.cli.options import with_kind
from kgroup.errors import shown
from kgroup.interfaces import Assignor
from kgroup.types import MemberAssignments, TopicInfo


def answer_line(line: bytes, assignor: Assignor | None = None) -> str:
    """The same line with the assignment, without a line's end.

    Args:
        line: the recorded call.
        assignor: what to ask in place of the one that the line names.

    Raises:
        WrongInputError: the line is wrong; the text says where.
        InvalidAssignmentError: no group may follow what the assignor answered.
        Exception: whatever a custom assignor raises.
    """
    fields = read_json(line)
    group = read_group(fields)
    asked = _named(fields) if assignor is None else assignor
    fields["assignor"] = asked.name
    fields["assignment"] = {
        member: [[one.topic, one.partition] for one in partitions]
        for member, partitions in answer(asked, group).items()
    }
    try:
        return json.dumps(fields, separators=(",", ":"), allow_nan=False)
    except RecursionError as error:
        raise WrongInputError("its arrays and objects are nested too deeply") from error


def answer(assignor: Assignor, group: GroupInput) -> MemberAssignments:
    """What an assignor makes of a group, as a leader would send it: looked at, every member there.

    Raises:
        InvalidAssignmentError: no group may follow what the assignor answered.
        Exception: whatever a custom assignor raises.
    """
    topics = subscribed(group)
    given = assignor.assign(topics, group.members)
    return check_assignments(assignor.name, topics, group.members, given).assignments


def subscribed(group: GroupInput) -> dict[str, TopicInfo]:
    """The topics that a leader asks for: those of the group that exist."""
    wanted = frozenset[str]().union(*(member.topics for member in group.members))
    return {name: topic for name, topic in group.topics.items() if name in wanted}


def lines_of(stream: IO[bytes]) -> Callable[[], bytes]:
    """Reads the next line each time; of one that is too long, only as much as shows that it is."""

    def read() -> bytes:
        line = stream.readline(LONGEST_INPUT + 1)
        rest = line
        while len(line) > LONGEST_INPUT and rest and not rest.endswith(b"\n"):
            rest = stream.readline(LONGEST_INPUT)
        return line

    return read


def answer_each(
    lines: Callable[[], bytes],
    say: Callable[[str], None],
    complain: Callable[[str], None],
    assignor: Assignor | None = None,
) -> bool:
    """Answer line after line until there is none; each before the next is read.

    Args:
        lines: the next line; empty at the end.
        say: is given each answer.
        complain: is given, for each line that has no answer, its number and why.
        assignor: what to ask in place of the one that each line names.

    Returns:
        whether every line was answered.
    """
    number, well = 0, True
    while line := lines():
        number += 1
        try:
            answered = answer_line(line, assignor)
        except WrongInputError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001 # a custom assignor's own, told with its line
            reason = with_kind(error)
        else:
            say(answered)
            continue
        well = False
        complain(f"line {number}: {reason}")
    return well


def _named(fields: Mapping[str, object]) -> Assignor:
    name = fields.get("assignor")
    if not isinstance(name, str) or name not in BUILTIN:
        raise WrongInputError(f"assignor is {shown(name)}, not one of {', '.join(BUILTIN)}")
    return BUILTIN[name]
