"""Every ``kgroup`` command in the documentation has options that kgroup accepts."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from kgroup.cli import main
from tests.hostile.test_commands import DONE, WORK, begin

ROOT: Final = Path(__file__).resolve().parents[2]
PAGES: Final = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
COMMAND: Final = re.compile(
    r"^(?:.*/bin/| +)?kgroup ((?:assign|broker|consume|demo|groups|simulate|timeline)\b.*)$",
    re.MULTILINE,
)
CONTINUED: Final = re.compile(r"\\\n *")
"""The end of a line that a shell joins with the next one."""
GROUP: Final = re.search(
    r"```json\n(.*?)```", (ROOT / "docs" / "assignors.md").read_text(encoding="utf-8"), re.DOTALL
)
OWN: Final = """
class OneEach:
    name = "one each"

    def assign(self, topics, members):
        return {member.member_id: [] for member in members}


async def member(process):
    pass


def order(partition, n):
    return b"{}"


def database():
    pass
"""
SHOWN: Final = [
    pytest.param(shlex.split(line, comments=True), id=f"{page.name}-{line}")
    for page in PAGES
    for block in re.findall(r"```sh\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)
    for line in COMMAND.findall(CONTINUED.sub("", block))
]


def test_pages_show_commands() -> None:
    """The documentation shows each command; README's demo command is tested elsewhere."""
    shown = {given.values[0][0] for given in SHOWN}  # type: ignore[index]
    assert shown >= {"assign", "broker", "consume", "groups", "simulate", "timeline"}


@pytest.mark.parametrize("arguments", SHOWN)
def test_a_command_is_accepted_as_it_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str]
) -> None:
    """The command parses its options and begins its work, which is replaced here."""
    worked: list[Any] = []

    def work(*given: Any, **more: Any) -> Any:
        worked.append(given)
        return begin(*given, **more)

    for place in WORK[arguments[0]]:
        monkeypatch.setattr(place, work)
    assert GROUP is not None
    (tmp_path / "group.json").write_text(GROUP[1])
    for module in ("my_assignors", "test_orders"):
        (tmp_path / f"{module}.py").write_text(OWN)
    (tmp_path / "orders.events").touch()
    (tmp_path / "my_tests").mkdir()
    (tmp_path / "my_tests" / "test_worker.py").write_text(OWN)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    # A shell would put the reader's own files in the place of the pattern.
    given = ["orders.events" if one.endswith(".events") else one for one in arguments]
    result = CliRunner().invoke(main, given)
    for name in ("my_assignors", "test_orders", "my_tests", "my_tests.test_worker"):
        sys.modules.pop(name, None)
    assert result.exit_code == DONE, result.output
    assert worked
