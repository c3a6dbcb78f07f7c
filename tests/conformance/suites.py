"""Every file of scenarios of this folder; importing this registers them all."""

from __future__ import annotations

import importlib
from typing import Final

from tests.conformance.driver import PREFIX, SCENARIOS, Scenario
from tests.conformance.golden import HERE

SUITES: Final = tuple(sorted(path.stem.removeprefix(PREFIX) for path in HERE.glob(f"{PREFIX}*.py")))
"""The names of the suites: `open` is `scenarios_open.py` with `golden_open.json`."""

for _suite in SUITES:
    importlib.import_module(f"tests.conformance.{PREFIX}{_suite}")


def scenarios_of(suite: str, broker: str) -> list[Scenario]:
    """The scenarios of a suite that need a broker configuration."""
    return [one for one in SCENARIOS.values() if (one.suite, one.broker) == (suite, broker)]
