"""Writes the pages of docs/ made from the code: settings, recovery, states, the coordinator.

Run it after a change of those tables: ``python docs/make.py``. A test fails where a page is not
current.
"""

from __future__ import annotations

import enum
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs

from kgroup.broker.broker_settings import PROPERTIES
from kgroup.broker.groups import timers, write_faults
from kgroup.broker.groups.coordinator_settings import PROPERTIES as GROUP_PROPERTIES
from kgroup.broker.groups.coordinator_settings import CoordinatorSettings
from kgroup.broker.groups.rule_tables import TABLES
from kgroup.broker.groups.rules import Row
from kgroup.broker.groups.states import ANY, DEAD, MEANING, GroupState
from kgroup.broker.groups.validation import ABSENT_GROUP_RULES, PRECONDITIONS
from kgroup.client.error_policy import OTHERWISE, REACTIONS, Request, TransportFailure
from kgroup.config import FIELDS, RULES
from kgroup.error_codes import ErrorCode
from kgroup.generation.lifecycle import TRANSITIONS, Signal, State
from kgroup.spark.batch_limits import Limits
from kgroup.spark.batch_loop import BatchPace
from kgroup.spark.reader_settings import ReaderSettings
from kgroup.testing.simulation import Scenario
from kgroup.testing.simulation.checks import CHECKS
from kgroup.testing.simulation.plan import MOST_FAULTS, MOST_MEMBER_HOURS
from kgroup.types import Cause

HERE = Path(__file__).resolve().parent
MADE = "<!-- made by docs/make.py; edit the code instead -->\n\n"


def configuration() -> str:
    """The table of all settings."""
    lines = [
        "# Settings",
        "",
        "Every setting of `kgroup.GroupConfig`, with its default, its bounds and its reason.",
        "Durations are float seconds. A wrong value is refused when the object is made, by a",
        "`ConfigError` that names the field, the value and what is allowed.",
        "",
        "| setting | default | allowed | reason |",
        "| --- | --- | --- | --- |",
    ]
    for field in FIELDS:
        cells = (_default(field), _allowed(field), field.metadata["reason"].replace("|", "\\|"))
        lines.append(f"| `{field.name}` | {' | '.join(cells)} |")
    lines += ["", "## Rules between settings", "", *(f"- {rule}" for rule in RULES)]
    return "\n".join(lines) + "\n" + CONSEQUENCES + "\n".join(["", *_others()]) + "\n"


def _others() -> Iterator[str]:
    """The settings of what is beside a group; their meaning is in the classes' docstrings."""
    for words, kinds in OTHERS.items():
        yield from (
            *words.splitlines(),
            "",
            "| setting | default | allowed |",
            "| --- | --- | --- |",
        )
        for field in (field for kind in kinds for field in attrs.fields(kind)):
            yield f"| `{field.name}` | {_default(field)} | {_allowed(field)} |"
        yield ""
    yield from ("## The embedded broker", "")
    yield "`kgroup broker --set NAME=VALUE`, and the `settings` of `serve_cluster`, `EmbeddedKafka`"
    yield from ("and `in_memory`, take Kafka's own names:", "")
    yield from ("| property | default | allowed |", "| --- | --- | --- |")
    groups = CoordinatorSettings()
    rows = {name: (default, read.allowed) for name, (_, read, default) in PROPERTIES.items()} | {
        name: (_in_units(getattr(groups, field), unit), bound.allowed)
        for name, (field, unit, bound) in GROUP_PROPERTIES.items()
    }
    for name, (default, allowed) in sorted(rows.items()):
        yield f"| `{name}` | {f'`{default}`' if default else 'none'} | {_words_of(allowed)} |"


def _in_units(value: float, unit: int | None) -> str:
    return str(value if unit is None else round(value * 1000 / unit))


def _allowed(field: attrs.Attribute[Any]) -> str:
    """The bounds of a field in words; nothing where its type says all."""
    return _words_of(str(field.metadata.get("allowed") or getattr(field.validator, "allowed", "")))


def _words_of(allowed: str) -> str:
    return allowed.removeprefix("it must ").removeprefix("be ").replace("|", "\\|")


