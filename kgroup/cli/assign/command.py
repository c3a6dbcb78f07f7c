"""``kgroup assign``: its options, the source of the group, and its exit status.

``results`` evaluates assignors, ``report`` prints the results, ``lines`` answers recorded calls.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from functools import partial
from typing import IO

import click
import trio
from rich.console import Console

from kgroup.assignors import BUILTIN, resolve
from kgroup.cli.assign.group_input import (
    LONGEST_INPUT,
    GroupInput,
    WrongInputError,
    read_group,
    read_json,
)
from kgroup.cli.assign.lines import answer_each, lines_of
from kgroup.cli.assign.live import fetch_group
from kgroup.cli.assign.report import as_json, print_results
from kgroup.cli.assign.results import AssignorResult, evaluate
from kgroup.cli.options import (
    InputFile,
    cluster_of,
    config_option,
    imported,
    one_line,
    security_of,
    servers,
    standard_input,
    with_kind,
)
from kgroup.errors import KgroupError, UsageError, short_repr
from kgroup.group import default_runtime
from kgroup.interfaces import Assignor

__all__ = ["assign"]


def _assignors(
    context: click.Context, option: click.Parameter, values: Sequence[str]
) -> Mapping[str, Assignor]:
    del context, option
    try:
        return resolve(map(_assignor, values))
    except UsageError as error:
        raise click.BadParameter(str(error)) from error


def _assignor(name: str) -> str | Assignor:
    """The name of a built-in assignor, or a custom one, imported from ``module:object``."""
    if ":" not in name:
        return name
    found = imported(name, "NAME or MODULE:OBJECT")
    try:
        made: Assignor = found() if isinstance(found, type) else found
    except Exception as error:
        raise click.BadParameter(
            f"{short_repr(name)} cannot be created: {with_kind(error)}"
        ) from error
    return made


@click.command()
@click.argument("file", type=InputFile(), required=False)
@click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT,...",
    callback=servers,
    help="The cluster of the live group.  [default: bootstrap.servers in the file of --config]",
)
@config_option
@click.option("--group", "group_id", metavar="GROUP_ID", help="The live group to read.")
@click.option(
    "--assignor",
    "assignors",
    metavar="NAME",
    multiple=True,
    callback=_assignors,
    help="An assignor: its name, or MODULE:OBJECT for one of your own; may be given more than once."
    "  [default: all of Kafka's]",
)
@click.option(
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="Tables for a person, or JSON for a program.",
)
@click.option(
    "--json",
    "lines",
    is_flag=True,
    help="Instead, read JSON lines with topics, members and an assignor from standard input, and"
    " print each with its assignment.",
)
def assign(
    file: IO[bytes] | None,
    bootstrap_servers: str | None,
    config_file: str | None,
    group_id: str | None,
    assignors: Mapping[str, Assignor],
    output: str,
    *,
    lines: bool,
) -> None:
    """Compare how assignors would divide a group's partitions.

    The group is read from FILE, a JSON object with topics and members ('-' is standard input), or
    from a live group, which is not changed. The output shows each member's partitions, how many
    partitions move, and how uneven the assignment is.

    With --json each line of standard input is such an object. It is printed with the assignment of
    its assignor before the next line is read. A line that is wrong is reported on standard error,
    and the exit status at the end is 1.
    """
    live = any(one is not None for one in (bootstrap_servers, group_id, config_file))
    if lines:
        if file is not None or live or len(assignors) > 1 or output != "table":
            raise click.UsageError(
                "--json reads standard input: use it without FILE, --bootstrap-servers, --config,"
                " --group and --output, and with at most one --assignor"
            )
        sys.exit(0 if _answer_lines(next(iter(assignors.values()), None)) else 1)
    if live == (file is not None):
        raise click.UsageError("give FILE, or --bootstrap-servers with --group, or --json")
    if file is None:
        bootstrap_servers = cluster_of(bootstrap_servers, config_file)
        if bootstrap_servers is None or group_id is None:
            raise click.UsageError(
                "--bootstrap-servers and --group must be given together; bootstrap.servers in the"
                " file of --config may take the place of the first"
            )
        group = _fetch_live(bootstrap_servers, group_id, config_file)
    else:
        group = _read_file(file)
    results = _evaluate_all(assignors or BUILTIN, group)
    if output == "json":
        click.echo(json.dumps(as_json(group, results), allow_nan=False))
    else:
        print_results(Console(highlight=False), group, results)


def _answer_lines(assignor: Assignor | None) -> bool:
    def say(line: str) -> None:
        print(line, flush=True)

    return answer_each(lines_of(standard_input()), say, partial(click.echo, err=True), assignor)


def _read_file(file: IO[bytes]) -> GroupInput:
    try:
        return read_group(read_json(file.read(LONGEST_INPUT + 1)))
    except (WrongInputError, OSError) as error:
        name = getattr(file, "name", "standard input")
        raise click.ClickException(f"{name}: {error}") from error


def _fetch_live(bootstrap_servers: str, group_id: str, config_file: str | None) -> GroupInput:
    try:
        security = security_of(config_file)
        return trio.run(fetch_group, bootstrap_servers, group_id, default_runtime(), security)
    except (KgroupError, WrongInputError) as error:
        raise click.ClickException(one_line(error)) from error


def _evaluate_all(assignors: Mapping[str, Assignor], group: GroupInput) -> list[AssignorResult]:
    results = []
    for name, assignor in assignors.items():
        try:
            results.append(evaluate(assignor, group))
        except Exception as error:
            # Any exception: a custom assignor may raise its own.
            raise click.ClickException(
                f"assignor {short_repr(name)}: {with_kind(error)}"
            ) from error
    return results
