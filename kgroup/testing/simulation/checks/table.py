"""All invariants, by number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kgroup.testing.simulation.checks.base import Check, Violation
from kgroup.testing.simulation.facts import Fact
from kgroup.testing.simulation.plan import Plan

CHECKS: Final[tuple[type[Check], ...]] = ()


def check(plan: Plan, facts: Iterable[Fact]) -> Iterator[Violation]:
    """Everything that is wrong, in the order in which it was found."""
    checks = [one(plan) for one in CHECKS]
    for fact in facts:
        for one in checks:
            yield from one.see(fact)
