"""Makes this checkout's ``benchmarks`` importable, where its folder is not on ``sys.path`` too."""

from __future__ import annotations

import sys
from importlib.util import module_from_spec, spec_from_file_location

from tests.conftest import ROOT

FOLDER = ROOT / "benchmarks"

if "benchmarks" not in sys.modules:
    spec = spec_from_file_location(
        "benchmarks", FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
    )
    assert spec is not None
    sys.modules["benchmarks"] = module_from_spec(spec)
