"""``kgroup simulate``: its options, its progress bar, its exit status.

What is simulated, and what a failure says, is ``kgroup.testing.simulation``'s.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, final

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
from rich.progress import Progress as Bar

from kgroup import bounds
from kgroup.broker.broker_settings import BROKERS
from kgroup.cli.options import FilePath, Number, Whole, imported
from kgroup.errors import ConfigError, UsageError, shown
from kgroup.testing.simulation import (
    Outcome,
    Progress,
    Scenario,
    SimulationError,
    Summary,
    Worker,
    check,
    coverage,
    generate_plan,
)
from kgroup.testing.simulation import simulate as run
from kgroup.testing.simulation import worker as default_worker
from kgroup.testing.simulation.campaign import MOST_SEEDS, PROCESSES
from kgroup.testing.simulation.plan import (
    FAULTS_PER_HOUR,
    LONGEST_HOURS,
    MEMBERS,
    MOST_MEMBER_HOURS,
)
from kgroup.types import INT64_MAX

__all__ = ["simulate"]

_MINUTE: Final = 60.0
_HOUR: Final = 3600.0
_DEFAULT: Final = Scenario()
_SEED: Final = bounds.whole(0, INT64_MAX)
_HOURS: Final = bounds.number(0, LONGEST_HOURS)
_MINUTES: Final = bounds.number(0, LONGEST_HOURS * 60)
_INTERRUPTED: Final = 130


def _seeds(context: click.Context, option: click.Parameter, value: str) -> range:
    del context, option
    first, colon, end = value.partition(":")
    try:
        start = _SEED.read(first)
        stop = _SEED.read(end) if colon else start + 1
    except ValueError as error:
        raise click.BadParameter(
            f"{shown(value)} is neither a seed, such as 17, nor FIRST:END; of each, {error}"
        ) from error
    if stop <= start:
        raise click.BadParameter(
            f"{shown(value)} has no seed in it: END is the first that is not run"
        )
    if stop - start > MOST_SEEDS:
        raise click.BadParameter(
            f"{shown(value)} has {stop - start} seeds; at most {MOST_SEEDS} can be run at once"
        )
    return range(start, stop)


def _worker(context: click.Context, option: click.Parameter, value: str | None) -> Worker:
    del context, option
    if value is None:
        return default_worker
    worker: Worker = imported(value, "MODULE:FUNCTION")
    if not callable(worker):
        raise click.BadParameter(f"{shown(value)} is {shown(worker)}, not an async function")
    return worker


@click.command()
@click.option(
    "--seeds",
    metavar="FIRST:END",
    default="0:100",
    show_default=True,
    callback=_seeds,
    help=f"Which seeds, at most {MOST_SEEDS}, END not among them; a single number is one seed,"
    " which is reported in full.",
)
@click.option(
    "--members",
    type=Whole(MEMBERS),
    default=_DEFAULT.members,
    show_default=True,
    help="How many programs.",
)
@click.option(
    "--brokers",
    type=Whole(BROKERS),
    default=_DEFAULT.brokers,
    show_default=True,
    help="How many brokers.",
)
@click.option(
    "--hours",
    type=Number(_HOURS),
    help="Virtual hours of each seed. All members together have at most"
    f" {MOST_MEMBER_HOURS} hours.",
)
@click.option(
    "--minutes",
    type=Number(_MINUTES),
    help="Virtual minutes of each, beside its hours.  [default: 10, without --hours]",
)
@click.option(
    "--faults-per-hour",
    metavar="N",
    type=Number(FAULTS_PER_HOUR),
    default=_DEFAULT.faults_per_hour,
    show_default=True,
    help="How many faults, on average.",
)
@click.option(
    "--processes",
    metavar="N",
    type=Whole(PROCESSES),
    help="How many seeds at a time.  [default: one for each processor]",
)
@click.option(
    "--worker",
    metavar="MODULE:FUNCTION",
    callback=_worker,
    help="The program of every member: an async function of a kgroup.testing.simulation.Process.",
)
@click.option(
    "--trace",
    type=FilePath(dir_okay=False, path_type=Path),
    help="Write there what was seen, a line for each fact; for a single seed.",
)
@click.option("--keep-going", is_flag=True, help="Run all seeds, and report a failure only then.")
def simulate(
    seeds: range,
    members: int,
    brokers: int,
    hours: float | None,
    minutes: float | None,
    faults_per_hour: float,
    processes: int | None,
    worker: Worker,
    trace: Path | None,
    *,
    keep_going: bool,
) -> None:
    """Run a group in virtual time, by seeds.

    Each seed draws how the group is set, how the network is, and what goes wrong when; the same
    seed is the same simulation. Every invariant of the group is checked. The exit status is 1
    where one is broken; then the least that breaks it is shown, and how it is run again.

    Of several seeds it is also shown which faults met which states of a member and of the
    coordinator, and which never did.
    """
    duration = _DEFAULT.duration
    if hours is not None or minutes is not None:
        duration = (hours or 0.0) * _HOUR + (minutes or 0.0) * _MINUTE
    try:
        scenario = Scenario(
            members=members, brokers=brokers, duration=duration, faults_per_hour=faults_per_hour
        )
    except ConfigError as error:
        raise click.UsageError(str(error)) from error
    if trace is not None and len(seeds) > 1:
        raise click.UsageError("--trace is for a single seed, such as --seeds 17")
    display = _Display(Console(highlight=False))
    began = time.monotonic()
    try:
        if trace is not None:
            _write(trace, run(generate_plan(scenario, seeds[0]), worker))
        with display:
            summary = check(
                scenario,
                seeds,
                worker,
                processes=processes,
                keep_going=keep_going,
                on_progress=display.show,
            )
    except SimulationError as failure:
        click.echo(str(failure))
        if keep_going and len(seeds) > 1:
            click.echo("\n".join(coverage.lines(display.summary.visits)))
        sys.exit(1)
    except UsageError as error:
        raise click.ClickException(str(error)) from error
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(_INTERRUPTED)
    for line in _account(seeds, summary, time.monotonic() - began):
        click.echo(line)


def _write(path: Path, outcome: Outcome) -> None:
    try:
        path.write_text(outcome.trace, encoding="utf-8")
    except OSError as error:
        raise click.ClickException(f"cannot write {path}: {error.strerror}") from error


def _account(seeds: range, summary: Summary, seconds: float) -> list[str]:
    """What is said of seeds that are well."""
    which = f"seed {seeds[0]}" if len(seeds) == 1 else f"seeds {seeds[0]} to {seeds[-1]}"
    hours = summary.seconds / _HOUR
    programs = f"{summary.starts} starts, {summary.crashes} crashes, {summary.failures} failures"
    if summary.failure:
        programs += f" ({summary.failure})"
    records = (
        f"{summary.written} written, {summary.processed} processed,"
        f" {summary.repeated} processed again"
    )
    table = (
        ("virtual time", f"{hours:.2f} h, in {seconds:.1f} s ({_rate(hours, seconds)} h/s)"),
        ("programs", programs),
        ("generations", f"{summary.generations}"),
        ("faults", ", ".join(f"{name} {number}" for name, number in summary.faults) or "none"),
        ("coordinators", f"asked {summary.requests} times"),
        ("records", records),
    )
    account = [f"{which}: every invariant holds", *(f"  {name:<14}{said}" for name, said in table)]
    if len(seeds) > 1:
        account += coverage.lines(summary.visits)
    return account


def _rate(number: float, seconds: float) -> str:
    return f"{number / seconds:.2g}" if seconds else "-"


@final
class _Display:
    """A bar in a terminal; elsewhere nothing. What it shows is gone when it ends."""

    def __init__(self, console: Console) -> None:
        self._bar = Bar(
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
        self._began = self._now()
        self.summary = Summary()
        """Of all seeds that were run so far."""

    def __enter__(self) -> _Display:
        self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bar.stop()

    def show(self, progress: Progress) -> None:
        """Show how far it is."""
        self.summary = progress.summary
        seconds = self._now() - self._began
        failed = f", {len(progress.failed)} failed" if progress.failed else ""
        fields: dict[str, Any] = {
            "speed": f"{_rate(progress.seeds, seconds)} seeds/s,"
            f" {_rate(progress.summary.seconds / _HOUR, seconds)} virtual h/s{failed}"
        }
        if progress.shrinking:
            fields["description"] = f"shrinking (plan {progress.shrinking})"
        self._bar.update(self._task, completed=progress.seeds, total=progress.of, **fields)
