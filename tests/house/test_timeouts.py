"""A test that hangs fails, shows where it hangs, and does not harm later tests."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.usefixtures("children_with_hypothesis")

SUITE = """
import pytest
import trio

async def where_it_hangs():
    with trio.CancelScope(shield={shield}):
        await trio.sleep_forever()

async def test_hangs():
    async with trio.open_nursery() as nursery:
        nursery.start_soon(where_it_hangs)

{after}
"""
AFTER = "@pytest.mark.timeout(100)\nasync def test_after(): await trio.sleep(0)"
OPTIONS = ["-p", "no:cacheprovider", "--rootdir=.", "-o", "trio_mode=true", "-W", "error"]


def run_suite(folder: Path, *, shield: bool, after: str = "", grace: str = "") -> str:
    """Run a suite whose first test hangs, under a time-out in which it gets there."""
    shutil.copy(ROOT / "tests" / "timeouts.py", folder / "conftest.py")
    with (folder / "conftest.py").open("a") as conftest:
        conftest.write(grace)
    (folder / "test_suite.py").write_text(SUITE.format(shield=shield, after=after))
    command = [sys.executable, "-m", "pytest", *OPTIONS, "--timeout=2", "--timeout-method=signal"]
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert ended.returncode == 1, ended.stdout
    return ended.stdout


def test_a_hanging_test_is_cancelled(tmp_path: Path) -> None:
    """It fails with a time-out that shows where each task waits, and the next trio test passes."""
    output = run_suite(tmp_path, shield=False, after=AFTER)
    assert "1 failed, 1 passed" in output
    assert "TimeoutError: Timeout: the test took too long" in output
    assert "where_it_hangs waits at" in output
    assert "await trio.sleep_forever()" in output


def test_a_test_that_cannot_be_cancelled_is_interrupted(tmp_path: Path) -> None:
    """If a shield keeps the cancellation out, pytest-timeout interrupts the test by a signal."""
    output = run_suite(tmp_path, shield=True, grace="\nGRACE = 0.2\n")
    assert "1 failed" in output
    assert "Failed: Timeout" in output
