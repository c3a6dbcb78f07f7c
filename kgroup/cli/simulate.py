"""``kgroup simulate``: its options, its progress bar and its exit status.

The simulation, and the text of a failure, are in ``kgroup.testing.simulation``.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, final

import click
import rich.progress
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn

from kgroup import bounds
from kgroup.broker.broker_settings import BROKERS
from kgroup.cli.options import FilePath, Number, WholeNumber, imported
from kgroup.errors import ArgumentError, ConfigError, UsageError, short_repr
from kgroup.testing import simulation
from kgroup.testing.simulation import (
    Progress,
    Scenario,
    SimulationError,
    Summary,
    Worker,
    check,
    coverage,
    default_worker,
    generate_plan,
)
from kgroup.testing.simulation.campaign import MOST_SEEDS, PROCESSES, SEED
from kgroup.testing.simulation.plan import (
    FAULTS_PER_HOUR,
    LONGEST_HOURS,
    MEMBERS,
    MOST_MEMBER_HOURS,
    WALL_CLOCK_ERROR,
)
from kgroup.testing.simulation.run import record
from kgroup.testing.simulation.schemes import SCHEMES, Scheme
from kgroup.testing.simulation.schemes.findings import find
from kgroup.testing.simulation.schemes.plans import comparable_plan
from kgroup.testing.simulation.watchdog import SEED_TIMEOUT, TIMEOUTS
from kgroup.testing.simulation.workload import Setup, Value, Workload

__all__ = ["simulate"]

_MINUTE: Final = 60.0
_HOUR: Final = 3600.0
_DEFAULT: Final = Scenario()
_HOURS: Final = bounds.number(0, LONGEST_HOURS)
_MINUTES: Final = bounds.number(0, LONGEST_HOURS * 60)
_INTERRUPTED: Final = 130
_MOST_LINES: Final = 10
"""At most this many lines of a failure are printed after an interruption."""
_OPTIONS_OF: Final = {"duration": ("--hours", "--minutes")}
"""The options of a setting of the scenario that has no option of its own name."""


def _seeds(context: click.Context, option: click.Parameter, value: str) -> range:
    del context, option
    first, colon, end = value.partition(":")
    try:
        start = SEED.read(first)
        stop = SEED.read(end) if colon else start + 1
    except ValueError as error:
        raise click.BadParameter(
            f"{short_repr(value)} is neither a seed, such as 17, nor FIRST:END; of each, {error}"
        ) from error
    if stop <= start:
        raise click.BadParameter(f"{short_repr(value)} contains no seed: END is not included")
    if stop - start > MOST_SEEDS:
        raise click.BadParameter(
            f"{short_repr(value)} has {stop - start} seeds; one command runs at most {MOST_SEEDS}"
        )
    return range(start, stop)


def _function(context: click.Context, option: click.Parameter, value: str | None) -> Any:
    del context
    if value is None:
        return None
    found = imported(value, "MODULE:FUNCTION")
    if not callable(found):
        kind = "an async function" if option.name == "worker" else "a function"
        raise click.BadParameter(f"{short_repr(value)} is {short_repr(found)}, not {kind}")
    return found


@click.command()
@click.option(
    "--seeds",
    metavar="FIRST:END",
    default="0:100",
    show_default=True,
    callback=_seeds,
    help=f"The seeds to run, at most {MOST_SEEDS}; END is not included. A single number runs one"
    " seed.",
)
@click.option(
    "--members",
    type=WholeNumber(MEMBERS),
    default=_DEFAULT.members,
    show_default=True,
    help="How many member programs.",
)
@click.option(
    "--brokers",
    type=WholeNumber(BROKERS),
    default=_DEFAULT.brokers,
    show_default=True,
    help="How many brokers.",
)
@click.option(
    "--hours",
    type=Number(_HOURS),
    help=f"Virtual hours of each seed; hours times members is at most {MOST_MEMBER_HOURS}.",
)
@click.option(
    "--minutes",
    type=Number(_MINUTES),
    help="Virtual minutes of each seed, added to --hours.  [default: 10, without --hours]",
)
@click.option(
    "--faults-per-hour",
    metavar="N",
    type=Number(FAULTS_PER_HOUR),
    default=_DEFAULT.faults_per_hour,
    show_default=True,
    help="The average number of faults in a virtual hour.",
)
@click.option(
    "--wall-clock-error",
    metavar="SECONDS",
    type=Number(WALL_CLOCK_ERROR),
    default=_DEFAULT.wall_clock_error,
    show_default=True,
    help="The most by which half of the members' wall clocks are wrong at first; these jump, too."
    " With 0 all clocks agree.",
)
@click.option(
    "--logins/--no-logins",
    default=None,
    help="Whether members log in, in a third of the plans, and users and rights are revoked. A"
    " --worker then needs Process.config or Process.security.  [default: not with --worker]",
)
@click.option(
    "--processes",
    metavar="N",
    type=WholeNumber(PROCESSES),
    help="How many seeds to run at a time.  [default: one for each processor]",
)
@click.option(
    "--seed-timeout",
    metavar="SECONDS",
    type=Number(TIMEOUTS),
    default=SEED_TIMEOUT,
    show_default=True,
    help="The real seconds that one simulation may take; one that takes longer hangs, and is"
    " reported with what it does.",
)
@click.option(
    "--worker",
    metavar="MODULE:FUNCTION",
    callback=_function,
    help="The program of each member: an async function that takes a"
    " kgroup.testing.simulation.Process, and reports each record that it has processed by"
    " process.processed(message).  [default: kgroup's own]",
)
@click.option(
    "--value",
    metavar="MODULE:FUNCTION",
    callback=_function,
    help="Makes the values of the records that --worker reads: called with a partition and a number"
    " that no other record has, it returns bytes.  [default: the number, in digits]",
)
@click.option(
    "--setup",
    metavar="MODULE:FUNCTION",
    callback=_function,
    help="Called before each simulation: what it returns, or the context manager that it returns"
    " gives, is process.store of --worker.  [default: a dict]",
)
@click.option(
    "--topic-deletions/--no-topic-deletions",
    "deletes_topics",
    default=_DEFAULT.deletes_topics,
    show_default=True,
    help="Whether topics are deleted and created again. A --worker with a store of offsets of its"
    " own cannot notice that.",
)
@click.option(
    "--exactly-once/--no-exactly-once",
    default=None,
    help="Whether it is a failure if a --worker processes a record again.  [default: if it keeps"
    " offsets of its own, with GroupConfig.starts]",
)
@click.option(
    "--scheme",
    type=click.Choice(tuple(SCHEMES)),
    help="Run one of Kafka's earlier group protocols, or the classic one, under plans that fit all"
    " of them, and report which invariants it breaks (docs/history.md); the exit status is 0. It"
    " runs all seeds in one process, with programs of its own and no logins.",
)
@click.option(
    "--trace",
    type=FilePath(dir_okay=False, path_type=Path),
    help="Write the trace of a single seed to this file, one line for each event.",
)
@click.option(
    "--keep-going", is_flag=True, help="Run all seeds before the first failure is reported."
)
def simulate(
    seeds: range,
    members: int,
    brokers: int,
    hours: float | None,
    minutes: float | None,
    faults_per_hour: float,
    wall_clock_error: float,
    processes: int | None,
    seed_timeout: float,
    worker: Worker | None,
    value: Value | None,
    setup: Setup | None,
    scheme: str | None,
    trace: Path | None,
    *,
    deletes_topics: bool,
    exactly_once: bool | None,
    logins: bool | None,
    keep_going: bool,
) -> None:
    """Check a group in virtual time, one simulation for each seed.

    A seed determines the group's settings, the network, and which faults happen when; the same
    seed always gives the same simulation. Every invariant of the group is checked. If one is
    broken the exit status is 1; then the smallest plan that breaks it is printed, and how to run it
    again.

    For several seeds a table shows which faults met which states of a member and of the
    coordinator, and which never did. A campaign that is interrupted says how far it came.
    """
    scenario = _scenario(
        hours,
        minutes,
        members=members,
        brokers=brokers,
        faults_per_hour=faults_per_hour,
        wall_clock_error=wall_clock_error,
        deletes_topics=deletes_topics,
        exactly_once=exactly_once,
        logins=worker is None if logins is None else logins,
    )
    if scheme is not None:
        _refuse_beside_scheme(
            {
                "--worker": worker is not None,
                "--value": value is not None,
                "--setup": setup is not None,
                "--logins": bool(logins),
                "--exactly-once": exactly_once is not None,
                "--processes": processes not in (None, 1),
                "--keep-going": keep_going,
            }
        )
    workload = _workload(worker, value, setup)
    if trace is not None and len(seeds) > 1:
        raise click.UsageError("--trace is for a single seed, such as --seeds 17")
    display = _Display(Console(highlight=False))
    if scheme is not None:
        _compare(SCHEMES[scheme], scenario, seeds, trace, display, seed_timeout)
        return
    began = time.monotonic()
    try:
        if trace is not None:
            plan = generate_plan(scenario, seeds[0])
            _write(trace, simulation.simulate(plan, workload, seed_timeout=seed_timeout).trace)
        with display:
            summary = check(
                scenario,
                seeds,
                workload,
                processes=processes,
                keep_going=keep_going,
                on_progress=display.show,
                seed_timeout=seed_timeout,
            )
    except SimulationError as failure:
        if keep_going and len(seeds) > 1:
            click.echo("\n".join(coverage.lines(display.summary.visits)))
        click.echo(str(failure))
        sys.exit(1)
    except UsageError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo(f"interrupted{display.so_far}", err=True)
        sys.exit(_INTERRUPTED)
    for line in _summary_lines(seeds, summary, time.monotonic() - began):
        click.echo(line)


def _scenario(hours: float | None, minutes: float | None, **others: Any) -> Scenario:
    duration = _DEFAULT.duration
    if hours is not None or minutes is not None:
        duration = (hours or 0.0) * _HOUR + (minutes or 0.0) * _MINUTE
    try:
        return Scenario(duration=duration, **others)
    except ConfigError as error:
        options = _OPTIONS_OF.get(error.field, (f"--{error.field.replace('_', '-')}",))
        total = f" ({error.value:g} s in all)" if error.field == "duration" else ""
        raise click.BadParameter(f"{error.allowed}{total}", param_hint=options) from error


def _workload(worker: Worker | None, value: Value | None, setup: Setup | None) -> Workload:
    if worker is not None:
        try:
            return Workload.of(worker, value, setup)
        except ArgumentError as error:
            raise click.UsageError(f"--{error}") from error
    for option, function in {"--value": value, "--setup": setup}.items():
        if function is not None:
            raise click.UsageError(
                f"{option} is for a program of your own, which --worker names: kgroup's own program"
                " reads no values and has a store of its own"
            )
    return Workload(default_worker)


def _refuse_beside_scheme(given: Mapping[str, bool]) -> None:
    for option in (name for name, is_given in given.items() if is_given):
        raise click.UsageError(
            "--scheme has programs of its own without logins, and runs all seeds in one process;"
            f" leave out {option}"
        )


def _compare(
    scheme: Scheme,
    scenario: Scenario,
    seeds: range,
    trace: Path | None,
    display: _Display,
    seed_timeout: float,
) -> None:
    """Run the seeds with a protocol; what it breaks is a finding, not a failure."""
    try:
        if trace is not None:
            plan = comparable_plan(scenario, seeds[0])
            entries = record(
                plan, scheme.worker, scheme.new_coordination, seed_timeout=seed_timeout
            )
            _write(trace, "".join(f"{entry}\n" for entry in entries))
        with display:
            found = find(
                scheme,
                seeds,
                scenario,
                lambda number: display.show(Progress(seeds=number, of=len(seeds))),
                seed_timeout=seed_timeout,
            )
    except UsageError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(_INTERRUPTED)
    for line in found.lines():
        click.echo(line)


def _write(path: Path, trace: str) -> None:
    try:
        path.write_text(trace, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from error


def _summary_lines(seeds: range, summary: Summary, seconds: float) -> list[str]:
    """The summary of seeds that broke no invariant."""
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    hours = summary.seconds / _HOUR
    programs = f"{summary.starts} starts, {summary.crashes} crashes, {summary.failures} failures"
    if summary.failure:
        programs += f" ({summary.failure})"
    records = (
        f"{summary.written} written, {summary.processed} processed,"
        f" {summary.repeated} processed again,"
        f" {summary.waited} waited for a member that learned of a rebalance later than others"
    )
    reasons = {
        "in aborted transactions": summary.aborted,
        "deleted with their topic": summary.deleted,
        "skipped": summary.skipped,
    }
    unprocessed = ", ".join(f"{number} {reason}" for reason, number in reasons.items() if number)
    table = (
        ("virtual time", f"{hours:.2f} h, in {seconds:.1f} s ({_rate(hours, seconds)} h/s)"),
        ("programs", programs),
        ("generations", f"{summary.generations}"),
        ("faults", ", ".join(f"{name} {number}" for name, number in summary.faults) or "none"),
        ("coordinators", f"{summary.requests} requests"),
        ("records", records),
        ("unprocessed", unprocessed or "none"),
    )
    table_of_states = coverage.lines(summary.visits) if len(seeds) > 1 else ()
    return [
        *table_of_states,
        f"{which}: every invariant holds",
        *(f"  {name:<14}{text}" for name, text in table),
    ]


def _rate(number: float, seconds: float) -> str:
    return f"{number / seconds:.2g}" if seconds else "-"


@final
class _Display:
    """A progress bar in a terminal, which disappears at its end; elsewhere a line each minute."""

    def __init__(self, console: Console) -> None:
        self._bar = rich.progress.Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TextColumn("{task.fields[speed]}"),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._bar.add_task("seeds", total=None, speed="")
        self._now: Callable[[], float] = time.monotonic
        self._began = self._told = self._now()
        self._progress = Progress()

    def __enter__(self) -> _Display:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    @property
    def summary(self) -> Summary:
        """The summary of the seeds that were run so far."""
        return self._progress.summary

    @property
    def so_far(self) -> str:
        """How many seeds were run, which of them failed, and what the first of these broke."""
        done = self._progress
        if not done.seeds:
            return ""
        failed = ", ".join(map(str, sorted(done.failed)))
        found = f"these fail: {failed}" if failed else "every invariant holds in these"
        for line in done.failure.splitlines()[:_MOST_LINES]:
            found += f"\n    {line}"
        return f" after {done.seeds} of {done.of} seeds; {found}"

    def show(self, progress: Progress) -> None:
        """Update the bar, or print a line."""
        self._progress = progress
        now = self._now()
        seconds = now - self._began
        failed = f", {len(progress.failed)} failed" if progress.failed else ""
        speed = (
            f"{_rate(progress.seeds, seconds)} seeds/s,"
            f" {_rate(progress.summary.seconds / _HOUR, seconds)} virtual h/s{failed}"
        )
        doing = f"shrinking (plan {progress.shrinking})" if progress.shrinking else "seeds"
        if not self._bar.disable:
            self._bar.update(
                self._task,
                description=doing,
                completed=progress.seeds,
                total=progress.of,
                speed=speed,
            )
        elif now - self._told >= _MINUTE:
            self._told = now
            click.echo(f"{doing} {progress.seeds}/{progress.of}, {speed}", err=True)
