"""The command ``kgroup``, and the table of its subcommands.

A subcommand's module is imported only when the subcommand runs, so that ``kgroup --help`` is fast
and does not need the packages of a subcommand.
"""

from __future__ import annotations

import errno
import importlib
import io
import os
import sys
from pathlib import Path
from typing import Any, Final, final

import attrs
import click

from kgroup.bounds import did_you_mean

__all__ = ["main"]


@final
@attrs.frozen
class Subcommand:
    """A subcommand's location, as ``module:attribute``, and its line in ``--help``."""

    target: str
    summary: str

    def load(self) -> click.Command:
        """Import the subcommand."""
        module, _, attribute = self.target.partition(":")
        command = getattr(importlib.import_module(module), attribute)
        if not isinstance(command, click.Command):
            msg = f"{self.target} is {command!r}, not a click command"
            raise TypeError(msg)
        return command


SUBCOMMANDS: Final = {
    "assign": Subcommand(
        "kgroup.cli.assign.command:assign", "Compare how assignors divide a group's partitions."
    ),
    "broker": Subcommand("kgroup.cli.broker:broker", "Run the embedded broker."),
    "consume": Subcommand(
        "kgroup.cli.consume.command:consume", "Print the records of topics, in a group or not."
    ),
    "demo": Subcommand(
        "kgroup.cli.demo.command:demo", "Show a group at work, and account for every line."
    ),
    "groups": Subcommand(
        "kgroup.cli.groups.command:groups",
        "Consumer groups: list, describe, lag, reset, delete.",
    ),
    "simulate": Subcommand(
        "kgroup.cli.simulate:simulate", "Check a group in virtual time, one simulation a seed."
    ),
    "timeline": Subcommand(
        "kgroup.cli.timeline.command:timeline",
        "Draw what a group's members did, over time.",
    ),
}
"""The subcommands, in the order in which ``--help`` shows them."""


_UNWRITABLE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO})
"""Errors of a write that say that a disk or a device is full or broken."""


@final
class LazyGroup(click.Group):
    """A click group that finds its subcommands in the table, and imports the one that runs."""

    def main(self, *args: Any, **extra: Any) -> Any:
        """Run the command; output that cannot be written is an error in one line, with status 1."""
        _replace_closed_streams()
        _escape_unknown_characters()
        try:
            return super().main(*args, **extra)
        except OSError as error:
            if error.errno not in _UNWRITABLE or error.filename is not None:
                raise  # it is not about the output: a file's error names the file
            # What is still buffered would fail again when the interpreter ends.
            sys.stdout = io.StringIO()
            click.echo(f"Error: the output cannot be written: {error.strerror}", err=True)
            sys.exit(1)

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the subcommands, in the table's order."""
        del ctx
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the subcommand of this name; None if there is none."""
        del ctx
        subcommand = SUBCOMMANDS.get(cmd_name)
        return subcommand.load() if subcommand else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the subcommand that runs; the error about an unknown one has the nearest name."""
        name = args[0]
        if name not in SUBCOMMANDS and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(f"No such command {name!r}{did_you_mean(name, SUBCOMMANDS)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the subcommands' help lines from the table, without importing the subcommands."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in SUBCOMMANDS.items()])


def _replace_closed_streams() -> None:
    """Open streams that a shell has closed (``>&-``), so that what is printed is discarded.

    Their file descriptors would otherwise be given to the next sockets, and librdkafka, which
    writes to descriptor 2, would write into one.
    """
    if sys.stdout is None:
        sys.stdout = _nowhere()
    if sys.stderr is None:
        sys.stderr = _nowhere()


def _escape_unknown_characters() -> None:
    """Let standard output show what its encoding lacks as standard error does, by escapes.

    Names of groups and clients are any text, and a command that has done its work must not fail
    because a terminal cannot show them.
    """
    if isinstance(sys.stdout, io.TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")


def _nowhere() -> Any:
    return Path(os.devnull).open("w", encoding="utf-8")


@click.group(cls=LazyGroup)
@click.version_option(package_name="kgroup")
def main() -> None:
    """A Kafka consumer group whose generations are values you hold."""