OTHERS: Mapping[str, Sequence[type]] = {
    "## Spark\n\nWhat bounds the batches of `kgroup.spark.batches` and its kin:": (
        Limits,
        BatchPace,
    ),
    "How executors read (`ReaderSettings`, and the argument `reader` of `batches`):": (
        ReaderSettings,
    ),
    f"## Simulations\n\nWhat all seeds share (`Scenario`). All members together live for at most\n"
    f"{MOST_MEMBER_HOURS} hours, and there are at most {MOST_FAULTS} faults:": (Scenario,),
}


CONSEQUENCES = """
`GroupConfig` checks these rules when it is made. Two bounds follow from the settings:

- A drain takes at most `drain_timeout`. It ends one second before the coordinator's
  `rebalance_timeout` is over, because the member has to join again by then.
- Closing takes at most the drain, `close_timeout` and 2 s (`GroupConfig.longest_close`).
"""


def recovery() -> str:
    """What kgroup does after each failure of each request."""
    lines = [
        "# What kgroup does after each failure",
        "",
        "One table in the code (`kgroup.client.error_policy`) says what kgroup does after each",
        "error code of the classic group protocol, and after each failure of a connection. The",
        "last row of a request is for all other codes, such as those of newer brokers.",
        "",
        "The last column has an entry where the failure ends the generation. *Revoked* means that",
        "a commit can still succeed, so kgroup drains the work; *lost* means that it cannot, so",
        "kgroup cancels the work.",
    ]
    for request in Request:
        lines += [
            "",
            f"## {request.value}",
            "",
            "| failure | what kgroup does | ends the generation |",
        ]
        lines.append("| --- | --- | --- |")
        for failure, reaction in REACTIONS[request].items():
            name = (
                failure.value
                if isinstance(failure, TransportFailure)
                else f"{failure.name} ({failure})"
            )
            lines.append(f"| {name} | {reaction} | {_ending(reaction.cause)} |")
        other = OTHERWISE[request]
        lines.append(f"| any other code | {other} | {_ending(other.cause)} |")
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


def coordinator() -> str:
    """The state machine of the embedded broker's group coordinator, rule by rule."""
    lines = [
        "# The group coordinator",
        "",
        "The embedded broker coordinates groups as Apache Kafka 4.3 does. Its rules are tables in",
        "`kgroup.broker.groups`, and this page shows all of them, to be held against Kafka's",
        "sources: the last column names the method that a rule was read from. Of an event's rules",
        "the first whose state and conditions fit is the one that counts. A request without an",
        "answer here is answered by what is done, now or later. A test reaches every rule.",
        "",
        "The words are those of the functions that the tables name; what more there is to say of",
        "one stands below the tables.",
        "",
        "## States",
        "",
        "```mermaid",
        "stateDiagram-v2",
        "    [*] --> Empty",
        "    [*] --> Stable: the shard is loaded",
        *_arrows(),
        "```",
        "",
        *(f"- **{state.value}**: {meaning}" for state, meaning in MEANING.items()),
        "",
        "## Timers",
        "",
        *(f"- **{kind.value}**: {meaning}" for kind, meaning in timers.MEANING.items()),
        "",
        "## Before a group is looked at",
        "",
        "The first that holds stops the request (`GroupCoordinatorService`).",
        "",
        "| request | answers, in order |",
        "| --- | --- |",
        *(
            f"| {kind.__name__} | "
            + "<br>".join(f"{_answer(error) or 'good'}: {_words(check)}" for check, error in checks)
            + " |"
            for kind, checks in PRECONDITIONS.items()
        ),
        "",
        "## Groups that are not there",
        "",
        "DescribeGroups and OffsetFetch find them Dead and without offsets.",
        "",
        "| request | if | answer |",
        "| --- | --- | --- |",
        *(
            f"| {kind.__name__} | {_words(condition)} | {_absent(error)} |"
            for kind, rules in ABSENT_GROUP_RULES.items()
            for condition, error in rules
        ),
    ]
    for event, table in TABLES.items():
        lines += [
            "",
            f"## {event[0].upper()}{event[1:]}",
            "",
            "| | state | if | then | answer | next state | Kafka |",
            "| --- | --- | --- | --- | --- | --- | --- |",
            *(f"| {number} | {_rule(row, event)} |" for number, row in enumerate(table, 1)),
        ]
    lines += ["", "## In more words", "", *_more_words()]
    paragraphs = inspect.cleandoc(write_faults.__doc__ or "").split("\n\n")
    lines += [
        "",
        "## Writes that fail",
        "",
        _plain(paragraphs[2]),
        "",
        "| the write fails with | JoinGroup and SyncGroup answer | others answer |",
        "| --- | --- | --- |",
        *(
            f"| {_answer(error)} | {_answer(write_faults.join_or_sync_error(error))} |"
            f" {_answer(other)} |"
            for error, other in write_faults.OTHER_REQUEST_ERRORS.items()
        ),
        "| any other error | the same | the same |",
    ]
    return "\n".join(lines) + "\n"


