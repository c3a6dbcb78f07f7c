"""``kgroup groups``: its commands, their options, and when they refuse.

``cluster`` sends the requests, ``lag`` and ``reset`` compute, ``report`` prints.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import click
from rich.console import Console

from kgroup.cli.admin_client import ClusterError, Refusal
from kgroup.cli.cluster_options import (
    clustered,
    group_ids,
    isolation_option,
    json_option,
    text,
    write_json,
)
from kgroup.cli.groups.cluster import GroupCluster
from kgroup.cli.groups.lag import fetch_lags
from kgroup.cli.groups.report import (
    group_as_json,
    listing_as_json,
    members,
    print_changes,
    print_groups,
    print_lags,
    print_listings,
)
from kgroup.cli.groups.reset import Change, plan_reset
from kgroup.cli.groups.values import Group, GroupMember
from kgroup.cli.log_bounds import fetch_bounds
from kgroup.cli.options import security_of
from kgroup.cli.position_options import (
    Position,
    PositionKind,
    TopicChoice,
    chosen,
    position_or_shift,
    topic_choices,
)
from kgroup.cli.tables import console, plain
from kgroup.cli.watch import show, watch_option
from kgroup.errors import short_list
from kgroup.types import IsolationLevel, TopicPartition

__all__ = ["groups"]

Shown = tuple[dict[str, Any], Callable[[Console], None]]
"""An object for JSON, and a function that prints the same for people."""

_groups_option: Final = click.option(
    "--group",
    "group_ids",
    metavar="GROUP_ID",
    multiple=True,
    callback=group_ids,
    help="A group; may be given more than once.  [default: all]",
)


@click.group()
def groups() -> None:
    """List and describe consumer groups, reset their offsets, delete them."""


def connect(bootstrap_servers: str, config_file: str | None, timeout: float) -> GroupCluster:
    """Connect to the cluster of the options.

    Raises:
        ClusterError: no broker can be reached, or the login is refused.
    """
    return GroupCluster(bootstrap_servers, security_of(config_file), timeout)


@groups.command("list")
@clustered
@watch_option
@json_option
def list_groups(
    bootstrap_servers: str,
    config_file: str | None,
    timeout: float,
    watch: float | None,
    *,
    as_json: bool,
) -> None:
    """List the consumer groups of a cluster, with their states and protocols."""
    cluster = connect(bootstrap_servers, config_file, timeout)

    def fetch() -> Shown:
        listings, errors = cluster.list()
        _report_missing(errors)
        found = {"groups": [listing_as_json(one) for one in listings], "errors": list(errors)}
        return found, partial(print_listings, listings=listings, incomplete=bool(errors))

    show(fetch, as_json=as_json, every=watch)


@groups.command("describe")
@clustered
@_groups_option
@watch_option
@json_option
def describe_groups(
    bootstrap_servers: str,
    config_file: str | None,
    timeout: float,
    group_ids: Sequence[str],
    watch: float | None,
    *,
    as_json: bool,
) -> None:
    """Describe groups: state, assignor, coordinator, and each member's partitions.

    With --group, also the topics to which members subscribe, where these explain why one has no
    partitions.
    """
    cluster = connect(bootstrap_servers, config_file, timeout)

    def fetch() -> Shown:
        described, errors = _described(cluster, group_ids)
        _report_missing(errors)
        if group_ids:  # of each group, its coordinator has to be asked
            try:
                described = list(cluster.with_subscriptions(described))
            except ClusterError as error:
                click.echo(plain(f"The topics of the members are not shown: {error}"), err=True)
        found = {"groups": [group_as_json(one) for one in described], "errors": list(errors)}
        return found, partial(print_groups, groups=described, incomplete=bool(errors))

    show(fetch, as_json=as_json, every=watch)


@groups.command("lag")
@clustered
@_groups_option
@isolation_option("Whether the end of a log includes records of open transactions.")
@watch_option
@json_option
def show_lag(
    bootstrap_servers: str,
    config_file: str | None,
    timeout: float,
    group_ids: Sequence[str],
    isolation: IsolationLevel,
    watch: float | None,
    *,
    as_json: bool,
) -> None:
    """Show the lag of groups: for each partition what is committed, the end, and the owner.

    The lag is the number of offsets from the committed one to the end of the log. Offsets that the
    log no longer has do not count. All partitions of the group's topics are listed; where nothing
    is committed, the lag is unknown, and the total is without it.
    """
    cluster = connect(bootstrap_servers, config_file, timeout)

    def fetch() -> Shown:
        described, errors = _described(cluster, group_ids)
        lags, faults = fetch_lags(cluster, described, isolation)
        if group_ids and faults:
            raise ClusterError(faults[0])
        errors = (*errors, *faults)
        _report_missing(errors)
        found = {"groups": [one.as_json() for one in lags], "errors": list(errors)}
        return found, partial(print_lags, lags=lags, incomplete=bool(errors))

    show(fetch, as_json=as_json, every=watch)


@groups.command("reset")
@clustered
@click.option(
    "--group", "group_id", metavar="GROUP_ID", required=True, callback=text, help="The group."
)
@click.option(
    "--to",
    "position",
    metavar="POSITION",
    required=True,
    callback=position_or_shift,
    help="earliest, latest, an offset, a time with its zone (2026-10-01T12:00:00Z), a duration ago"
    " (90m, 2d12h), or +N or -N to shift by N records.",
)
@click.option(
    "--topic",
    "topics",
    metavar="TOPIC[:PARTITIONS]",
    multiple=True,
    callback=topic_choices,
    help="A topic, or some of its partitions (orders:0,4-7); may be given more than once."
    "  [default: all partitions that the group has committed]",
)
@click.option("--execute", is_flag=True, help="Commit the new offsets; otherwise only show them.")
@click.option("--new-group", is_flag=True, help="Allow a group that does not exist yet.")
@json_option
def reset_offsets(
    bootstrap_servers: str,
    config_file: str | None,
    timeout: float,
    group_id: str,
    position: Position,
    topics: Sequence[TopicChoice],
    *,
    execute: bool,
    new_group: bool,
    as_json: bool,
) -> None:
    """Set the committed offsets of a group that has no members.

    Without --execute the plan is printed and nothing changes. Offsets that are not in the log are
    replaced by its first offset or its end.
    """
    cluster = connect(bootstrap_servers, config_file, timeout)
    group = cluster.find(group_id)
    if group is None and not new_group:
        raise ClusterError(
            f"{cluster.missing(group_id)} (--new-group makes one with these offsets)"
        )
    if execute and group is not None:
        _refuse_live([group])
    changes = _plan(cluster, group_id, position, topics)
    effective = {one.partition: one.target for one in changes if one.target is not None}
    refused: Mapping[TopicPartition, str | None] = {}
    executed = execute and bool(effective)
    if executed:
        refused = cluster.commit(group_id, effective)
    faults = {one: why for one, why in refused.items() if why is not None}
    if as_json:
        write_json(_reset_as_json(group, group_id, position, changes, faults, executed=executed))
    else:
        print_changes(console(), group_id, changes, faults, executed=executed)
        if group is not None and group.live and not execute:
            click.echo(plain(f"{_live(group)}. --execute is refused until then."), err=True)
    if faults:
        raise ClusterError(f"not confirmed for {len(faults)} of {len(effective)} partitions")


@groups.command("delete")
@clustered
@click.option(
    "--group",
    "group_ids",
    metavar="GROUP_ID",
    multiple=True,
    required=True,
    callback=group_ids,
    help="The group; may be given more than once.",
)
@json_option
def delete_groups(
    bootstrap_servers: str,
    config_file: str | None,
    timeout: float,
    group_ids: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Delete groups that have no members, with their committed offsets.

    Either all of them are without members, or none is deleted.
    """
    cluster = connect(bootstrap_servers, config_file, timeout)
    _refuse_live(cluster.describe(group_ids).values())
    outcomes = cluster.delete(group_ids)
    if as_json:
        listed = [
            {"group_id": one, "deleted": why is None, "error": why} for one, why in outcomes.items()
        ]
        write_json({"groups": listed})
    else:
        for one, why in outcomes.items():
            click.echo(plain(f"Group {one}: {'deleted' if why is None else why}"))
    faults = [one for one, why in outcomes.items() if why is not None]
    if faults:
        raise ClusterError(f"not confirmed as deleted: {short_list(faults)}")


