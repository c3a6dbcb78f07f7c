"""Reads files of events, as ``GroupConfig.events_to`` writes them.

INVARIANT: each field that the timeline uses is checked here, and nowhere else: an `Entry` has no
value of another type or out of range, and its texts can be written in HTML and SVG. A line with a
value that it cannot have is no event.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, final

import attrs

from kgroup import bounds
from kgroup.types import INT32_MAX

_MEMBER_ID: Final = re.compile(r"(.+)-[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""A member id as Kafka makes it."""

_COMPRESSED: Final = "is compressed by {0}: unpack it first"
_NO_EVENTS: Final = "has no line that is an event of kgroup, as the setting events_to writes them"
_KINDS: Final = (
    (re.compile(rb"\x1f\x8b"), _COMPRESSED.format("gzip")),
    (re.compile(rb"\x28\xb5\x2f\xfd"), _COMPRESSED.format("zstd")),
    (re.compile(rb"BZh"), _COMPRESSED.format("bzip2")),
    (re.compile(rb"\xfd7zXZ"), _COMPRESSED.format("xz")),
    (re.compile(rb"PK\x03\x04"), "is a zip archive: unpack it first"),
    (re.compile(rb"\s*<(!doctype html|html)", re.IGNORECASE), "is an HTML page"),
    (re.compile(rb"\s*<(svg|\?xml)", re.IGNORECASE), "is a picture (SVG)"),
    (re.compile(rb"\s*[{\[]"), f"has JSON, but it {_NO_EVENTS}"),
    (re.compile(rb"[^\x00\n]*\x00"), "is binary, and no file of events"),
)
"""How files begin that are often given by mistake, and what is said of them."""

