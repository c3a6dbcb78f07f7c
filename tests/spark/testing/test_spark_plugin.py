"""The plugin for Spark, in separate pytest runs: it names what is missing and skips nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TESTS = """
import sys
import pytest

sys.modules["pyspark"] = None

def test_needs_spark(spark):
    pass

def test_fails(postgres):
    assert postgres.url == "elsewhere"

def test_asks_late(request):
    request.getfixturevalue("spark_cluster")

def test_other():
    pass
"""


def test_without_spark_tests_fail(tmp_path: Path) -> None:
    """Without PySpark, tests that need it fail with the reason; logs are shown."""
    (tmp_path / "test_it.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
    }
    for inherited in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER"):
        environment.pop(inherited, None)
    plugins = ["-p", "kgroup.testing.plugin", "-p", "kgroup.testing.spark_plugin"]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-ra", *plugins],
        cwd=tmp_path,
        env=environment,
        check=False,
        capture_output=True,
        text=True,
        timeout=250.0,
    )
    assert "2 failed, 1 passed, 1 error" in ended.stdout, ended.stdout + ended.stderr
    assert "pip install 'kgroup[spark,kafka]'" in ended.stdout
    assert "database system is ready to accept connections" in ended.stdout
