"""The command line's own part: help, version, and the table of subcommands."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import version

import click
import pytest
from click.testing import CliRunner

from kgroup.cli import SUBCOMMANDS, Subcommand, main


def test_help_lists_the_subcommands_and_imports_none() -> None:
    """Help names every subcommand with its line, and no subcommand's module is imported for it."""
    modules = {entry.target.partition(":")[0] for entry in SUBCOMMANDS.values()}
    program = (
        "import sys; from kgroup.cli import main; main(['--help'], standalone_mode=False);"
        f"sys.exit(bool({modules!r} & set(sys.modules)))"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    for name, entry in SUBCOMMANDS.items():
        assert f"{name} " in ended.stdout
        assert entry.summary in ended.stdout


def test_the_package_is_the_command() -> None:
    """``python -m kgroup`` runs it, under the name that users type."""
    ended = subprocess.run(
        [sys.executable, "-m", "kgroup", "--help"], capture_output=True, text=True, check=True
    )
    assert ended.stdout.startswith("Usage: kgroup [OPTIONS]")


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_subcommand_of_the_table_is_there(name: str) -> None:
    """Each row of the table leads to a command of that name."""
    assert main.get_command(click.Context(main), name) is SUBCOMMANDS[name].load()
    assert SUBCOMMANDS[name].load().name == name


def test_a_row_that_leads_to_no_command_is_refused() -> None:
    """If a row leads to something else, the error names it."""
    with pytest.raises(TypeError, match=r"kgroup\.cli:SUBCOMMANDS is .*, not a click command"):
        Subcommand("kgroup.cli:SUBCOMMANDS", "").load()


def test_an_unknown_subcommand_is_refused() -> None:
    """A name that is not in the table ends with click's usage error."""
    result = CliRunner().invoke(main, ["nothing"])
    assert result.exit_code == 2
    assert "No such command 'nothing'" in result.output


def test_version_is_that_of_the_distribution() -> None:
    """``--version`` prints the installed version."""
    result = CliRunner().invoke(main, ["--version"], prog_name="kgroup")
    assert result.output == f"kgroup, version {version('kgroup')}\n"
