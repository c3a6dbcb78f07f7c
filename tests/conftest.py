"""What holds for every test: the checkout must have its links."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LINKS = ("kgroup/generation", "kgroup/watchers")


def pytest_configure() -> None:
    """End at once, and say why, where a checkout has turned the links into text files."""
    broken = [link for link in LINKS if (ROOT / link).is_file()]
    if broken:
        msg = (
            f"{' and '.join(broken)} should be links to folders, but this checkout made text files "
            "of them, as git does on Windows. Develop kgroup on Linux or macOS, or set "
            "core.symlinks=true where links can be made and check out again. "
            "The built wheel has no links and runs anywhere."
        )
        raise pytest.UsageError(msg)
