"""Finds members of a group whose events are not in the files.

The ``Joined`` of a leader says how many members a generation has. A picture that lacks some of them
misleads: their partitions seem to have no owner, and others seem to wait for nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import final

import attrs

from kgroup.cli.timeline.reader import Entry


@final
@attrs.frozen(kw_only=True)
class Gap:
    """A generation some of whose members have no events in the files.

    Attributes:
        generation_id: the generation.
        members: how many it had.
        missing: how many of them are not in the files.
    """

    generation_id: int
    members: int
    missing: int


def gaps_of(entries: Sequence[Entry]) -> Iterator[Gap]:
    """The gaps of one group, in the order of the leaders' joins."""
    instances = {one.member: one.instance for one in entries if one.event == "Joined"}
    # A static member remains in a generation that it was absent from.
    static = {one for one in instances.values() if one}
    seen: dict[int, set[str]] = {}
    members: dict[int, int] = {}
    for entry in entries:
        number = entry.generation_id
        seen.setdefault(number, set()).add(instances.get(entry.member) or entry.member)
        given = entry.fields.get("members") if entry.event == "Joined" else None
        if entry.fields.get("leader") is True and given is not None:
            members[number] = given
    for number, given in members.items():
        missing = given - len(seen[number] | static)
        if missing > 0:
            yield Gap(generation_id=number, members=given, missing=missing)


def missing_members(gaps: Sequence[Gap]) -> str:
    """What is missing, in one clause; empty if nothing is."""
    if not gaps:
        return ""
    most = max(gaps, key=lambda one: one.missing)
    text = (
        f"{most.missing} of {most.members} members of generation {most.generation_id} are not in"
        " these files"
    )
    others = len(gaps) - 1
    if others:
        text += f", nor all of {others} other generation{'' if others == 1 else 's'}"
    return text
