"""The benchmark of the assignors works: what it measures is not judged here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).resolve().parents[2] / "benchmarks" / "assignors.py"


def printed(*arguments: str) -> str:
    """What it prints when it is run quickly."""
    command = [sys.executable, str(PROGRAM), "--quick", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def test_kgroup_alone() -> None:
    """A row for each assignor from scratch, and for each that remembers when a member leaves."""
    told = printed("--no-java")
    assert told.count("from scratch") == 2 * told.count("one leaves") == 8
    assert "kafka-clients" not in told


@pytest.mark.real_kafka
def test_beside_java() -> None:
    """The Java side is compiled and answers; both give as much, as evenly."""
    told = printed("--only", "sticky, one leaves")
    assert told.count("one leaves") == 4
    assert "kafka-clients 4.3.0" in told
    assert "the answers differ" not in told
