"""Runs one plan and checks what happened."""

from __future__ import annotations

from typing import final

import attrs

from kgroup.testing.simulation.checks import Violation, check
from kgroup.testing.simulation.coordination import ClassicCoordination, NewCoordination
from kgroup.testing.simulation.default_program import default_worker
from kgroup.testing.simulation.engine import Engine
from kgroup.testing.simulation.history import HistoryEntry
from kgroup.testing.simulation.observer import Recorder
from kgroup.testing.simulation.plan import Plan
from kgroup.testing.simulation.process import Worker
from kgroup.testing.simulation.virtual_time import run_virtual
from kgroup.testing.simulation.watchdog import SEED_TIMEOUT, TIMEOUTS
from kgroup.testing.simulation.workload import Setup, Value, Workload


@final
@attrs.frozen(kw_only=True)
class Outcome:
    """The result of one simulation.

    Attributes:
        plan: the plan that was run.
        history: everything that was recorded, in the order in which it happened.
        violations: the invariants that were broken; empty if all of them held.
    """

    plan: Plan
    history: tuple[HistoryEntry, ...] = attrs.field(
        repr=lambda history: f"<{len(history)} entries>"
    )
    violations: tuple[Violation, ...]

    @property
    def trace(self) -> str:
        """The history, one line an entry; byte for byte the same for the same plan and program."""
        return "\n".join(map(str, self.history)) + "\n"


def record(
    plan: Plan,
    worker: Worker,
    new_coordination: NewCoordination = ClassicCoordination,
    *,
    seed_timeout: float = SEED_TIMEOUT,
) -> tuple[HistoryEntry, ...]:
    """Run a plan in virtual time and return its history; `simulate` checks it too."""
    recorder = Recorder()
    engine = Engine(plan, Workload.of(worker), recorder, new_coordination)
    run_virtual(plan.seed, engine.run, seed_timeout=seed_timeout)
    return tuple(recorder.history)


def simulate(
    plan: Plan,
    worker: Worker = default_worker,
    *,
    value: Value | None = None,
    setup: Setup | None = None,
    seed_timeout: float = SEED_TIMEOUT,
) -> Outcome:
    """Run a plan in virtual time and check every invariant.

    Args:
        plan: a plan, usually from ``generate_plan``.
        worker: the program that every member runs.
        value: see `check`.
        setup: see `check`.
        seed_timeout: see `check`.

    Raises:
        SimulationHangError: it did not end in that time.
        ConfigError: ``seed_timeout`` is out of bounds.
        ArgumentError: a function cannot be called as it would be.
        UsageError: this release of trio lacks internals that the simulator needs; see
            ``trio_internals``.
        RuntimeError: called from inside ``trio.run``.
    """
    TIMEOUTS.check("seed_timeout", seed_timeout)
    entries = record(plan, Workload.of(worker, value, setup), seed_timeout=seed_timeout)
    return Outcome(plan=plan, history=entries, violations=tuple(check(plan, entries)))
