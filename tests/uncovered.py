"""Child processes at which coverage does not look: there it costs half as much time again."""

from __future__ import annotations

import os

import pytest


def uncovered() -> dict[str, str]:
    """The process environment for such a child."""
    return {name: value for name, value in os.environ.items() if "COVERAGE" not in name}


def leave_children_uncovered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let all children that this process starts from now on be such."""
    for name in os.environ.keys() - uncovered().keys():
        monkeypatch.delenv(name)