def _arrows() -> Iterator[str]:
    """The transitions of all tables, those between the same two states as one arrow."""
    events: dict[tuple[GroupState, GroupState], dict[str, None]] = {}
    for event, table in TABLES.items():
        for row in table:
            for state in _in_order(row.states):
                if row.to is not None and row.to is not state:
                    events.setdefault((state, row.to), {})[event.partition(",")[0]] = None
    for (before, after), names in events.items():
        yield f"    {before.value} --> {after.value}: {', '.join(names)}"


def _rule(row: Row, event: str) -> str:
    is_request = event[0].isupper()
    cells = (
        _states(row.states),
        "<br>".join(map(_words, row.when)),
        "<br>".join(map(_words, row.then)),
        _answer(row.error) or ("good" if is_request and not row.then else ""),
        "" if row.to is None else row.to.value,
        f"`{row.source}`",
    )
    return " | ".join(cells)


def _states(states: frozenset[GroupState]) -> str:
    if states == ANY:
        return "any"
    if states == ANY - {DEAD}:
        return "any but Dead"
    return ", ".join(state.value for state in _in_order(states))


def _in_order(states: Iterable[GroupState]) -> list[GroupState]:
    return sorted(states, key=list(GroupState).index)


def _words(part: object) -> str:
    """The first paragraph of what a condition or an action says of itself."""
    return _plain((inspect.getdoc(part) or "").split("\n\n")[0]).replace("|", "\\|")


def _more_words() -> Iterator[str]:
    """What conditions and actions have to say besides."""
    rows = [row for table in TABLES.values() for row in table]
    for part in dict.fromkeys(part for row in rows for part in (*row.when, *row.then)):
        more = (inspect.getdoc(part) or "").partition("\n\n")[2]
        if more:
            yield f"- *{_words(part)}* {_plain(more)}"


def _plain(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


def _answer(error: ErrorCode) -> str:
    return "" if error is ErrorCode.NONE else f"{error.name} ({error.value})"


def _absent(error: ErrorCode | None) -> str:
    return "the group is made" if error is None else _answer(error)


def invariants() -> str:
    """What every simulation is checked for."""
    lines = [
        "# What must hold in every simulation",
        "",
        "The simulator ([simulation.md](simulation.md)) looks on at every coordinator, member and",
        "program, and checks these after each run; a violation is told by its number.",
        "",
        "| | invariant |",
        "| --- | --- |",
    ]
    checks = sorted(CHECKS, key=lambda one: one.number)
    lines += [f"| {one.number} | {_plain(one.says)} |" for one in checks]
    return "\n".join(lines) + "\n"


PAGES = {
    "configuration.md": configuration,
    "coordinator.md": coordinator,
    "invariants.md": invariants,
    "recovery.md": recovery,
    "states.md": states,
}


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
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type] # a class at run time
        return "none"
    if isinstance(value, float) and "seconds" in _allowed(field):
        return f"{value:g} s"
    return f"`{value!r}`"


if __name__ == "__main__":
    for path, text in pages():
        path.write_text(text)
        print(path.name)
