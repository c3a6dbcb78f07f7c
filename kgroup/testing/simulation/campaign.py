"""Runs many seeds on all processors and reports the first that fails, shrunk.

``run`` simulates one seed, ``worker_pool`` distributes the seeds; this module collects the results.
INVARIANT: the failure that is raised happened in this process, and it is that of the first failing
seed, however many processes there are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sized
from typing import Any, Final, final

import attrs

from kgroup import bounds
from kgroup.errors import ConfigError, UsageError
from kgroup.testing.simulation.default_program import default_worker
from kgroup.testing.simulation.plan import Plan, Scenario
from kgroup.testing.simulation.plan_generation import generate_plan
from kgroup.testing.simulation.process import Worker
from kgroup.testing.simulation.report import Failure, SimulationError
from kgroup.testing.simulation.run import Outcome, simulate
from kgroup.testing.simulation.shrinking import MOST_RUNS, shrink
from kgroup.testing.simulation.summary import Summary
from kgroup.testing.simulation.virtual_time import run_virtual
from kgroup.testing.simulation.watchdog import SEED_TIMEOUT, TIMEOUTS
from kgroup.testing.simulation.worker_pool import Result, results
from kgroup.testing.simulation.workload import Setup, Value, Workload, own_frames
from kgroup.types import INT64_MAX

MOST_SEEDS: Final = 1_000_000
"""The most seeds of one campaign whose number is known in advance."""
PROCESSES: Final = bounds.whole(1, 256)
"""Each process takes about 100 MB."""
SEED: Final = bounds.whole(0, INT64_MAX)
"""A seed; the report of a failure has a command, which takes it, too."""
_RUNS: Final = bounds.whole(0, 100_000)
_SEEDS: Final = (
    "it must be an iterable of integers: range(3) for the seeds 0, 1 and 2, or [3] for seed 3 alone"
)
"""A single number is refused: `--seeds 3` of the command means one seed, and here it could mean
three."""


@final
@attrs.frozen(kw_only=True)
class Progress:
    """The progress of a campaign.

    Attributes:
        seeds: how many seeds were run.
        of: how many there are, or None if that is unknown.
        failed: the seeds that failed.
        failure: what the first of them broke, one line for each violation; empty if none failed.
        summary: the figures of all seeds that were run, added up.
        shrinking: how many smaller plans of the first failure were run; 0 before the first.
    """

    seeds: int = 0
    of: int | None = None
    failed: tuple[int, ...] = ()
    failure: str = ""
    summary: Summary = attrs.field(factory=Summary)
    shrinking: int = 0


def check(
    scenario: Scenario,
    seeds: Iterable[int],
    worker: Worker = default_worker,
    *,
    value: Value | None = None,
    setup: Setup | None = None,
    processes: int | None = None,
    keep_going: bool = False,
    on_progress: Callable[[Progress], object] = lambda _: None,
    most_runs: int = MOST_RUNS,
    seed_timeout: float = SEED_TIMEOUT,
) -> Summary:
    """Simulate every seed; stop at the first that breaks an invariant and report it.

    Other processes get the seeds one by one and import the program by its name. A program that
    cannot be imported, such as a function inside a test, runs in this process. A script that
    calls this puts its own work under ``if __name__ == "__main__":``, as multiprocessing needs.

    Args:
        scenario: what all seeds share.
        seeds: the seeds, from 0 on, such as ``range(1000)``, or ``[17]`` for one.
        worker: the program that every member runs.
        value: called with a partition and a number that no other record has; returns the value of
            a record, as bytes. By default a value is the number, in digits. It must return the
            same for the same arguments. The record's header ``kgroup-number`` has the number.
        setup: called before each run, also while a failure is shrunk, and once before the first,
            to try it out; what it returns is `Process.store` in that run. A context manager is
            entered, and left after the run.
        processes: how many run at a time; by default one for each processor. 1 is this process.
        keep_going: run all seeds before failing.
        on_progress: called in this process after every seed, and while a failure is shrunk.
        most_runs: the most smaller plans of a failure to try.
        seed_timeout: real seconds that one simulation may take.

    Returns:
        The figures of all seeds, added up.

    Raises:
        SimulationError: an invariant was broken; the error has the shortest schedule of faults
            that still breaks it, a timeline of the group, and the command that runs it again.
        SimulationHangError: a simulation did not end in that time, or one of its programs did not
            end at all; the error has the seed, the virtual time and the lines that hang.
        ConfigError: an argument is not allowed.
        ArgumentError: ``worker``, ``value`` or ``setup`` cannot be called as it would be.
        UsageError: no program ever got a generation, or none processed a record, so that nothing
            was tested; or ``value`` returned no bytes; or ``worker`` is no async function; or this
            release of trio lacks internals that are needed; or the other processes cannot start.
        Exception: what ``value`` or ``setup`` raised, with a note that says in which seed, or that
            they were tried out.
        RuntimeError: called from inside ``trio.run``; or a seed fails in another process and not
            in this one, because the program depends on more than its seed.

    ``KeyboardInterrupt`` ends all processes at once.
    """
    __tracebackhide__ = True
    workload = Workload.of(worker, value, setup)
    bounds.optional(PROCESSES).check("processes", processes)
    _RUNS.check("most_runs", most_runs)
    TIMEOUTS.check("seed_timeout", seed_timeout)
    seeds = _checked(seeds)
    _try_out(workload, scenario, seed_timeout)
    progress = Progress(of=len(seeds) if isinstance(seeds, Sized) else None)
    failed: list[Result] = []
    found = results(
        scenario,
        seeds,
        workload,
        processes=processes,
        keep_going=keep_going,
        seed_timeout=seed_timeout,
    )
    try:
        for result in found:
            if result.is_failure:
                failed.append(result)
            progress = attrs.evolve(
                progress,
                seeds=progress.seeds + 1,
                failed=tuple(one.seed for one in failed),
                failure=min(failed, key=lambda one: one.position).failure if failed else "",
                summary=progress.summary + result.summary,
            )
            on_progress(progress)
    finally:
        found.close()
    if not failed:
        _refuse_idleness(progress)
        return progress.summary
    failed.sort(key=lambda one: one.position)
    progress = attrs.evolve(progress, failed=tuple(one.seed for one in failed))
    if failed[0].hang is not None:
        raise failed[0].hang

    def run(plan: Plan) -> Outcome:
        return simulate(plan, workload, seed_timeout=seed_timeout)

    raise _failure(scenario, workload, failed[0], progress, on_progress, most_runs, run)


def _try_out(workload: Workload, scenario: Scenario, seed_timeout: float) -> None:
    """Call ``value`` and ``setup`` once: a mistake in them is shown as it is, before any seed."""
    __tracebackhide__ = True
    try:
        run_virtual(0, workload.try_out, scenario.topics, seed_timeout=seed_timeout)
    except Exception as error:
        error.__traceback__ = own_frames(error.__traceback__)
        raise


def _checked(seeds: Any) -> Iterable[int]:
    """The seeds; those whose number is not known in advance are checked one by one."""
    __tracebackhide__ = True
    if not isinstance(seeds, Iterable):
        raise ConfigError("seeds", seeds, _SEEDS)
    if not isinstance(seeds, Sized):
        return _integers(seeds)
    try:
        allowed = len(seeds) <= MOST_SEEDS
    except OverflowError:
        # A range longer than the largest index.
        allowed = False
    if not allowed:
        raise ConfigError("seeds", seeds, f"there may be at most {MOST_SEEDS} seeds")
    return tuple(_integers(seeds))


def _integers(seeds: Iterable[object]) -> Iterator[int]:
    __tracebackhide__ = True
    for seed in seeds:
        if not isinstance(seed, int) or isinstance(seed, bool):
            raise ConfigError("seeds", seed, _SEEDS)
        SEED.check("seeds", seed)
        yield seed


def _refuse_idleness(progress: Progress) -> None:
    """Refuse a campaign that breaks no invariant because it has tested nothing."""
    __tracebackhide__ = True
    summary = progress.summary
    if not progress.seeds:
        raise ConfigError("seeds", (), "without a seed nothing is tested")
    failure = f" A program ended with: {summary.failure}." if summary.failure else ""
    if not summary.generations:
        raise UsageError(
            f"no group became stable in any of {progress.seeds} simulations, so that nothing was"
            f" tested.{failure} A program has to open a ConsumerGroup with process.config() and"
            " run until it is closed, and the simulated time has to be long enough for that"
        )
    if summary.skipped and not summary.processed:
        raise UsageError(
            f"no record was processed in any of {progress.seeds} simulations, although"
            f" {summary.skipped} could be read, so that nothing was tested.{failure} A program has"
            " to subscribe to the topics of the simulation, as process.config() does, start before"
            " their last records, and report what it has processed by process.processed(message)"
        )


def _failure(
    scenario: Scenario,
    worker: Worker,
    first: Result,
    progress: Progress,
    on_progress: Callable[[Progress], object],
    most_runs: int,
    run: Callable[[Plan], Outcome],
) -> SimulationError:
    """Run the first failing seed again in this process and shrink its plan."""
    __tracebackhide__ = True
    try:
        outcome = run(generate_plan(scenario, first.seed))
    except Exception as error:
        error.add_note(f"This happened in the simulation of seed {first.seed}.")
        if str(error) not in first.failure:
            error.add_note(f"In another process it failed before:\n{first.failure}")
        error.__traceback__ = own_frames(error.__traceback__)
        raise
    if not outcome.violations:
        raise RuntimeError(
            f"seed {first.seed} fails in another process and not in this one: the program depends"
            " on more than its seed (real time, the random module, the order of a set). In the"
            f" other process:\n{first.failure}"
        )

    def run_smaller(plan: Plan) -> Outcome:
        nonlocal progress
        result = run(plan)
        progress = attrs.evolve(progress, shrinking=progress.shrinking + 1)
        on_progress(progress)
        return result

    shrunk = shrink(outcome, run_smaller, most_runs=most_runs)
    return SimulationError(
        Failure(
            scenario=scenario,
            worker=worker,
            outcome=outcome,
            shrunk=shrunk,
            failed_seeds=progress.failed,
        )
    )
