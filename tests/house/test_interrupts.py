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


def test_an_ignored_interrupt_is_restored(tmp_path: Path) -> None:
    """If SIGINT was ignored from the start, tests and their children get its default handler."""
    shutil.copy(ROOT / "tests" / "interrupts.py", tmp_path / "conftest.py")
    (tmp_path / "test_suite.py").write_text(SUITE)
    ignoring = "import os, signal, sys; signal.signal(signal.SIGINT, signal.SIG_IGN);"
    ignoring += "os.execv(sys.executable, [sys.executable, *sys.argv[1:]])"
    pytest = ["-m", "pytest", "-q", "--rootdir=.", "-p", "no:cacheprovider"]
    ended = subprocess.run(
        [sys.executable, "-c", ignoring, *pytest],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert "2 passed" in ended.stdout, ended.stdout + ended.stderr
