"""The benchmark of the assignors runs; its figures are not checked."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "assignors.py"


def printed(*arguments: str) -> str:
    """Run the benchmark quickly, and return its output."""
    command = [sys.executable, str(PROGRAM), "--quick", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_kgroup_alone() -> None:
    """There is a row for each assignor from scratch, and for each sticky one after a leave."""
    output = printed("--no-java")
    assert output.count("from scratch") == 2 * output.count("one leaves") == 8
    assert "kafka-clients" not in output


@pytest.mark.real_kafka
def test_beside_java() -> None:
    """The Java side is compiled and answers; both sides assign as many partitions, as evenly."""
    output = printed("--only", "sticky, one leaves")
    assert output.count("one leaves") == 4
    assert "kafka-clients 4.3.0" in output
    assert "the answers differ" not in output
