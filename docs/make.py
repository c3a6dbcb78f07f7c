"""Writes the pages of docs/ that are made from the code: settings, recovery, states.

Run it after a change of those tables: ``python docs/make.py``. A test fails where a page is not
current.
"""

from __future__ import annotations

import enum
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs

from kgroup.config import FIELDS
from kgroup.generation.states import TRANSITIONS, Signal, State
from kgroup.model import Cause
from kgroup.recovery import MOVES, OTHERWISE, Fault, Request

HERE = Path(__file__).resolve().parent
MADE = "<!-- made by docs/make.py; edit the code instead -->\n\n"


def configuration() -> str:
    """The table of all settings."""
    lines = [
        "# Settings",
        "",
        "Every setting of `kgroup.GroupConfig`, with its default and its reason. Durations are",
        "float seconds. A wrong value is refused when the object is made, by a `ConfigError` that",
        "names the field, the value and what is allowed.",
        "",
        "| setting | default | reason |",
        "| --- | --- | --- |",
    ]
    for field in FIELDS:
        reason = field.metadata["reason"].replace("|", "\\|")
        lines.append(f"| `{field.name}` | {_default(field)} | {reason} |")
    return "\n".join(lines) + "\n" + RULES


RULES = """
## Rules between settings
- `heartbeat_interval` is at most a third of `session_timeout`, so that one lost heartbeat loses no
  membership.
- `rejoin_backoff_max` is at least `rejoin_backoff`.
- `offset_retention` does not go together with `group_instance_id`.
- A drain takes at most `drain_timeout`, and less where `rebalance_timeout` demands it: it ends one
  second before the coordinator would go on without this member.
"""


def recovery() -> str:
    """What follows each failure of each request."""
    lines = [
        "# What follows each failure",
        "",
        "One table in the code (`kgroup.recovery`) says what kgroup does about every error that",
        "the classic group protocol can answer, and about every fault of the way there. A code",
        "that no row names, which a newer broker may send, falls to the last row of its request.",
        "",
        "Only what ends a generation has an entry in the last column. *Revoked* means that a",
        "commit can still succeed, so work is drained; *lost* means that it cannot, so work is",
        "cancelled.",
    ]
    for request in Request:
        lines += ["", f"## {request.value}", "", "| failure | what follows | ends a generation |"]
        lines.append("| --- | --- | --- |")
        for failure, move in MOVES[request].items():
            name = failure.value if isinstance(failure, Fault) else f"{failure.name} ({failure})"
            lines.append(f"| {name} | {move} | {_ending(move.cause)} |")
        other = OTHERWISE[request]
        lines.append(f"| anything else | {other} | {_ending(other.cause)} |")
    return "\n".join(lines) + "\n"


def states() -> str:
    """The states of a generation, as a diagram, and what ends one."""
    lines = [
        "# The states of a generation",
        "",
        "```mermaid",
        "stateDiagram-v2",
        f"    [*] --> {State.RUNNING.value}",
        *(
            f"    {before.value} --> {after.value}: {signal.name.lower()}"
            for (before, signal), after in TRANSITIONS.items()
        ),
        f"    {State.ENDED.value} --> [*]",
        "```",
        "",
        *(f"- **{signal.name.lower()}**: {signal.value}" for signal in Signal),
        "",
        "## Causes",
        "",
        "| cause | a commit can still succeed |",
        "| --- | --- |",
        *(f"| {cause.value} | {'yes' if cause.can_commit else 'no'} |" for cause in Cause),
    ]
    return "\n".join(lines) + "\n"


PAGES = {"configuration.md": configuration, "recovery.md": recovery, "states.md": states}


def pages() -> Iterator[tuple[Path, str]]:
    """Every page that is made: its path and its text."""
    for name, make in PAGES.items():
        yield HERE / name, MADE + make()


def _ending(cause: Cause | None) -> str:
    if cause is None:
        return ""
    return f"{cause.value} ({'revoked' if cause.can_commit else 'lost'})"


def _default(field: attrs.Attribute[Any]) -> str:
    value = field.default
    if value is attrs.NOTHING:
        return "required"
    if isinstance(value, enum.Enum):
        return f"`{value.value!r}`"
    if isinstance(value, float) and math.isfinite(value):
        return f"{value:g} s"
    return f"`{value!r}`"


if __name__ == "__main__":
    for path, text in pages():
        path.write_text(text)
        print(path.name)