def _described(
    cluster: GroupCluster, group_ids: Sequence[str]
) -> tuple[Sequence[Group], Sequence[str]]:
    """The named groups, or all that can be described, and what hides others."""
    if group_ids:
        return list(cluster.describe(group_ids).values()), ()
    return cluster.all()


def _report_missing(errors: Sequence[str]) -> None:
    if errors:
        missing = short_list(errors, between="; ")
        click.echo(plain(f"Some groups may be missing: {missing}"), err=True)


def _live(group: Group) -> str:
    """That a group has members, which those are, and when they will be gone.

    A member that was stopped properly has left. The coordinator cannot tell others that have
    stopped from running ones, until their sessions end.
    """
    clients = f" ({short_list([*map(_named, group.members)])})" if group.members else ""
    static = sum(one.group_instance_id is not None for one in group.members)
    who = f"static members ({static} here) and killed ones" if static else "killed ones"
    return (
        f"group {group.group_id!r} has {members(len(group.members))}{clients}; stop them first."
        f" Of stopped members, {who} remain until their session has ended (session_timeout, 30 s"
        " by default; 45 s in Kafka's Java client): wait for that long, and repeat the command"
    )


def _named(member: GroupMember) -> str:
    if member.group_instance_id is None:
        return str(member)
    return f"{member}, static as {member.group_instance_id!r}"


def _refuse_live(groups: Iterable[Group]) -> None:
    """Refuse to change the offsets of members: they would commit theirs over it.

    Raises:
        ClusterError: a group is live.
    """
    live = [one for one in groups if one.live]
    if live:
        raise ClusterError("; ".join(map(_live, live)))


def _plan(
    cluster: GroupCluster, group_id: str, position: Position, topics: Sequence[TopicChoice]
) -> list[Change]:
    committed = cluster.committed(group_id)
    wanted = chosen(topics, cluster.connection.topics()) if topics else list(committed)
    if not wanted:
        raise ClusterError(
            f"group {group_id!r} has committed no offsets, or this user lacks DESCRIBE on their"
            " topics; name topics with --topic"
        )
    bounds = fetch_bounds(cluster.connection, wanted)
    times: Mapping[TopicPartition, int | Refusal] = {}
    if position.kind is PositionKind.TIME:
        known = [one for one, found in bounds.items() if not found.fault]
        times = cluster.connection.offsets(dict.fromkeys(known, position.value))
    return plan_reset(position, committed, bounds, times)


def _reset_as_json(
    group: Group | None,
    group_id: str,
    position: Position,
    changes: Sequence[Change],
    faults: Mapping[TopicPartition, str],
    *,
    executed: bool,
) -> dict[str, Any]:
    return {
        "group_id": group_id,
        "members": 0 if group is None else len(group.members),
        "to": position.text,
        "executed": executed,
        "partitions": [{**one.as_json(), "error": faults.get(one.partition)} for one in changes],
    }
