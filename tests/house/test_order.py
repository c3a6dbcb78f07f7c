"""Tests run in one order under every hash seed and worker; a group of tests shares a process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests import collecting
from tests.conftest import ROOT

SHARED: Final = """
import os, pathlib, pytest

@pytest.fixture(scope="session")
def spark(): ...

@pytest.fixture(scope="session")
def real_kafka(): ...

@pytest.fixture(scope="session", params=["embedded", "real"])
def kafka(request): return request.param

@pytest.fixture(autouse=True)
def _worker(request):
    worker = os.environ.get("PYTEST_XDIST_WORKER", "none")
    with pathlib.Path(f"ran-{worker}").open("a") as file:
        print(request.node.nodeid, file=file)
"""
THREE: Final = "def test_b({}): ...\ndef test_a(kafka): ...\ndef test_c(): ..."
SAMPLES: Final = {
    "tests/test_plain.py": THREE.format(""),
    "tests/spark/test_frames.py": THREE.format("spark"),
    "tests/spark/test_drivers.py": "def test_driver(): ...",
    "tests/spark/test_demo.py": "def test_demo(real_kafka): ...",
    "tests/spark/test_source.py": "\n".join(f"def test_{at}(spark): ..." for at in range(40)),
    "tests/testing/simulation/test_seeds.py": "def test_seeds(): ...",
}
SESSION: Final = [
    "tests/spark/test_frames.py::test_b",
    *(f"tests/spark/test_source.py::test_{at}" for at in range(40)),
]
ORDER: Final = [
    "tests/testing/simulation/test_seeds.py::test_seeds",
    "tests/spark/test_drivers.py::test_driver",
    *SESSION,
    "tests/spark/test_demo.py::test_demo",
    "tests/spark/test_frames.py::test_a[embedded]",
    "tests/test_plain.py::test_a[embedded]",
    "tests/spark/test_frames.py::test_a[real]",
    "tests/test_plain.py::test_a[real]",
    "tests/spark/test_frames.py::test_c",
    "tests/test_plain.py::test_b",
    "tests/test_plain.py::test_c",
]


@pytest.fixture
def sample(tmp_path: Path) -> Path:
    """A small tree of tests that uses this suite's plugin."""
    shutil.copy(ROOT / "tests" / "collecting.py", tmp_path / "conftest.py")
    for path, text in {**SAMPLES, "tests/conftest.py": SHARED}.items():
        file = tmp_path / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def run(folder: Path, seed: str, *options: str) -> Sequence[str]:
    """Run pytest on the sample, which has to succeed, and give the lines that it prints."""
    names = {"PYTHONHASHSEED": seed, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "--rootdir=.", "--import-mode=importlib"]
    ended = subprocess.run(
        [*command, "-p", "no:cacheprovider", *options],
        cwd=folder,
        env={**os.environ, **names},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended.stdout.splitlines()


@pytest.mark.parametrize("seed", ["0", "7", "4711"])
def test_the_order_does_not_depend_on_hashes(sample: Path, seed: str) -> None:
    """Under every hash seed, tests are collected in the order that ``collecting.py`` states."""
    assert [line for line in run(sample, seed, "--collect-only") if "::" in line] == ORDER


def test_workers_agree_and_each_group_runs_in_one(sample: Path) -> None:
    """Workers with different hash seeds collect the same tests; each group runs in one worker."""
    options = ["-p", "xdist.plugin", "-n", "4", "--dist", "loadgroup"]
    assert f"{len(ORDER)} passed" in run(sample, "random", *options)[-1]
    ran = [file.read_text().splitlines() for file in sample.glob("ran-gw*")]
    assert sorted(test.partition("@")[0] for tests in ran for test in tests) == sorted(ORDER)
    groups = {"@session": len(SESSION), "@kafka": 3}
    for name, size in groups.items():
        counts = [sum(test.endswith(name) for test in tests) for tests in ran]
        assert [count for count in counts if count] == [size]


def test_files_that_begin_first_exist() -> None:
    """Every file that ``collecting.py`` lists to begin first exists."""
    files = [name for name in collecting.FIRST if name not in collecting.GROUPS.values()]
    assert [name for name in files if not (ROOT / name).is_file()] == []
