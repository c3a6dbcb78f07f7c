"""Prints groups: as tables for people, as one JSON object for programs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.console import Console

from kgroup.cli.groups.values import Group, Listing, Member
from kgroup.cli.tables import plain, ranges, table
from kgroup.types import by_topic

__all__ = ["group_as_json", "listing_as_json", "print_group", "print_listings"]


def print_listings(console: Console, listings: Sequence[Listing]) -> None:
    """Print the groups of a cluster."""
    if not listings:
        console.print("There are no consumer groups, or none that this user may see.")
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


def print_group(console: Console, group: Group) -> None:
    """Print a group and its members."""
    console.print(headline(group), markup=False)
    if not group.members:
        return
    moving = any(_moves(member) for member in group.members)
    static = any(member.group_instance_id for member in group.members)
    titles = ["CLIENT", "HOST", "MEMBER", *["INSTANCE"] * static, "COUNT", "PARTITIONS"]
    rows = (
        [
            member.client_id,
            member.host,
            member.member_id,
            *[member.group_instance_id or ""] * static,
            str(len(member.partitions)),
            ranges(member.partitions),
            *[ranges(member.target or ()) if _moves(member) else ""] * moving,
        ]
        for member in group.members
    )
    console.print(table([*titles, *["WILL OWN"] * moving], rows, ["COUNT"]))


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
            }
            for member in group.members
        ],
    }


def _moves(member: Member) -> bool:
    return member.target is not None and member.target != member.partitions
