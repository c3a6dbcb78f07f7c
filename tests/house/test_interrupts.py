"""A test suite that a shell runs in the background can still interrupt its child processes."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from tests.conftest import ROOT

SUITE: Final = """
import signal, subprocess, sys

def test_this_process():
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler

def test_its_children():
    program = "import signal; print(signal.getsignal(signal.SIGINT) is signal.SIG_IGN)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert found.stdout == "False\\n"
"""


LEAKING: Final = """
import signal

def test_that_leaves_a_handler():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)

def test_after_it():
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
"""


def test_an_ignored_interrupt_is_restored(tmp_path: Path) -> None:
    """If SIGINT was ignored from the start, tests and their children get its default handler."""
    assert "2 passed" in outcome(tmp_path, SUITE)


def test_a_handler_that_is_left(tmp_path: Path) -> None:
    """A test that leaves a signal's handler fails, and the next one has the handler of before."""
    ended = outcome(tmp_path, LEAKING)
    assert "FAILED test_suite.py::test_that_leaves_a_handler" in ended
    assert "1 failed, 1 passed" in ended


def outcome(folder: Path, suite: str) -> str:
    """What pytest prints for a suite, begun with SIGINT ignored."""
    shutil.copy(ROOT / "tests" / "interrupts.py", folder / "conftest.py")
    (folder / "test_suite.py").write_text(suite)
    ignoring = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN);"
    ignoring += "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    pytest = ["-m", "pytest", "-q", "--rootdir=.", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [sys.executable, "-c", ignoring, *pytest],
        cwd=folder,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout + ended.stderr
