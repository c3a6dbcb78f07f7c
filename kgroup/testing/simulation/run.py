"""Runs one seed: from a plan to what was seen and what was wrong with it."""

from __future__ import annotations

from typing import final

import attrs

from kgroup.testing.simulation.checks import Violation, check
from kgroup.testing.simulation.default_program import worker as default_worker
from kgroup.testing.simulation.engine import Engine
from kgroup.testing.simulation.history import Fact
from kgroup.testing.simulation.observer import Recorder
from kgroup.testing.simulation.plan import Plan
from kgroup.testing.simulation.process import Worker
from kgroup.testing.simulation.virtual_time import run_virtual


@final
@attrs.frozen(kw_only=True)
class Outcome:
    """One simulation, when it is over.

    Attributes:
        plan: what was run.
        facts: what was seen, in its order.
        violations: what must not be; none if all is well.
    """

    plan: Plan
    facts: tuple[Fact, ...] = attrs.field(repr=lambda facts: f"<{len(facts)} facts>")
    violations: tuple[Violation, ...]

    @property
    def trace(self) -> str:
        """Every fact as a line; the same, byte for byte, for the same plan and program."""
        return "\n".join(map(str, self.facts)) + "\n"


def simulate(plan: Plan, worker: Worker = default_worker) -> Outcome:
    """Run a plan in virtual time, and check what was seen.

    Args:
        plan: from ``draw``.
        worker: the program of every member.

    Raises:
        UsageError: trio's internals are not what they were; see ``internals``.
        RuntimeError: called from inside of ``trio.run``.
    """
    recorder = Recorder()
    run_virtual(plan.seed, Engine(plan, worker, recorder).run)
    return Outcome(
        plan=plan,
        facts=tuple(recorder.facts),
        violations=tuple(check(plan, recorder.facts)),
    )
