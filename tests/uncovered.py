"""Child processes at which coverage does not look: there it costs half as much time again."""

from __future__ import annotations

import os


def uncovered() -> dict[str, str]:
    """The process environment for such a child."""
    return {name: value for name, value in os.environ.items() if "COVERAGE" not in name}
