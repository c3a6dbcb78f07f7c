"""Imports an example as a module into the test's process."""

from __future__ import annotations

import importlib.util
from typing import Any

from tests.conftest import ROOT


def load(name: str) -> Any:
    """Import an example's file as a module, without running its program."""
    specification = importlib.util.spec_from_file_location(
        f"example_{name}", ROOT / "examples" / f"{name}.py"
    )
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
