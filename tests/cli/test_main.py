"""The command line's own part: help, version, and the table of subcommands."""

from __future__ import annotations

import errno
import io
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kgroup.cli import SUBCOMMANDS, Subcommand, main
from kgroup.cli.tables import console


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


class FullDisk(io.StringIO):
    """A file on a disk without space."""

    def write(self, text: str) -> int:
        """Fail as the operating system does."""
        del text
        raise OSError(errno.ENOSPC, "No space left on device")


def test_output_that_cannot_be_written_is_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """If standard output is a file on a full disk, the error is one line and the status is 1."""
    monkeypatch.setattr("sys.stdout", FullDisk())
    with pytest.raises(SystemExit) as ended:
        main(["--help"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == (
        "Error: the output cannot be written: No space left on device\n"
    )


@pytest.mark.parametrize("closed", ["1", "2", "1 2"])
def test_a_closed_output_is_no_error(closed: str, tmp_path: Path) -> None:
    """If a shell has closed standard output or error, a command runs and its output is dropped."""
    group = '{"topics": {"t": {"partitions": 1}}, "members": [{"member_id": "a", "topics": ["t"]}]}'
    (tmp_path / "group.json").write_text(group, encoding="utf-8")
    close = "; ".join(f"os.close({number})" for number in closed.split())
    command = [sys.executable, "-m", "kgroup", "assign", str(tmp_path / "group.json")]
    program = f"import os, sys; {close}; os.execv(sys.executable, {command!r})"
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stderr) == (0, "")


def test_an_unknown_subcommand_is_refused() -> None:
    """A name that is not in the table ends with click's usage error."""
    result = CliRunner().invoke(main, ["nothing"])
    assert result.exit_code == 2
    assert "No such command 'nothing'" in result.output


def test_a_misspelt_subcommand_names_the_nearest() -> None:
    """The error has the subcommand that was meant, as errors about options have theirs."""
    result = CliRunner().invoke(main, ["group", "list"])
    assert result.exit_code == 2
    assert "No such command 'group'; did you mean 'groups'?" in result.output


def test_version_is_that_of_the_distribution() -> None:
    """``--version`` prints the installed version."""
    result = CliRunner().invoke(main, ["--version"], prog_name="kgroup")
    assert result.output == f"kgroup, version {version('kgroup')}\n"


def test_names_that_a_terminal_cannot_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are shown by escapes: the command has done its work, and does not fail."""

    @click.command()
    def shows() -> None:
        console().print("Group \u00e9: reset")

    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, "ascii"))
    monkeypatch.setattr(Subcommand, "load", lambda _: shows)
    main(["groups"], standalone_mode=False)
    sys.stdout.flush()
    assert written.getvalue() == b"Group \\xe9: reset\n"
