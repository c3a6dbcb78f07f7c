"""The invariants that every simulation is checked for: one class each, fed the whole history."""

from __future__ import annotations

from kgroup.testing.simulation.checks.base import Check, Violation
from kgroup.testing.simulation.checks.table import CHECKS, check

__all__ = ["CHECKS", "Check", "Violation", "check"]
