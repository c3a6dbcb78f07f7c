"""The command ``kgroup``, and the table of its subcommands.

A subcommand's module is imported only when the subcommand runs, so that ``kgroup --help`` is fast
and does not need the packages of a subcommand.
"""

from __future__ import annotations

import importlib
from typing import Final, final

import attrs
import click

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


@final
class LazyGroup(click.Group):
    """A click group that finds its subcommands in the table, and imports the one that runs."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the subcommands, in the table's order."""
        del ctx
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the subcommand of this name; None if there is none."""
        del ctx
        subcommand = SUBCOMMANDS.get(cmd_name)
        return subcommand.load() if subcommand else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the subcommands' help lines from the table, without importing the subcommands."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in SUBCOMMANDS.items()])


@click.group(cls=LazyGroup)
@click.version_option(package_name="kgroup")
def main() -> None:
    """A Kafka consumer group whose generations are values you hold."""
