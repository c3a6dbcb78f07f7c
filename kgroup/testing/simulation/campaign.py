"""Runs many seeds over all processors, and fails with the least that still fails.

What one seed is is left to ``run``, where seeds run to ``crew``; here is what becomes of their
results. INVARIANT: the failure that is raised was seen in this process, and is that of the first
seed that fails, however many processes there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sized
from functools import partial
from typing import Final, final

import attrs

from kgroup import bounds
from kgroup.errors import ConfigError, UsageError
from kgroup.testing.simulation.default_program import worker as default_worker
from kgroup.testing.simulation.plan import Plan, Scenario
from kgroup.testing.simulation.plan_generation import draw
from kgroup.testing.simulation.process import Worker
from kgroup.testing.simulation.report import Failure, SimulationError
from kgroup.testing.simulation.run import Outcome, simulate
from kgroup.testing.simulation.shrinking import MOST_RUNS, shrink
from kgroup.testing.simulation.summary import Summary
from kgroup.testing.simulation.worker_pool import Result, results

MOST_SEEDS: Final = 1_000_000
"""Seeds of one campaign, where their number is known before."""
PROCESSES: Final = bounds.whole(1, 256)
"""Each process takes about 100 MB."""
_RUNS: Final = bounds.whole(0, 100_000)


@final
@attrs.frozen(kw_only=True)
class Progress:
    """How far a campaign has come.

    Attributes:
        seeds: that were run.
        of: how many there are, or None if nobody knows.
        failed: those that fail.
        summary: the figures of all that were run, together.
        shrinking: how many smaller plans of the first failure were run; 0 before.
    """

    seeds: int = 0
    of: int | None = None
    failed: tuple[int, ...] = ()
    summary: Summary = attrs.field(factory=Summary)
    shrinking: int = 0


def check(
    scenario: Scenario,
    seeds: Iterable[int],
    worker: Worker = default_worker,
    *,
    processes: int | None = None,
    keep_going: bool = False,
    on_progress: Callable[[Progress], object] = lambda _: None,
    most_runs: int = MOST_RUNS,
) -> Summary:
    """Simulate every seed; the first that breaks an invariant ends it with a report.

    Seeds are handed to other processes one by one. They import the program by its name; one that
    they cannot import, such as a function inside of a test, runs in this process. A script that
    calls this begins its own work under ``if __name__ == "__main__":``, as multiprocessing needs.

    Args:
        scenario: what all seeds share.
        seeds: which ones, such as ``range(1000)``.
        worker: the program of every member.
        processes: how many run at a time; one for each processor by default. 1 is this one.
        keep_going: run all seeds, and fail only then.
        on_progress: is called in this process after every seed, and while a failure is shrunk.
        most_runs: how many smaller plans of a failure are tried, at most.

    Returns:
        What happened in all of them, in figures.

    Raises:
        SimulationError: an invariant is broken; it has the shortest schedule of faults that still
            breaks it, a picture of the group, and what runs it again.
        ConfigError: an argument is not allowed.
        UsageError: no program ever came to a generation, so that nothing was seen; or trio's
            internals are not what they were; or the other processes cannot start.
        RuntimeError: called from inside of ``trio.run``; or a seed fails in another process and
            not in this one: then the program depends on more than its seed.

    ``KeyboardInterrupt`` ends all processes at once.
    """
    bounds.optional(PROCESSES).check("processes", processes)
    _RUNS.check("most_runs", most_runs)
    try:
        known = len(seeds) if isinstance(seeds, Sized) else None
    except OverflowError:
        # A range of more numbers than an index can have.
        raise ConfigError("seeds", seeds, f"there may be at most {MOST_SEEDS} seeds") from None
    if known is not None and known > MOST_SEEDS:
        raise ConfigError("seeds", seeds, f"there may be at most {MOST_SEEDS} seeds")
    progress = Progress(of=known)
    failed: list[Result] = []
    found = results(scenario, seeds, worker, processes=processes, keep_going=keep_going)
    try:
        for result in found:
            if result.is_failure:
                failed.append(result)
            progress = attrs.evolve(
                progress,
                seeds=progress.seeds + 1,
                failed=tuple(one.seed for one in failed),
                summary=progress.summary + result.summary,
            )
            on_progress(progress)
    finally:
        found.close()
    if not failed:
        _refuse_idleness(progress)
        return progress.summary
    failed.sort(key=lambda one: one.position)
    _Failing(scenario, worker, failed, progress, on_progress, most_runs).fail()
    raise AssertionError("a failure is raised")


def _refuse_idleness(progress: Progress) -> None:
    """A program that fails before it joins breaks no invariant: that would pass for a success."""
    summary = progress.summary
    if progress.seeds and not summary.generations:
        failure = f" What a program ended with: {summary.failure}." if summary.failure else ""
        raise UsageError(
            f"no group became stable in any of {progress.seeds} simulations, so that no invariant"
            f" could be broken.{failure} A program opens a ConsumerGroup with process.config() and"
            " runs until it is closed; is the simulated time long enough for that?"
        )


@final
@attrs.frozen
class _Failing:
    """The way from a seed that fails to the error that says so."""

    _scenario: Scenario
    _worker: Worker
    _failed: list[Result]
    _progress: Progress
    _on_progress: Callable[[Progress], object]
    _most_runs: int

    def fail(self) -> None:
        """Run the first seed again here, shrink it, and raise."""
        first = self._failed[0]
        try:
            outcome = simulate(draw(self._scenario, first.seed), self._worker)
        except Exception as error:
            error.add_note(f"This was in the simulation of seed {first.seed}.")
            raise
        if not outcome.violations:
            raise RuntimeError(
                f"seed {first.seed} fails in another process, and not in this one: the program"
                " depends on more than its seed (real time, random, the order of a set). There:\n"
                f"{first.told}"
            )
        runs = _Counted(partial(simulate, worker=self._worker), self._progress, self._on_progress)
        raise SimulationError(
            Failure(
                scenario=self._scenario,
                worker=self._worker,
                outcome=outcome,
                shrunk=shrink(outcome, runs, most_runs=self._most_runs),
                failed_seeds=tuple(one.seed for one in self._failed),
            )
        )


@final
class _Counted:
    """Runs plans, and tells how many."""

    def __init__(
        self,
        run: Callable[[Plan], Outcome],
        progress: Progress,
        on_progress: Callable[[Progress], object],
    ) -> None:
        self._run: Final = run
        self._progress = progress
        self._on_progress: Final = on_progress

    def __call__(self, plan: Plan) -> Outcome:
        outcome = self._run(plan)
        self._progress = attrs.evolve(self._progress, shrinking=self._progress.shrinking + 1)
        self._on_progress(self._progress)
        return outcome
