"""One of pytest-xdist's workers collects first, and the others use what it has compiled.

pytest rewrites each test file and keeps the result. In a new checkout there is none, and workers
that begin together would each rewrite all files, which takes longer than all else they collect.
What a module runs at its import is the same in each worker, so only the first is measured then.
"""

from __future__ import annotations

import tempfile
from collections.abc import Generator
from pathlib import Path
from typing import Any, Final

import pytest
from filelock import FileLock

from tests.measuring import not_measured

FOLDER: Final = "first_worker"
"""The name under which workers get the path of the folder that they share."""
_shared: Final = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Make the folder, in the process that starts the workers."""
    if not hasattr(config, "workerinput"):
        folder = tempfile.TemporaryDirectory(prefix="kgroup-tests-")
        config.add_cleanup(folder.cleanup)
        config.stash[_shared] = folder.name


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Send the path to a worker."""
    node.workerinput[FOLDER] = node.config.stash[_shared]


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Collect alone, or wait for the worker that does."""
    path = getattr(session.config, "workerinput", {}).get(FOLDER)
    if path is None:
        return (yield)
    with FileLock(Path(path, "lock")):
        collected = Path(path, "collected")
        if not collected.exists():
            try:
                return (yield)
            finally:
                collected.touch()
    with not_measured():
        return (yield)
