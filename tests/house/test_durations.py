"""A test run reports how its time divides among the test files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT


def test_the_slowest_file_comes_first(tmp_path: Path) -> None:
    """With ``--durations``, files are listed by the sum of their tests' seconds."""
    shutil.copy(ROOT / "tests" / "durations.py", tmp_path / "conftest.py")
    (tmp_path / "test_quick.py").write_text("def test_it(): ...")
    (tmp_path / "test_slow.py").write_text("import time\ndef test_it(): time.sleep(1)")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "--rootdir=.", "-p", "no:cacheprovider", "--durations=1"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    _, _, listed = ended.stdout.partition(" slowest files ")
    files = [line.split()[1] for line in listed.splitlines() if line.endswith(".py")]
    assert files == ["test_slow.py", "test_quick.py"], ended.stdout
