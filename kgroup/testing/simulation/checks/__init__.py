"""What must hold in every simulation: one class an invariant, each fed with all facts in order."""

from __future__ import annotations

from kgroup.testing.simulation.checks.base import Check, Violation
from kgroup.testing.simulation.checks.table import CHECKS, check

__all__ = ["CHECKS", "Check", "Violation", "check"]
