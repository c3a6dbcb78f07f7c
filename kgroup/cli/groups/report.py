"""Prints groups: as tables for people, as one JSON object for programs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from rich.console import Console

from kgroup.cli.groups.lag import GroupLag, owner_names
from kgroup.cli.groups.reset import Change
from kgroup.cli.groups.values import Group, GroupMember, Listing
from kgroup.cli.tables import number, plain, ranges, table
from kgroup.errors import short_list
from kgroup.types import LONGEST_TOPIC, TopicPartition, by_topic

__all__ = [
    "group_as_json",
    "listing_as_json",
    "members",
    "print_changes",
    "print_groups",
    "print_lags",
    "print_listings",
]

NONE: Final = "There are no consumer groups, or none that this user may see."
_NO_OTHER: Final = "The brokers that have answered have no group that this user may see."


def print_listings(
    console: Console, listings: Sequence[Listing], *, incomplete: bool = False
) -> None:
    """Print the groups of a cluster; some may be missing if they are incomplete."""
    if not listings:
        _print_none(console, incomplete=incomplete)
        return
    rows = ([one.group_id, one.state, one.protocol] for one in listings)
    console.print(table(["GROUP", "STATE", "PROTOCOL"], rows))


def listing_as_json(listing: Listing) -> dict[str, Any]:
    """A group of the list."""
    return {
        "group_id": listing.group_id,
        "state": listing.state,
        "protocol": listing.protocol,
    }


def _print_none(console: Console, *, incomplete: bool) -> None:
    console.print(_NO_OTHER if incomplete else NONE)


def print_groups(console: Console, groups: Sequence[Group], *, incomplete: bool = False) -> None:
    """Print groups and their members; some groups may be missing if they are incomplete."""
    for count, group in enumerate(groups):
        if count:
            console.print()
        _print_group(console, group)
    if not groups:
        _print_none(console, incomplete=incomplete)


def _print_group(console: Console, group: Group) -> None:
    console.print(headline(group), markup=False)
    if not group.members:
        return
    moving = any(_moves(member) for member in group.members)
    static = any(member.group_instance_id for member in group.members)
    idle = any(not member.partitions and member.topics is not None for member in group.members)
    differ = len({member.topics for member in group.members if member.topics is not None}) > 1
    topics = idle or differ or bool(group.topics_not_seen)
    titles = ["CLIENT", "HOST", "MEMBER", *["INSTANCE"] * static, "COUNT", "PARTITIONS"]
    rows = (
        [
            member.client_id,
            member.host,
            member.member_id,
            *[member.group_instance_id or ""] * static,
            str(len(member.partitions)),
            ranges(member.partitions),
            *[_target(member)] * moving,
            *[short_list(member.topics or (), _cut)] * topics,
        ]
        for member in group.members
    )
    titles += ["WILL OWN"] * moving + ["SUBSCRIBES TO"] * topics
    console.print(table(titles, rows, ["COUNT"]))
    if group.topics_not_seen:
        listed = short_list(
            group.topics_not_seen,
            lambda topic: f"{_cut(topic)!r}{group.topics_not_seen[topic]}",
        )
        console.print(
            plain(f"Topics that do not exist, or that this user may not describe: {listed}"),
            markup=False,
        )


def print_lags(console: Console, lags: Sequence[GroupLag], *, incomplete: bool = False) -> None:
    """Print the lag of groups, by partition; some groups may be missing if they are incomplete."""
    for count, lag in enumerate(lags):
        if count:
            console.print()
        _print_lag(console, lag)
    if not lags:
        _print_none(console, incomplete=incomplete)


def _print_lag(console: Console, lag: GroupLag) -> None:
    group = lag.group
    count = len(lag.partitions)
    total = f"lag {lag.total:,} in {'1 partition' if count == 1 else f'{count:,} partitions'}"
    if lag.unknown == count:
        total = f"lag unknown in {total.partition(' in ')[2]}" if count else "lag unknown"
    elif lag.unknown:
        total += f", {lag.unknown:,} of them unknown"
    console.print(
        plain(f"Group {group.group_id}: {group.state}, {members(len(group.members))}, {total}"),
        markup=False,
    )
    notes = any(one.note for one in lag.partitions)
    names = owner_names(group.members)
    titles = ["TOPIC", "PARTITION", "COMMITTED", "END", "LAG", "OWNER", *["NOTE"] * notes]
    rows = [
        [
            one.partition.topic,
            str(one.partition.partition),
            number(one.committed),
            number(one.bounds.end),
            number(one.lag),
            names[one.owner.member_id] if one.owner else "",
            *[one.note] * notes,
        ]
        for one in lag.partitions
    ]
    if rows:
        console.print(table(titles, rows, ["PARTITION", "COMMITTED", "END", "LAG"]))
    else:
        console.print(plain(f"No partitions: {lag.note}"), markup=False)
    if lag.idle:
        console.print(plain(f"Without partitions: {short_list(lag.idle)}"), markup=False)


def print_changes(
    console: Console,
    group_id: str,
    changes: Sequence[Change],
    faults: Mapping[TopicPartition, str],
    *,
    executed: bool,
) -> None:
    """Print what a reset will do, or what it has done."""
    what = "reset" if executed else "plan; nothing has changed, --execute resets the offsets"
    planned = sum(one.target is not None for one in changes)
    if not planned:
        what = "nothing to set; all partitions stay as they are"
    elif faults:
        what = f"not confirmed for {len(faults)} of {planned} partitions"
    console.print(plain(f"Group {group_id}: {what}"), markup=False)
    noted = any(one.note or one.partition in faults for one in changes)
    rows = (
        [
            one.partition.topic,
            str(one.partition.partition),
            number(one.committed),
            number(one.target),
            "" if one.moves is None else f"{one.moves:+}",
            *[faults.get(one.partition, one.note)] * noted,
        ]
        for one in changes
    )
    titles = ["TOPIC", "PARTITION", "COMMITTED", "NEW", "MOVES", *["NOTE"] * noted]
    console.print(table(titles, rows, ["PARTITION", "COMMITTED", "NEW", "MOVES"]))


def headline(group: Group) -> str:
    """A group in one line."""
    parts = [
        group.state,
        members(len(group.members)),
        f"assignor {group.assignor}" if group.assignor else "",
        f"{group.protocol} protocol",
        f"coordinator {group.coordinator}" if group.coordinator else "",
    ]
    return plain(f"Group {group.group_id}: {', '.join(filter(None, parts))}")


def members(count: int) -> str:
    """So many members, in words."""
    return {0: "no members", 1: "1 member"}.get(count, f"{count} members")


def group_as_json(group: Group) -> dict[str, Any]:
    """A group and its members."""
    return {
        "group_id": group.group_id,
        "state": group.state,
        "protocol": group.protocol,
        "assignor": group.assignor or None,
        "coordinator": group.coordinator or None,
        "members": [
            {
                "member_id": member.member_id,
                "client_id": member.client_id,
                "host": member.host,
                "group_instance_id": member.group_instance_id,
                "partitions": by_topic(member.partitions),
                "target": None if member.target is None else by_topic(member.target),
                "topics": None if member.topics is None else list(member.topics),
            }
            for member in group.members
        ],
        "topics_not_seen": list(group.topics_not_seen),
    }


def _cut(topic: str) -> str:
    """A name that a member has sent, which no broker has checked."""
    return topic if len(topic) <= LONGEST_TOPIC else f"{topic[:LONGEST_TOPIC]}..."


def _target(member: GroupMember) -> str:
    """The partitions that a member will own; empty if these are the ones that it owns."""
    return (ranges(member.target or ()) or "nothing") if _moves(member) else ""


def _moves(member: GroupMember) -> bool:
    return member.target is not None and member.target != member.partitions
