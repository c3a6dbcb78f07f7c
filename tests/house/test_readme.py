"""The commands in README are the ones that CI runs."""

from __future__ import annotations

import os
import re

from tests.conftest import ROOT


def commands_of_readme() -> list[str]:
    """README's commands for a fresh clone, in order; each is one line."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    return re.findall(r"^```sh\n(python3 -m venv .+)\n```$", text, re.MULTILINE)


def test_readme_gives_two_commands() -> None:
    """The first runs the demo, the second the whole suite; each makes an environment."""
    demo, suite = commands_of_readme()
    assert demo.endswith(" && .venv/bin/kgroup demo")
    assert suite.endswith(" && .venv/bin/tox run-parallel --parallel-live")


def test_ci_runs_the_command_of_readme() -> None:
    """.ci/run can be executed and has README's second command as a line of its own."""
    script = ROOT / ".ci" / "run"
    assert os.access(script, os.X_OK)
    lines = script.read_text(encoding="utf-8").splitlines()
    assert lines.count(commands_of_readme()[1]) == 1