_UNWRITABLE: Final = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""Lone surrogates, which UTF-8 does not have, and control characters, which XML does not."""
_REPLACEMENT: Final = "\ufffd"
_LATEST: Final = 253_402_300_799
"""The end of the year 9999, in seconds since 1970."""
_SET_BACK: Final = 0.5
"""Seconds by which a member's next time must be earlier to show that its machine's clock was set
back. Threads of one process may write two lines in another order than that of their times."""
_TEXT: Final = bounds.instance(str, "a text")
_COUNT: Final = bounds.whole(0, INT32_MAX)
_SECONDS: Final = bounds.number(0, _LATEST)
_REQUIRED: Final[Mapping[str, bounds.Bound]] = {
    "at": _SECONDS,
    "client_id": _TEXT,
    "host": _TEXT,
    "pid": bounds.whole(0, 2**63 - 1),
    "member": _COUNT,
    "group_id": _TEXT,
    "generation_id": bounds.whole(-1, INT32_MAX),
    "event": _TEXT,
}
_OPTIONAL: Final[Mapping[str, bounds.Bound]] = {
    "level": _TEXT,
    "message": _TEXT,
    "member_id": _TEXT,
    "group_instance_id": bounds.optional(_TEXT),
    "session_timeout": _SECONDS,
    "seconds": _SECONDS,
    "assignment": bounds.Bound(
        lambda value: isinstance(value, list) and all(isinstance(one, str) for one in value),
        "a list of texts",
    ),
    "end": bounds.Bound(
        lambda value: isinstance(value, dict) and isinstance(value.get("cause", ""), str),
        "a cause, and more",
    ),
    "cut_short": bounds.flag(),
    "leader": bounds.flag(),
    "members": _COUNT,
    "notified": bounds.flag(),
}
"""The fields that lines may lack: those of some events, and those that older files do not have."""


@final
@attrs.frozen(kw_only=True)
class Entry:
    """One event of one member.

    Attributes:
        at: when, in seconds since 1970; see ``moved``.
        member: the member, as ``client_id (host, pid)``; if its process has several with one name,
            those after the first also have their number.
        group_id: the group.
        generation_id: the generation; -1 without one.
        event: the class of the event.
        fields: the fields of the line that the timeline uses.
        moved: the seconds that ``at`` is earlier than in the line, because the clock of the
            machine was set back after it.
    """

    at: float
    member: str
    group_id: str
    generation_id: int
    event: str
    fields: Mapping[str, Any]
    moved: float = 0.0

    @property
    def message(self) -> str:
        """What happened."""
        return self.fields.get("message", "")  # type: ignore[no-any-return] # checked as read

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


@final
@attrs.frozen(kw_only=True)
class Source:
    """What one file had.

    Attributes:
        path: the file.
        events: how many of its lines are events.
        refused: how many are none; blank ones do not count.
        looks_like: what it seems to be, if it has no events.
    """

    path: Path
    events: int
    refused: int
    looks_like: str


def read(paths: Iterable[Path]) -> tuple[list[Entry], list[Source]]:
    """The entries of some files in the order of their time, and what each file had.

    A process that was killed may leave a part of a line. A clock that was set back is taken for
    right from then on: what a member reported before is moved to before that moment.

    Raises:
        OSError: a file cannot be read.
    """
    entries: list[Entry] = []
    sources: list[Source] = []
    for path in paths:
        found: list[Entry] = []
        refused = 0
        content = path.read_bytes()
        # A message may have other ends of lines, such as U+2028: they are not escaped in JSON.
        for line in content.decode(errors="replace").split("\n"):
            entry = _entry(line)
            if entry is None:
                refused += bool(line.strip())
            else:
                found.append(entry)
        entries += _in_their_order(found)
        looks_like = "" if found else kind_of(content)
        sources.append(Source(path=path, events=len(found), refused=refused, looks_like=looks_like))
    return sorted(entries, key=lambda one: one.at), sources


def _in_their_order(entries: Sequence[Entry]) -> list[Entry]:
    """The entries of one file, with times that keep the order in which a member wrote them.

    By the times of a clock that was set back, a member's phases would be mixed up. How long the
    clock had stood wrong, and how much time had passed when it was set back, no line says.
    """
    moved: dict[str, float] = {}
    following: dict[str, float] = {}
    found = []
    for entry in reversed(entries):
        at = max(0.0, entry.at - moved.get(entry.member, 0.0))
        limit = following.get(entry.member, at)
        if at > limit + _SET_BACK:
            at = limit
            moved[entry.member] = entry.at - limit
        following[entry.member] = at
        found.append(attrs.evolve(entry, at=at, moved=entry.at - at) if at < entry.at else entry)
    return found[::-1]


def kind_of(content: bytes) -> str:
    """What a file seems to be that has no events."""
    if not content.strip():
        return "is empty"
    return next((words for begin, words in _KINDS if begin.match(content)), _NO_EVENTS)


def _entry(line: str) -> Entry | None:
    try:
        given = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if not isinstance(given, dict) or not _is_event(given):
        return None
    fields = {name: _writable(given[name]) for name in (*_REQUIRED, *_OPTIONAL) if name in given}
    number = fields["member"]
    process = f"{fields['host']}, {fields['pid']}"
    return Entry(
        at=float(fields["at"]),
        member=f"{fields['client_id']} ({process}{f', member {number}' if number > 1 else ''})",
        group_id=fields["group_id"],
        generation_id=fields["generation_id"],
        event=fields["event"],
        fields=fields,
    )


def _is_event(given: Mapping[str, Any]) -> bool:
    return all(
        name in given and bound.holds(given[name]) for name, bound in _REQUIRED.items()
    ) and all(bound.holds(given[name]) for name, bound in _OPTIONAL.items() if name in given)


def _writable(value: Any) -> Any:
    """The value of a field, in whose texts each character that cannot be written is replaced."""
    if isinstance(value, str):
        return _UNWRITABLE.sub(_REPLACEMENT, value)
    if isinstance(value, dict):
        return {name: _writable(one) for name, one in value.items()}
    return [_writable(one) for one in value] if isinstance(value, list) else value


def groups_of(entries: Iterable[Entry]) -> list[str]:
    """The groups, in the order of their first event."""
    return list(dict.fromkeys(entry.group_id for entry in entries))


def of_group(entries: Iterable[Entry], group_id: str) -> Iterator[Entry]:
    """The entries of one group."""
    return (entry for entry in entries if entry.group_id == group_id)
