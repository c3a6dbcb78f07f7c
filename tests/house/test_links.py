"""The two links of the checkout, and the error for a checkout that has lost them."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import LINKS, ROOT


def test_links_lead_to_the_two_packages() -> None:
    """Both links lead to the top-level package of the same name."""
    assert [(ROOT / link).resolve() for link in LINKS] == [ROOT / Path(link).name for link in LINKS]


@pytest.mark.usefixtures("children_with_hypothesis")
def test_a_checkout_without_links_is_refused(tmp_path: Path) -> None:
    """If git has turned the links into text files, pytest ends at once and names both."""
    tests = tmp_path / "tests"
    tests.mkdir()
    for name in ("conftest.py", "timeouts.py"):
        shutil.copy(ROOT / "tests" / name, tests)
    (tests / "test_nothing.py").write_text("def test_nothing() -> None: ...\n")
    (tmp_path / "kgroup").mkdir()
    for link in LINKS:
        (tmp_path / link).write_text(f"../{Path(link).name}")

    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--import-mode=importlib",
        "--rootdir=.",
        "tests",
    ]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    assert ended.returncode == 4, ended.stdout
    assert "kgroup/generation and kgroup/watchers should be links" in ended.stderr
    assert "passed" not in ended.stdout
