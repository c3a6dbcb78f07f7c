"""Options that the commands for operating a cluster share: its address, the time-out, the output.

``clustered`` adds them to a command, turns every failure of the cluster into an error of one line,
and lets signals end the command as shells expect.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Mapping
from typing import Any, Final

import click

from kgroup import bounds
from kgroup.bounds import Bound
from kgroup.cli.admin_client import ClusterError
from kgroup.cli.options import Number, cluster_of, config_option, one_line, servers
from kgroup.cli.signals import ended_by_signals
from kgroup.errors import KgroupError, short_repr
from kgroup.types import IsolationLevel, text_fault

__all__ = [
    "LIVE",
    "clustered",
    "group_ids",
    "isolation_option",
    "json_option",
    "text",
    "write_json",
]

TIMEOUT: Final = bounds.seconds(1, 3600)
LIVE: Final = bounds.seconds(0.1, 3600)
"""Seconds between two refreshes."""
_DEFAULT_TIMEOUT: Final = 10.0
_NAME: Final = bounds.text()
_EXISTING: Final = Bound(
    lambda value: bool(value) and "\0" not in value and text_fault(value) is None,
    "it must have 1 to 32767 bytes in UTF-8, and no NUL",
)
"""A name that a group may have which other programs have made; a blank one is a mistake of theirs,
and has to be found and deleted."""


def clustered(command: Callable[..., None]) -> Callable[..., None]:
    """Add the options of a connection, and report failures in one line."""

    @functools.wraps(command)
    def run(*args: Any, **options: Any) -> None:
        cluster = cluster_of(options["bootstrap_servers"], options["config_file"])
        if cluster is None:
            raise click.UsageError(
                "Missing option '--bootstrap-servers', or the property bootstrap.servers in the"
                " file of --config."
            )
        options["bootstrap_servers"] = cluster
        with ended_by_signals():
            try:
                command(*args, **options)
            except (ClusterError, KgroupError) as error:
                raise click.ClickException(one_line(error)) from error

    for option in (
        click.option(
            "--timeout",
            type=Number(TIMEOUT),
            default=_DEFAULT_TIMEOUT,
            show_default=True,
            help="Seconds to wait for each answer of the cluster.",
        ),
        config_option,
        click.option(
            "--bootstrap-servers",
            metavar="HOST:PORT,...",
            callback=servers,
            help="The cluster.  [default: bootstrap.servers in the file of --config]",
        ),
    ):
        run = option(run)
    return run


json_option: Final = click.option(
    "--json", "as_json", is_flag=True, help="Print JSON for a program: one object on one line."
)


def write_json(value: Mapping[str, Any]) -> None:
    """Print an object on one line."""
    click.echo(json.dumps(value, allow_nan=False))


def isolation_option(text: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The option ``--isolation-level``, with its help."""
    return click.option(
        "--isolation-level",
        "isolation",
        type=click.Choice([one.value for one in IsolationLevel]),
        default=IsolationLevel.READ_UNCOMMITTED.value,
        show_default=True,
        callback=lambda context, option, value: IsolationLevel(value),
        help=text,
    )


def text(context: click.Context, option: click.Parameter, value: str | None) -> str | None:
    """A callback for a name: check that Kafka's protocol can carry it.

    Raises:
        BadParameter: it is blank, too long or no text.
    """
    del context, option
    if value is not None and not _NAME.holds(value):
        raise click.BadParameter(f"{short_repr(value)} is refused: {_NAME.allowed}")
    return value


def group_ids(
    context: click.Context, option: click.Parameter, values: tuple[str, ...]
) -> tuple[str, ...]:
    """A callback for names of groups that exist: check each, and leave out repetitions.

    Raises:
        BadParameter: one is empty, too long or no text.
    """
    del context, option
    for value in values:
        if not _EXISTING.holds(value):
            raise click.BadParameter(f"{short_repr(value)} is refused: {_EXISTING.allowed}")
    return tuple(dict.fromkeys(values))
