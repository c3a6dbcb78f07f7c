"""The pytest plugin, in pytest runs of its own: no test is skipped silently."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

TESTS = """
import pytest

def test_shared(real_kafka):
    pass

def test_own(own_kafka):
    own_kafka()

@pytest.mark.parametrize("fixture", [pytest.param("real_kafka", marks=pytest.mark.real_kafka)])
def test_asks_late(request, fixture):
    request.getfixturevalue(fixture)

def test_asks_late_without_a_mark(request):
    request.getfixturevalue("real_kafka")

def test_other():
    pass
"""
NO_NETWORK = """
def resolve(endpoint):
    raise ConnectionError("no route to the repository")
"""

Run = Callable[..., str]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Run the tests above without access to Maven Central; return pytest's output."""
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "jgo.py").write_text(NO_NETWORK)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    path = [str(tmp_path), *filter(None, sys.path)]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(path),
        "XDG_CACHE_HOME": str(tmp_path / "cache"),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    for inherited in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        environment.pop(inherited, None)

    def pytest_prints(*options: str) -> str:
        command = [sys.executable, "-m", "pytest", "-p", "kgroup.testing.plugin", "-ra", *options]
        ended = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        return ended.stdout + ended.stderr

    return pytest_prints


def test_without_kafka_tests_fail(run: Run) -> None:
    """Without Kafka every test that needs it fails with the reason; others run."""
    printed = run()
    assert "2 failed, 1 passed, 2 errors" in printed
    assert "could not be fetched from Maven Central" in printed
    assert "no route to the repository" in printed


def test_the_summary_counts_what_the_option_skips(run: Run) -> None:
    """The option skips the tests that need Kafka, and the summary counts them."""
    printed = run("--without-real-kafka")
    assert "1 passed, 4 skipped" in printed
    assert "4 tests that need a real Kafka did not run: --without-real-kafka was given" in printed


def test_collecting_fetches_nothing(run: Run, tmp_path: Path) -> None:
    """Listing the tests downloads nothing."""
    assert "5 tests collected" in run("--collect-only")
    assert not (tmp_path / "cache").exists()
