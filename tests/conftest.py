"""Plugins and fixtures of all tests: checks of the checkout, time-outs, quick child processes.

kio imports hypothesis if it is installed, which makes every new process slow. Child processes of
tests therefore get an empty module of that name, and hypothesis builds its tables of characters
once, before other processes need them.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
from hypothesis import strategies

from tests.timeouts import pytest_timeout_set_timer

__all__ = ["LEAN", "LINKS", "ROOT", "pytest_timeout_set_timer"]

ROOT = Path(__file__).resolve().parent.parent
LEAN = ROOT / "tests" / "lean"
LINKS = ("kgroup/generation", "kgroup/watchers")
# Examples are slow under coverage and on a busy machine. A test that needs more of them says so.
hypothesis.settings.register_profile("suite", max_examples=25, deadline=None)
hypothesis.settings.load_profile("suite")
# By default this is a folder in the current directory: each process in a new directory would spend
# seconds on building the tables again.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(ROOT / ".hypothesis"))
BROKEN = [link for link in LINKS if (ROOT / link).is_file()]
# If the links are broken, kgroup cannot be imported.
PLUGINS = ["kgroup.testing.spark_plugin", "tests.brokers"]
OURS = [
    "tests.collecting",
    "tests.durations",
    "tests.handled_exceptions",
    "tests.interrupts",
    "tests.measuring",
    "tests.ports",
    "tests.first_worker",
    "tests.scheduling",
    "tests.reruns",
]
pytest_plugins = [] if BROKEN else [*PLUGINS, *OURS]


def pytest_configure() -> None:
    """End at once, and say why, if the checkout has turned the links into text files."""
    if BROKEN:
        msg = (
            f"{' and '.join(BROKEN)} should be links to folders, but this checkout made text files "
            "of them, as git does on Windows. Develop kgroup on Linux or macOS, or set "
            "core.symlinks=true where links can be made and check out again. "
            "The built wheel has no links and runs anywhere."
        )
        raise pytest.UsageError(msg)


@pytest.hookimpl(trylast=True)
def pytest_sessionstart() -> None:
    """Let hypothesis build its tables once, before other processes would all build them."""
    strategies.text().validate()


@pytest.fixture(scope="session", autouse=True)
def _lean_children() -> Iterator[None]:
    """Keep hypothesis and coverage out of child processes.

    A user's processes have neither. Coverage would slow hundreds of processes down by half, and
    would raise the total by one percent only, because other tests run the same code here.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in [name for name in os.environ if "COVERAGE" in name]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PYTHONPATH", str(LEAN), prepend=os.pathsep)
        yield


@pytest.fixture
def children_with_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let child processes that run pytest import hypothesis, as this one does."""
    path = os.environ["PYTHONPATH"].split(os.pathsep)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path[path.index(str(LEAN)) + 1 :]))


def pytest_collection_finish() -> None:
    """Exclude the collected tests from every later garbage collection, and collect less often.

    Tests make and drop whole groups and brokers: at the usual threshold of 700 objects the
    collector takes a tenth of the processor time of a worker.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
