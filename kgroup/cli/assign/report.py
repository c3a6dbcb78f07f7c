"""Plans side by side: as tables for a person, as one JSON object for a program.

Tables stay readable for large groups: past a number of members or topics those are shown that
differ most, and the others counted. The JSON object has everything.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kgroup.cli.assign.fields import GroupInput
from kgroup.cli.assign.plans import AssignorResult, Part, Spread
from kgroup.types import TopicPartition, by_topic

MOST_LINES: Final = 20
"""Members, and topics, up to which all of them are shown."""
_SOME: Final = 10
"""How many are shown where there are more."""
_MOST_TOPICS: Final = 6
"""Topics of one member up to which all of them are spelt out."""
_SOME_TOPICS: Final = 2
"""How many are where there are more."""
_MOST_COUNTS: Final = 4
"""Different numbers of partitions that are spelt out."""


def print_plans(console: Console, group: GroupInput, plans: Sequence[AssignorResult]) -> None:
    """Print the plans: an account of each, then the members, then the topics."""
    console.print(_account(group, plans))
    console.print(_members(group, plans))
    console.print(_topics(plans))


def as_json(group: GroupInput, plans: Sequence[AssignorResult]) -> dict[str, Any]:
    """The plans as one object; assignments have the shape of the lines that ``--json`` prints."""
    return {
        "members": len(group.members),
        "partitions": {name: topic.partitions for name, topic in sorted(group.topics.items())},
        "plans": [_plan(plan) for plan in plans],
    }


def ranges(partitions: Iterable[TopicPartition]) -> str:
    """Partitions by topic, in runs: ``orders 0-3,7; clicks 0``."""
    topics = list(by_topic(partitions).items())
    some = topics if len(topics) <= _MOST_TOPICS else topics[:_SOME_TOPICS]
    shown = [f"{topic} {','.join(_runs(numbers))}" for topic, numbers in some]
    if len(topics) > len(some):
        shown.append(f"{len(topics) - len(some)} more topics")
    return "; ".join(shown)


def _runs(numbers: Iterable[int]) -> Iterable[str]:
    for _, run in groupby(enumerate(numbers), key=lambda item: item[1] - item[0]):
        found = [number for _, number in run]
        yield str(found[0]) if len(found) == 1 else f"{found[0]}-{found[-1]}"


def _account(group: GroupInput, plans: Sequence[AssignorResult]) -> Table:
    table = _table(f"{len(group.members)} members", "", plans)
    rows = {
        "partitions given": [
            _count(sum(len(p.partitions) for p in plan.parts.values())) for plan in plans
        ],
        "given to nobody": [_count(plan.unassigned) for plan in plans],
        "move": [f"{_count(plan.moved)} of {_count(plan.owned)}" for plan in plans],
        "wait for their owner first": [_count(plan.withheld) for plan in plans],
        "rounds": [str(plan.rounds) for plan in plans],
        "by member, most - least": [_difference(plan.by_member) for plan in plans],
        "members x partitions": [_sizes(plan) for plan in plans],
        "by topic, most - least": [_widest(plan) for plan in plans],
        "not in their member's rack": [_count(plan.rack_mismatched) for plan in plans],
    }
    if not any(member.rack_id for member in group.members):
        del rows["not in their member's rack"]
    for name, cells in rows.items():
        _add_row(table, name, cells)
    return table


def _members(group: GroupInput, plans: Sequence[AssignorResult]) -> Table:
    """The members in order of their ids, of many those that change most."""
    shown = [member.member_id for member in group.members]
    title = "members (gained, lost)"
    if len(shown) > MOST_LINES:
        changes = {
            member_id: sum(p.parts[member_id].gained + p.parts[member_id].lost for p in plans)
            for member_id in shown
        }
        title = f"the {_SOME} of {len(shown)} members that change most (gained, lost)"
        shown = sorted(shown, key=lambda member_id: (-changes[member_id], member_id))[:_SOME]
    table = _table(title, "member", plans)
    for member_id in shown:
        _add_row(table, member_id, (_part(plan.parts[member_id]) for plan in plans))
    return table


def _topics(plans: Sequence[AssignorResult]) -> Table:
    """The topics in order of their names, of many those that are most uneven."""
    shown = list(plans[0].by_topic)
    title = "partitions of a topic, by subscriber: least to most"
    if len(shown) > MOST_LINES:
        widths = {topic: max(plan.by_topic[topic].difference for plan in plans) for topic in shown}
        title = f"the {_SOME} most uneven of {len(shown)} topics, by subscriber: least to most"
        shown = sorted(shown, key=lambda topic: (-widths[topic], topic))[:_SOME]
    table = _table(title, "topic", plans)
    for topic in shown:
        spreads = [plan.by_topic[topic] for plan in plans]
        cells = (f"{_count(one.least)} to {_count(one.most)}" for one in spreads)
        _add_row(table, topic, cells)
    return table


def _table(title: str, first: str, plans: Sequence[AssignorResult]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first, overflow="fold")
    for plan in plans:
        table.add_column(_plain(plan.assignor), overflow="fold")
    return table


def _add_row(table: Table, name: str, cells: Iterable[str]) -> None:
    table.add_row(*map(_plain, (name, *cells)))


def _plain(text: str) -> Text:
    """A text of others: nothing in it is markup, or steers a terminal."""
    return Text("".join(one if one.isprintable() or one == "\n" else "?" for one in text))


def _part(part: Part) -> str:
    changes = f" (+{_count(part.gained)} -{_count(part.lost)})" if part.gained or part.lost else ""
    return f"{_count(len(part.partitions))}{changes}\n{ranges(part.partitions)}".rstrip()


def _sizes(plan: AssignorResult) -> str:
    """How many members have how many: ``12 x 3, 5 x 4`` is twelve with three, five with four."""
    sizes = sorted(Counter(len(part.partitions) for part in plan.parts.values()).items())
    if len(sizes) > _MOST_COUNTS:
        return f"{_count(len(plan.parts))} x {_count(sizes[0][0])} to {_count(sizes[-1][0])}"
    return ", ".join(f"{_count(members)} x {_count(size)}" for size, members in sizes)


def _widest(plan: AssignorResult) -> str:
    if plan.widest is None:
        return "-"
    topic, spread = plan.widest
    return f"{_difference(spread)}, {topic}"


def _difference(spread: Spread) -> str:
    return f"{_count(spread.difference)} ({_count(spread.most)} - {_count(spread.least)})"


def _count(number: int) -> str:
    return f"{number:,}"


def _plan(plan: AssignorResult) -> dict[str, Any]:
    return {
        "assignor": plan.assignor,
        "rounds": plan.rounds,
        "owned": plan.owned,
        "moved": plan.moved,
        "withheld": plan.withheld,
        "unassigned": plan.unassigned,
        "rack_mismatched": plan.rack_mismatched,
        "by_member": _spread(plan.by_member),
        "by_topic": {topic: _spread(spread) for topic, spread in plan.by_topic.items()},
        "members": {
            member_id: {
                "partitions": len(part.partitions),
                "gained": part.gained,
                "lost": part.lost,
            }
            for member_id, part in plan.parts.items()
        },
        "assignment": {
            member_id: [[one.topic, one.partition] for one in part.partitions]
            for member_id, part in plan.parts.items()
        },
    }


def _spread(spread: Spread) -> dict[str, int]:
    return {"least": spread.least, "most": spread.most, "difference": spread.difference}
