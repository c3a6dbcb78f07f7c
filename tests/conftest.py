"""What holds for every test: the checkout has its links, and a hanging test harms no other.

Processes are quick to start: hypothesis, which kio imports where it is installed, stands aside in
the child processes of tests, and makes its tables of characters once for all others.
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
# Coverage and a busy machine make examples slow; the models that need more say so themselves.
hypothesis.settings.register_profile("suite", max_examples=25, deadline=None)
hypothesis.settings.load_profile("suite")
# By default it is in the folder where a process begins: each new one would cost seconds, for the
# tables are made anew.
os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(ROOT / ".hypothesis"))
BROKEN = [link for link in LINKS if (ROOT / link).is_file()]
# From a checkout that is broken nothing of kgroup can be imported.
PLUGINS = ["kgroup.testing.plugin", "kgroup.testing.spark_plugin", "tests.brokers"]
OURS = ["tests.collecting", "tests.durations", "tests.interrupts", "tests.reruns"]
pytest_plugins = [] if BROKEN else [*PLUGINS, *OURS]


def pytest_configure() -> None:
    """End at once, and say why, where a checkout has turned the links into text files."""
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
    """Have hypothesis make its tables once, before other processes begin and all make them."""
    strategies.text().validate()


@pytest.fixture(scope="session", autouse=True)
def _lean_children() -> Iterator[None]:
    """Child processes import no hypothesis, as a user's do not, and coverage does not measure them.

    Coverage would cost them half as much time again. There are hundreds, and nearly all that they
    run is measured in this process too: with them, coverage of the whole is one in a hundred more.
    """
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name in [name for name in os.environ if "COVERAGE" in name]:
            monkeypatch.delenv(name)
        monkeypatch.setenv("PYTHONPATH", str(LEAN), prepend=os.pathsep)
        yield


@pytest.fixture
def children_with_hypothesis(monkeypatch: pytest.MonkeyPatch) -> None:
    """Child processes that run pytest import hypothesis, as this one does."""
    path = os.environ["PYTHONPATH"].split(os.pathsep)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path[path.index(str(LEAN)) + 1 :]))


def pytest_collection_finish() -> None:
    """Leave what was collected to stay out of every later garbage collection."""
    gc.collect()
    gc.freeze()
