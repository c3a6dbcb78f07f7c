"""A test with a ``flaky`` mark is rerun for the failure that its mark names, and for no other."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.usefixtures("children_with_hypothesis")

SUITE = """
from itertools import count

import pytest
import trio

runs = count()

@pytest.mark.flaky(reruns=1, only_rerun="it hung")
async def test_fails_once():
    async with trio.open_nursery() as nursery:
        if next(runs) == 0:
            {failure}
"""
ONE = 'raise AssertionError("{text}")'
TWO = 'raise ExceptionGroup("", [AssertionError("{text}"), ValueError()])'


@pytest.mark.parametrize(
    ("failure", "ends"),
    [
        (ONE.format(text="it hung"), "1 passed, 1 rerun"),
        (ONE.format(text="another failure"), "1 failed"),
        (TWO.format(text="it hung"), "1 failed"),
    ],
)
def test_only_the_named_failure_is_rerun(tmp_path: Path, failure: str, ends: str) -> None:
    """The same holds if trio has wrapped the failure in groups and nothing else failed with it."""
    shutil.copy(ROOT / "tests" / "reruns.py", tmp_path / "conftest.py")
    (tmp_path / "test_suite.py").write_text(SUITE.format(failure=failure))
    options = ["-p", "no:cacheprovider", "--rootdir=.", "-o", "trio_mode=true"]
    command = [sys.executable, "-m", "pytest", *options]
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert f"= {ends} in" in ended.stdout
