"""``kgroup groups``: its commands and their options, and what they print.

``cluster`` talks to the brokers, ``lag`` and ``reset`` compute, ``report`` prints.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any, Final

import click

from kgroup.cli.cluster_options import clustered, group_ids, json_option
from kgroup.cli.groups.cluster import GroupCluster
from kgroup.cli.groups.report import (
    group_as_json,
    listing_as_json,
    print_group,
    print_listings,
)
from kgroup.cli.options import security_of
from kgroup.cli.tables import console

__all__ = ["groups"]

groups_option: Final = click.option(
    "--group",
    "groups",
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
@json_option
def list_groups(
    bootstrap_servers: str, config_file: str | None, timeout: float, *, as_json: bool
) -> None:
    """List the consumer groups of a cluster, with their states and protocols."""
    cluster = connect(bootstrap_servers, config_file, timeout)
    listings, errors = cluster.list()
    if as_json:
        write_json({"groups": [listing_as_json(one) for one in listings], "errors": list(errors)})
    else:
        print_listings(console(), listings)
    if errors:
        raise click.ClickException(f"some groups may be missing: {'; '.join(errors)}")


@groups.command("describe")
@clustered
@groups_option
@json_option
def describe_groups(
    bootstrap_servers: str,
    config_file: str | None,
    timeout: float,
    groups: Sequence[str],
    *,
    as_json: bool,
) -> None:
    """Describe groups: state, assignor, coordinator, and each member's partitions."""
    cluster = connect(bootstrap_servers, config_file, timeout)
    described = list(cluster.describe(groups or _all(cluster)).values())
    if as_json:
        write_json({"groups": [group_as_json(one) for one in described]})
        return
    shown = console()
    for number, group in enumerate(described):
        if number:
            shown.print()
        print_group(shown, group)


def _all(cluster: GroupCluster) -> list[str]:
    listings, errors = cluster.list()
    if errors:
        click.echo(f"Some groups may be missing: {'; '.join(errors)}", err=True)
    return [one.group_id for one in listings]


def write_json(value: dict[str, Any]) -> None:
    """Print an object on one line."""
    click.echo(json.dumps(value, allow_nan=False))
