"""Hands tests out to pytest-xdist's workers without counting again those that have ended.

After each test, pytest-xdist counts what a worker still has to do, and looks at everything that the
worker ever had: with thousands of tests, tens of millions of steps in the one process that all
workers wait for.
"""

from __future__ import annotations

from typing import Any, final

import pytest
from xdist.scheduler import LoadGroupScheduling  # type: ignore[import-untyped]

Workload = dict[str, dict[str, bool]]
"""Group of tests -> node id -> whether the test has ended; a test without a group is one."""


@final
class Scheduling(LoadGroupScheduling):  # type: ignore[misc]
    """pytest-xdist's ``loadgroup``, which forgets groups that have ended."""

    def _pending_of(self, workload: Workload) -> int:
        for ended in [group for group, tests in workload.items() if all(tests.values())]:
            del workload[ended]
        pending: int = super()._pending_of(workload)
        return pending


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Scheduling | None:
    """Use it for ``--dist loadgroup``."""
    return Scheduling(config, log) if config.getoption("dist") == "loadgroup" else None
