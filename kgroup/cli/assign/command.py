"""``kgroup assign``: its options, where the group comes from, its exit status.

What a plan is worth, and how it is shown, is this package's other modules'.
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
from kgroup.cli.assign.fields import (
    LONGEST_INPUT,
    GroupInput,
    WrongInputError,
    read_group,
    read_json,
)
from kgroup.cli.assign.lines import answer_each, lines_of
from kgroup.cli.assign.live import look
from kgroup.cli.assign.plans import AssignorResult, plan
from kgroup.cli.assign.report import as_json, print_plans
from kgroup.cli.options import InputFile, imported, one_line, servers, standard_input, with_kind
from kgroup.errors import KgroupError, UsageError, shown
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
    """A built-in one's name, or the custom one that ``module:object`` leads to."""
    if ":" not in name:
        return name
    found = imported(name, "NAME or MODULE:OBJECT")
    try:
        made: Assignor = found() if isinstance(found, type) else found
    except Exception as error:
        raise click.BadParameter(f"{shown(name)} cannot be made: {with_kind(error)}") from error
    return made


@click.command()
@click.argument("file", type=InputFile(), required=False)
@click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT,...",
    callback=servers,
    help="Where the live group is.",
)
@click.option("--group", "group_id", metavar="GROUP_ID", help="The live group.")
@click.option(
    "--assignor",
    "assignors",
    metavar="NAME",
    multiple=True,
    callback=_assignors,
    help="An assignor, by name, or MODULE:OBJECT for one of your own. Can be given again for"
    " others.  [default: all of Kafka's]",
)
@click.option(
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="For a person, or for a program.",
)
@click.option(
    "--json",
    "lines",
    is_flag=True,
    help="Answer lines on standard input, each with topics, members and an assignor, instead.",
)
def assign(
    file: IO[bytes] | None,
    bootstrap_servers: str | None,
    group_id: str | None,
    assignors: Mapping[str, Assignor],
    output: str,
    *,
    lines: bool,
) -> None:
    """Show what each assignor would make of a group.

    The group is that of FILE, a JSON object with topics and members ('-' is standard input), or a
    live one's, which is only looked at. Shown is who gets what, how many partitions move, and how
    uneven it is.

    With --json each line of standard input is such an object; it is printed again with the
    assignment that its assignor gives, before the next is read. A line that is wrong is reported
    on standard error, and the exit status is 1 at the end.
    """
    live = bootstrap_servers is not None or group_id is not None
    if lines:
        if file is not None or live or len(assignors) > 1 or output != "table":
            raise click.UsageError(
                "--json reads standard input: without FILE, --bootstrap-servers, --group and"
                " --output, and with one --assignor at most"
            )
        sys.exit(0 if _answer_lines(next(iter(assignors.values()), None)) else 1)
    if live == (file is not None):
        raise click.UsageError("give FILE, or --bootstrap-servers with --group, or --json")
    if file is None:
        if bootstrap_servers is None or group_id is None:
            raise click.UsageError("--bootstrap-servers and --group go together")
        group = _live(bootstrap_servers, group_id)
    else:
        group = _of_file(file)
    plans = _plans(assignors or BUILTIN, group)
    if output == "json":
        click.echo(json.dumps(as_json(group, plans), allow_nan=False))
    else:
        print_plans(Console(highlight=False), group, plans)


def _answer_lines(assignor: Assignor | None) -> bool:
    def say(line: str) -> None:
        print(line, flush=True)

    return answer_each(lines_of(standard_input()), say, partial(click.echo, err=True), assignor)


def _of_file(file: IO[bytes]) -> GroupInput:
    try:
        return read_group(read_json(file.read(LONGEST_INPUT + 1)))
    except (WrongInputError, OSError) as error:
        name = getattr(file, "name", "standard input")
        raise click.ClickException(f"{name}: {error}") from error


def _live(bootstrap_servers: str, group_id: str) -> GroupInput:
    try:
        return trio.run(look, bootstrap_servers, group_id, default_runtime())
    except (KgroupError, WrongInputError) as error:
        raise click.ClickException(one_line(error)) from error


def _plans(assignors: Mapping[str, Assignor], group: GroupInput) -> list[AssignorResult]:
    plans = []
    for name, assignor in assignors.items():
        try:
            plans.append(plan(assignor, group))
        except Exception as error:
            # Also a custom assignor's own: the plan of no other is worth less for it.
            raise click.ClickException(f"assignor {shown(name)}: {with_kind(error)}") from error
    return plans
