"""An example as a module of the test's own process."""

from __future__ import annotations

import importlib.util
from typing import Any

from tests.conftest import ROOT


def load(name: str) -> Any:
    """The module that an example's file makes; it is not run as a program."""
    specification = importlib.util.spec_from_file_location(
        f"example_{name}", ROOT / "examples" / f"{name}.py"
    )
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module
