"""What holds for every test: the checkout has its links, and a hanging test harms no other."""

from __future__ import annotations

import gc
from pathlib import Path

import hypothesis
import pytest

from tests.timeouts import pytest_timeout_set_timer

__all__ = ["LINKS", "ROOT", "pytest_timeout_set_timer"]

ROOT = Path(__file__).resolve().parent.parent
LINKS = ("kgroup/generation", "kgroup/watchers")
# Coverage and a busy machine make examples slow; the models that need more say so themselves.
hypothesis.settings.register_profile("suite", max_examples=25, deadline=None)
hypothesis.settings.load_profile("suite")
BROKEN = [link for link in LINKS if (ROOT / link).is_file()]
# From a checkout that is broken nothing of kgroup can be imported.
pytest_plugins = (
    []
    if BROKEN
    else ["kgroup.testing.plugin", "kgroup.testing.spark_plugin", "tests.brokers"]
)


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


def pytest_collection_finish() -> None:
    """Leave what was collected to stay out of every later garbage collection."""
    gc.collect()
    gc.freeze()
