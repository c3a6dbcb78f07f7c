"""Lines of events, as files have them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kgroup.cli.timeline.reader import Entry, read


def line(at: float, name: str, event: str, generation_id: int = -1, **fields: Any) -> str:
    """One line of a member's file."""
    values: Mapping[str, Any] = {
        "at": at,
        "client_id": name,
        "host": "h",
        "pid": 7,
        "member": 1,
        "event": event,
        "level": "INFO",
        "group_id": "g",
        "generation_id": generation_id,
        "message": f"{event} happened",
        **fields,
    }
    return json.dumps(values)


def ended(at: float, name: str, generation_id: int, cause: str = "rebalance", **fields: Any) -> str:
    """The end of a generation."""
    end = {"cause": cause, "detail": ""}
    return line(at, name, "GenerationEnded", generation_id, end=end, **fields)


def two_members() -> list[str]:
    """A member works; another one joins 10 s later and is killed, and the first learns of it."""
    return [
        line(100.0, "a", "Joining"),
        line(100.5, "a", "Joined", 1),
        line(100.6, "a", "Assigned", 1, assignment=["t-0", "t-1"]),
        line(101.0, "a", "GenerationStarted", 1),
        line(110.0, "b", "Joining"),
        line(110.4, "a", "Committed", 1),
        line(110.5, "a", "GenerationDraining", 1),
        ended(110.6, "a", 1),
        line(110.6, "a", "Joining"),
        line(110.7, "a", "Joined", 2),
        line(110.7, "b", "Joined", 2),
        line(110.7, "a", "Assigned", 2, assignment=["t-0"]),
        line(110.7, "b", "Assigned", 2, assignment=["t-1"]),
        line(110.8, "a", "GenerationStarted", 2),
        line(111.0, "b", "GenerationStarted", 2),
        line(112.0, "b", "LoopBlocked", 2, level="WARNING"),
        line(130.0, "a", "GenerationDraining", 2),
        ended(130.1, "a", 2, "membership lost"),
        line(130.2, "a", "Left"),
    ]


def entries(folder: Path, lines: list[str]) -> list[Entry]:
    """The entries of a file with these lines."""
    file = folder / "events"
    file.write_text("\n".join(lines), encoding="utf-8")
    return read([file])[0]


def joined(at: float, name: str, generation_id: int, *partitions: str) -> list[str]:
    """A member joins and works, all within half a second; its session lasts 30 s."""
    return [
        line(at, name, "Joining"),
        line(at + 0.1, name, "Joined", generation_id, session_timeout=30.0),
        line(at + 0.2, name, "Assigned", generation_id, assignment=list(partitions)),
        line(at + 0.5, name, "GenerationStarted", generation_id),
    ]


def draining(
    at: float, name: str, generation_id: int, cause: str = "rebalance", **fields: Any
) -> str:
    """The beginning of a drain."""
    end = {"cause": cause, "detail": ""}
    return line(at, name, "GenerationDraining", generation_id, end=end, **fields)


def drained(at: float, name: str, generation_id: int, cause: str = "rebalance") -> list[str]:
    """A member drains for a tenth of a second."""
    return [
        draining(at, name, generation_id, cause),
        ended(at + 0.1, name, generation_id, cause),
    ]


def stopped_and_killed() -> list[str]:
    """Static members: b restarts within its session; later c is killed, and its session ends."""
    return [
        *joined(100.0, "a", 1, "t-0"),
        *joined(100.0, "b", 1, "t-1"),
        *joined(100.0, "c", 1, "t-2"),
        *drained(110.0, "b", 1, "closed"),
        line(110.2, "b", "Left", 1, notified=False),
        *joined(120.0, "b2", 1, "t-1"),
        line(130.0, "c", "Committed", 1),
        *(one for name in ("a", "b2") for one in drained(200.0, name, 1)),
        *joined(200.2, "a", 2, "t-0", "t-2"),
        *joined(200.2, "b2", 2, "t-1"),
        line(210.0, "a", "Committed", 2),
    ]
