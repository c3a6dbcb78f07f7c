"""The command line: ``kgroup``, and which module each of its subcommands is in.

A subcommand's module is imported when it is run, not before, so that ``kgroup --help`` is quick
and needs nothing that a subcommand needs. What a subcommand does is left to its module.
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
    """Where a subcommand is, as ``module:attribute``, and the line that ``--help`` has for it."""

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
        "kgroup.cli.assign.command:assign", "Show what each assignor would make of a group."
    ),
    "broker": Subcommand("kgroup.cli.broker:broker", "Run the embedded broker."),
    "demo": Subcommand("kgroup.cli.demo.command:demo", "Show a group at work, and account for it."),
    "simulate": Subcommand(
        "kgroup.cli.simulate:simulate", "Run a group in virtual time, by seeds."
    ),
}
"""The subcommands, in the order in which ``--help`` shows them."""


@final
class LazyGroup(click.Group):
    """A click group that knows its subcommands by table and imports the one that is run."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the subcommands, in the table's order."""
        del ctx
        return list(SUBCOMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The subcommand of that name, imported; None if there is none."""
        del ctx
        subcommand = SUBCOMMANDS.get(cmd_name)
        return subcommand.load() if subcommand else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the subcommands' lines from the table, so that help imports none of them."""
        del ctx
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.summary) for name, entry in SUBCOMMANDS.items()])


@click.group(cls=LazyGroup)
@click.version_option(package_name="kgroup")
def main() -> None:
    """A Kafka consumer group whose generations are values you hold."""
