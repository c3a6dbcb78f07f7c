"""The same seed gives the same trace, byte for byte, in every process."""

from __future__ import annotations

import os
import subprocess
import sys
from itertools import zip_longest
from pathlib import Path

import attrs

from kgroup.testing.simulation import generate_plan, simulate
from tests.conftest import LEAN
from tests.testing.simulation.samples import SMALL

HERE = Path(__file__).parent
HASH_SEEDS = ("0", "1", "random")
SEEDS = ("0", "7")  # of which two have logins, by SCRAM and by PLAIN
MEMBERS = "4"


def begin(hash_seed: str) -> subprocess.Popen[str]:
    """Start a process that prints traces, without hypothesis, as for a user."""
    path = os.pathsep.join([str(LEAN), *filter(None, [os.environ.get("PYTHONPATH"), *sys.path])])
    return subprocess.Popen(
        [sys.executable, "-P", str(HERE / "tracing.py"), *SEEDS, MEMBERS],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def first_difference(one: str, other: str) -> str:
    """The first line in which two traces differ, from both; empty if they are equal."""
    seed = ""
    for number, (left, right) in enumerate(
        zip_longest(one.splitlines(), other.splitlines(), fillvalue="(nothing more)"), 1
    ):
        if left != right:
            return f"line {number}, in {seed or 'no seed'}:\n  {left}\n  {right}"
        if left.startswith("seed "):
            seed = left
    return ""


def test_hashes_and_addresses_decide_nothing() -> None:
    """Traces do not depend on hashes, memory addresses or hypothesis."""
    traces: dict[str, str] = {}
    processes = {name: begin(name) for name in HASH_SEEDS}
    for name, process in processes.items():
        traces[name], errors = process.communicate()
        assert process.returncode == 0, errors
    first = traces["0"]
    assert first.count("\nSimulationEnded(") == int(SEEDS[1])
    for name, trace in traces.items():
        assert not first_difference(first, trace), f"PYTHONHASHSEED={name}"
        assert trace == first


def test_a_seed_is_the_same_again_in_one_process() -> None:
    """Earlier runs in a process change nothing, and another seed gives another trace."""
    plans = [generate_plan(attrs.evolve(SMALL, faults_per_hour=300.0), seed) for seed in (1, 2)]
    one, other = (simulate(plan).trace for plan in plans)
    assert simulate(plans[0]).trace == one
    assert one != other


def test_a_difference_is_shown() -> None:
    """The first difference is reported with its seed."""
    assert not first_difference("seed 1\na\nb", "seed 1\na\nb")
    found = first_difference("seed 1\na\nb", "seed 1\na\nc")
    assert found == "line 3, in seed 1:\n  b\n  c"
    assert "(nothing more)" in first_difference("seed 1\na", "seed 1")
