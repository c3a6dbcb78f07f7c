"""The pytest plugin, in pytest runs of its own: no test is skipped silently."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from kgroup.testing import plugin

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

METADATA = "Metadata-Version: 2.1\nName: kgroup\nVersion: 0\n"
ENTRY_POINTS = "[pytest11]\nkgroup.testing.plugin = kgroup.testing.plugin\n"
UNUSED = """
import sys

def test_nothing_is_imported():
    loaded = {name for name in sys.modules if name.partition(".")[0] in ("kgroup", "trio", "attr")}
    assert loaded == {"kgroup", "kgroup.testing", "kgroup.testing.plugin"}
"""

SIMULATIONS = """
from kgroup import ConsumerGroup

SMALL = {"members": 1, "brokers": 1, "duration": 30.0, "faults_per_hour": 0.0, "processes": 1}

def fails(*_):
    raise LookupError("mine")

async def member(process):
    async with ConsumerGroup(process.config()) as group:
        async for generation in group:
            async for batch in generation.records():
                await generation.commit({batch.partition: batch.next_offset})

def test_report(simulation):
    simulation(member, seeds=[5], **SMALL)

def test_seeds(simulation):
    simulation(member, seeds=3)

def test_misspelt(simulation):
    simulation(member, seed=3)

def test_scenario(simulation):
    simulation(member, members=0)

def test_value(simulation):
    simulation(member, seeds=[5], value=fails, **SMALL)

def test_setup(simulation):
    simulation(member, seeds=[5], setup=fails, **SMALL)
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


def test_pytest_finds_it(tmp_path: Path) -> None:
    """It is found without a word in conftest.py, and one is no fault; unused, it imports nothing.

    Nor is it a warning that the program that runs pytest has imported kgroup before.
    """
    installed = tmp_path / "kgroup-0.dist-info"
    installed.mkdir()
    for name, text in {
        "METADATA": METADATA,
        "RECORD": "kgroup/__init__.py,,\n",
        "entry_points.txt": ENTRY_POINTS,
    }.items():
        (installed / name).write_text(text)
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["kgroup.testing.plugin"]')
    (tmp_path / "test_it.py").write_text(UNUSED)
    program = "import sys, kgroup, pytest; sys.exit(pytest.main(sys.argv[1:]))"
    others = [
        f"-pno:{name}"
        for name in ("hypothesispytest", "trio", "anyio", "xdist", "xdist.looponfail")
    ]
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)]),
    }
    for inherited in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_DISABLE_PLUGIN_AUTOLOAD"):
        environment.pop(inherited, None)
    command = [
        sys.executable,
        "-c",
        program,
        "-Werror",
        "--without-real-kafka",
        *others,
        str(tmp_path),
    ]
    ended = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert "1 passed" in ended.stdout, ended.stdout + ended.stderr


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


def test_a_simulation_s_failure_comes_first(run: Run, tmp_path: Path) -> None:
    """Between the line of the test and the error there are the user's own frames and no others."""
    (tmp_path / "test_it.py").write_text(SIMULATIONS)
    _, *failures = re.split("^____* (test_[a-z]+) _*$", run(), flags=re.MULTILINE)
    printed = dict(zip(failures[::2], failures[1::2], strict=True))
    assert list(printed) == [
        "test_report",
        "test_seeds",
        "test_misspelt",
        "test_scenario",
        "test_value",
        "test_setup",
    ]
    frames = {
        name: re.findall(r"^(\S+\.py):\d+: ", text.partition("short test summary")[0], re.MULTILINE)
        for name, text in printed.items()
    }
    assert frames == {
        "test_report": ["test_it.py"],
        "test_seeds": ["test_it.py"],
        "test_misspelt": ["test_it.py"],
        "test_scenario": ["test_it.py"],
        "test_value": ["test_it.py"] * 2,
        "test_setup": ["test_it.py"] * 2,
    }
    for name, first in {
        "test_report": "SimulationError: seed 5 fails",
        "test_seeds": "ConfigError: seeds=3 is refused",
        "test_misspelt": "ConfigError: seed=3 is refused: simulation() has no such argument",
        "test_scenario": "ConfigError: members=0 is refused",
        "test_value": "LookupError: mine",
        "test_setup": "LookupError: mine",
    }.items():
        errors = re.findall("^E +(.*)$", printed[name], re.MULTILINE)
        assert first in errors[0]


def test_the_error_of_every_test_has_its_own_lines() -> None:
    """Tests that fail because no Kafka is there do not add up their tracebacks."""
    config = SimpleNamespace(
        getoption=lambda _: False, stash={plugin.UNAVAILABLE: ValueError("no jars")}
    )
    for _ in range(3):
        with pytest.raises(ValueError, match="no jars") as caught:
            plugin._skip_or_fail_without_kafka(config)  # type: ignore[arg-type]
        assert len(caught.traceback) == 2
