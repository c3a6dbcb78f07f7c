"""A test run reports how its time divides among the test files."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.conftest import ROOT


def test_the_slowest_file_comes_first(tmp_path: Path) -> None:
    """With ``--durations``, files are listed by their tests' seconds and processor time."""
    shutil.copy(ROOT / "tests" / "durations.py", tmp_path / "conftest.py")
    (tmp_path / "test_quick.py").write_text("def test_it(): ...")
    work = "import time\ndef test_it():\n  while time.process_time() < 2: ..."
    (tmp_path / "test_busy.py").write_text(work)
    (tmp_path / "test_slow.py").write_text("import time\ndef test_it(): time.sleep(1)")
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "--rootdir=.", "-p", "no:cacheprovider", "--durations=1"],
        cwd=tmp_path,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    _, _, listed = ended.stdout.partition(" slowest files")
    rows = [line.split() for line in listed.splitlines() if line.endswith((".py", "all files"))]
    assert [row[2] for row in rows] == ["test_busy.py", "test_slow.py", "test_quick.py", "all"]
    processor = {row[2]: float(row[1].removesuffix("s")) for row in rows}
    assert processor["all"] >= processor["test_busy.py"] > 0.5 > processor["test_slow.py"]
