"""One worker collects first, and alone."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from filelock import FileLock, Timeout

from tests.first_worker import FOLDER, pytest_collection


def collecting(folder: Path) -> Generator[None, object, object]:
    """The collection of a worker that shares this folder."""
    session: Any = SimpleNamespace(config=SimpleNamespace(workerinput={FOLDER: str(folder)}))
    return pytest_collection(session)


def end(steps: Generator[None, object, object]) -> None:
    """Let a collection end."""
    with pytest.raises(StopIteration):
        steps.send(None)


def test_others_wait_for_the_first(tmp_path: Path) -> None:
    """The first keeps them out until it has collected, and they do not keep each other out."""
    first, second, third = (collecting(tmp_path) for _ in range(3))
    lock = FileLock(tmp_path / "lock", timeout=0)
    next(first)
    with pytest.raises(Timeout):
        lock.acquire()
    end(first)
    next(second)
    next(third)
    with lock:
        end(third)
        end(second)


def test_a_first_that_fails(tmp_path: Path) -> None:
    """The others collect all the same, and report what is wrong."""
    first, second = collecting(tmp_path), collecting(tmp_path)
    next(first)
    with pytest.raises(ImportError):
        first.throw(ImportError())
    next(second)
    end(second)
