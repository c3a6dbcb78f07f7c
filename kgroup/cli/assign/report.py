"""Prints results side by side: as tables for a person, as one JSON object for a program.

Tables stay readable for large groups: of many members or topics only those that differ most are
shown, and the others are counted. The JSON object contains all of them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

from rich.console import Console
from rich.table import Table
from rich.text import Text

from kgroup.cli.assign.group_input import GroupInput
from kgroup.cli.assign.results import AssignedPart, AssignorResult, Spread
from kgroup.cli.tables import runs
from kgroup.types import TopicPartition, by_topic

MOST_LINES: Final = 20
"""Up to so many members, and topics, all of them are shown."""
_SOME: Final = 10
"""How many are shown if there are more."""
_MOST_TOPICS: Final = 6
"""Up to so many topics of one member all of them are listed."""
_SOME_TOPICS: Final = 2
"""How many are listed if there are more."""
_MOST_COUNTS: Final = 4
"""Up to so many different numbers of partitions are listed."""


def print_results(console: Console, group: GroupInput, results: Sequence[AssignorResult]) -> None:
    """Print the results: an account of each, then the members, then the topics."""
    console.print(_overview(group, results))
    console.print(_members(group, results))
    console.print(_topics(results))


def as_json(group: GroupInput, results: Sequence[AssignorResult]) -> dict[str, Any]:
    """The results as one object; assignments have the shape of the lines that ``--json`` prints."""
    return {
        "members": len(group.members),
        "partitions": {name: topic.partitions for name, topic in sorted(group.topics.items())},
        "plans": [_result_as_json(result) for result in results],
    }


def ranges(partitions: Iterable[TopicPartition]) -> str:
    """Write partitions by topic, as ranges: ``orders 0-3,7; clicks 0``."""
    topics = list(by_topic(partitions).items())
    some = topics if len(topics) <= _MOST_TOPICS else topics[:_SOME_TOPICS]
    shown = [f"{topic} {runs(numbers)}" for topic, numbers in some]
    if len(topics) > len(some):
        shown.append(f"{len(topics) - len(some)} more topics")
    return "; ".join(shown)


def _overview(group: GroupInput, results: Sequence[AssignorResult]) -> Table:
    table = _table(f"{len(group.members)} members", "", results)
    rows = {
        "partitions given": [
            _count(sum(len(p.partitions) for p in result.parts.values())) for result in results
        ],
        "unassigned": [_count(result.unassigned) for result in results],
        "move": [f"{_count(result.moved)} of {_count(result.owned)}" for result in results],
        "wait for their owner first": [_count(result.withheld) for result in results],
        "rounds": [str(result.rounds) for result in results],
        "by member, most - least": [_difference(result.by_member) for result in results],
        "members x partitions": [_sizes(result) for result in results],
        "by topic, most - least": [_widest(result) for result in results],
        "not in their member's rack": [_count(result.rack_mismatched) for result in results],
    }
    if not any(member.rack_id for member in group.members):
        del rows["not in their member's rack"]
    for name, cells in rows.items():
        _add_row(table, name, cells)
    return table


def _members(group: GroupInput, results: Sequence[AssignorResult]) -> Table:
    """The members sorted by id; of many, those that change most."""
    shown = [member.member_id for member in group.members]
    title = "members (gained, lost)"
    if len(shown) > MOST_LINES:
        changes = {
            member_id: sum(p.parts[member_id].gained + p.parts[member_id].lost for p in results)
            for member_id in shown
        }
        title = f"the {_SOME} of {len(shown)} members that change most (gained, lost)"
        shown = sorted(shown, key=lambda member_id: (-changes[member_id], member_id))[:_SOME]
    table = _table(title, "member", results)
    for member_id in shown:
        _add_row(table, member_id, (_part(result.parts[member_id]) for result in results))
    return table


def _topics(results: Sequence[AssignorResult]) -> Table:
    """The topics sorted by name; of many, the most uneven."""
    shown = list(results[0].by_topic)
    title = "partitions of a topic, by subscriber: least to most"
    if len(shown) > MOST_LINES:
        widths = {
            topic: max(result.by_topic[topic].difference for result in results) for topic in shown
        }
        title = f"the {_SOME} most uneven of {len(shown)} topics, by subscriber: least to most"
        shown = sorted(shown, key=lambda topic: (-widths[topic], topic))[:_SOME]
    table = _table(title, "topic", results)
    for topic in shown:
        spreads = [result.by_topic[topic] for result in results]
        cells = (f"{_count(one.least)} to {_count(one.most)}" for one in spreads)
        _add_row(table, topic, cells)
    return table


def _table(title: str, first: str, results: Sequence[AssignorResult]) -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(first, overflow="fold")
    for result in results:
        table.add_column(_plain(result.assignor), overflow="fold")
    return table


def _add_row(table: Table, name: str, cells: Iterable[str]) -> None:
    table.add_row(*map(_plain, (name, *cells)))


def _plain(text: str) -> Text:
    """Untrusted text without markup and without control characters for the terminal."""
    return Text("".join(one if one.isprintable() or one == "\n" else "?" for one in text))


def _part(part: AssignedPart) -> str:
    changes = f" (+{_count(part.gained)} -{_count(part.lost)})" if part.gained or part.lost else ""
    return f"{_count(len(part.partitions))}{changes}\n{ranges(part.partitions)}".rstrip()


def _sizes(result: AssignorResult) -> str:
    """Members by their number of partitions: ``12 x 3, 5 x 4`` is 12 with 3 and 5 with 4."""
    sizes = sorted(Counter(len(part.partitions) for part in result.parts.values()).items())
    if len(sizes) > _MOST_COUNTS:
        return f"{_count(len(result.parts))} x {_count(sizes[0][0])} to {_count(sizes[-1][0])}"
    return ", ".join(f"{_count(members)} x {_count(size)}" for size, members in sizes)


def _widest(result: AssignorResult) -> str:
    if result.widest is None:
        return "-"
    topic, spread = result.widest
    return f"{_difference(spread)}, {topic}"


def _difference(spread: Spread) -> str:
    return f"{_count(spread.difference)} ({_count(spread.most)} - {_count(spread.least)})"


def _count(number: int) -> str:
    return f"{number:,}"


def _result_as_json(result: AssignorResult) -> dict[str, Any]:
    return {
        "assignor": result.assignor,
        "rounds": result.rounds,
        "owned": result.owned,
        "moved": result.moved,
        "withheld": result.withheld,
        "unassigned": result.unassigned,
        "rack_mismatched": result.rack_mismatched,
        "by_member": _spread(result.by_member),
        "by_topic": {topic: _spread(spread) for topic, spread in result.by_topic.items()},
        "members": {
            member_id: {
                "partitions": len(part.partitions),
                "gained": part.gained,
                "lost": part.lost,
            }
            for member_id, part in result.parts.items()
        },
        "assignment": {
            member_id: [[one.topic, one.partition] for one in part.partitions]
            for member_id, part in result.parts.items()
        },
    }


def _spread(spread: Spread) -> dict[str, int]:
    return {"least": spread.least, "most": spread.most, "difference": spread.difference}
