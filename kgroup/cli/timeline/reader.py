"""Reads files of events, as ``GroupConfig.events_to`` writes them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, final

import attrs

_MEMBER_ID: Final = re.compile(r"(.+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""A member id as Kafka makes it."""


@final
@attrs.frozen(kw_only=True)
class Entry:
    """One event of one member.

    Attributes:
        at: when, in seconds since 1970.
        member: the member, as ``client_id (host, pid)``; if its process has several with one name,
            those after the first also have their number.
        group_id: the group.
        generation_id: the generation; -1 without one.
        event: the class of the event.
        fields: all fields of the line.
    """

    at: float
    member: str
    group_id: str
    generation_id: int
    event: str
    fields: Mapping[str, Any]

    @property
    def message(self) -> str:
        """What happened."""
        return str(self.fields.get("message", ""))

    @property
    def is_warning(self) -> bool:
        """Whether the event is a warning."""
        return self.fields.get("level") == "WARNING"

    @property
    def instance(self) -> str:
        """The member's ``group_instance_id``, for a ``Joined``; empty without one.

        An older file has it only in the member id, which begins with it, or with the client id.
        """
        if "group_instance_id" in self.fields:
            return str(self.fields["group_instance_id"] or "")
        found = _MEMBER_ID.fullmatch(str(self.fields.get("member_id", "")))
        return "" if found is None or found[1] == self.fields["client_id"] else found[1]


def read(paths: Iterable[Path]) -> tuple[list[Entry], int]:
    """The entries of some files in the order of their time, and how many lines are no events.

    A process that was killed may leave a part of a line.

    Raises:
        OSError: a file cannot be read.
    """
    entries: list[Entry] = []
    refused = 0
    for path in paths:
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
            entry = _entry(line)
            if entry is None:
                refused += bool(line.strip())
            else:
                entries.append(entry)
    return sorted(entries, key=lambda one: one.at), refused


def _entry(line: str) -> Entry | None:
    try:
        fields = json.loads(line)
        at = float(fields["at"])
        number = int(fields["member"])
        process = f"{fields['host']}, {fields['pid']}"
        entry = Entry(
            at=at,
            member=f"{fields['client_id']} ({process}{f', member {number}' if number > 1 else ''})",
            group_id=str(fields["group_id"]),
            generation_id=int(fields["generation_id"]),
            event=str(fields["event"]),
            fields=fields,
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return None
    return entry if math.isfinite(at) else None


def groups_of(entries: Iterable[Entry]) -> list[str]:
    """The groups, in the order of their first event."""
    return list(dict.fromkeys(entry.group_id for entry in entries))


def of_group(entries: Iterable[Entry], group_id: str) -> Iterator[Entry]:
    """The entries of one group."""
    return (entry for entry in entries if entry.group_id == group_id)
