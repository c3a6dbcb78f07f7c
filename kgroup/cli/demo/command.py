"""``kgroup demo``: its options, its signals, its exit status."""

from __future__ import annotations

import json
import shutil
import signal
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Final

import attrs
import click
import trio
from rich.console import Console

from kgroup import bounds
from kgroup.cli.demo.audit import AuditReport
from kgroup.cli.demo.director import DRIVERS, WORKERS, DemoPlan
from kgroup.cli.demo.display import Display, print_report
from kgroup.cli.demo.run import run_demo
from kgroup.cli.demo.text import MOST_LINES, lines_of, own_sources
from kgroup.cli.options import FilePath, WholeNumber, cluster_of, config_option, servers
from kgroup.cli.timeline.command import refuse_to_overwrite, stories_of, write
from kgroup.errors import short_repr

_SIGNALLED: Final = 128
"""Shells report a process that a signal ended as this plus the signal's number."""


def _page_of(_ctx: click.Context, _param: click.Parameter, value: Path | None) -> Path | None:
    """The page, unless its place is a mistake: the demo would end, and write nothing."""
    if value is not None:
        refuse_to_overwrite(value, option="--timeline")
        if not value.parent.is_dir():
            raise click.UsageError(
                f"--timeline {short_repr(str(value))} is in a folder that does not exist"
            )
    return value


@click.command()
@click.option(
    "--file",
    "files",
    type=FilePath(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="A text file that supplies the lines; may be given more than once."
    "  [default: the modules of Python's standard library]",
)
@click.option(
    "--lines",
    "number",
    type=WholeNumber(bounds.whole(1000, MOST_LINES)),
    default=50_000,
    show_default=True,
    help="How many lines to produce; the files are repeated if they have fewer.",
)
@click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT,...",
    callback=servers,
    help="An existing cluster to use instead of the demo's own broker; the demo deletes its topic"
    " and group afterwards.  [default: bootstrap.servers in the file of --config, if there is one]",
)
@config_option
@click.option(
    "--workers",
    type=WholeNumber(bounds.whole(2, 50)),
    help="How many workers start at the beginning.  [default: 3; 2 with --spark]",
)
@click.option(
    "--partitions",
    type=WholeNumber(bounds.whole(1, 200)),
    default=6,
    show_default=True,
    help="How many partitions the topic is created with.",
)
@click.option(
    "--spark",
    is_flag=True,
    help="Run Spark drivers as workers; needs kgroup's extras kafka and spark, and Java.",
)
@click.option(
    "--timeline",
    "page",
    type=FilePath(dir_okay=False, path_type=Path),
    callback=_page_of,
    help="Draw what the workers did, as `kgroup timeline --out` does.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the account as JSON in the last line.")
def demo(
    files: Sequence[Path],
    number: int,
    bootstrap_servers: str | None,
    config_file: str | None,
    workers: int | None,
    partitions: int,
    page: Path | None,
    *,
    spark: bool,
    as_json: bool,
) -> None:
    """Show a group at work, and account for every line.

    Workers count the words of real text. Meanwhile a worker is added, one is stopped, one is
    killed, one is frozen and woken, and partitions are added (not with --spark). At the end every
    line is accounted for: the exit status is 1 if the account is wrong.
    """
    bootstrap_servers = cluster_of(bootstrap_servers, config_file)
    if config_file is not None and (spark or bootstrap_servers is None):
        wrong = (
            "cannot be used with --spark"
            if spark
            else "needs --bootstrap-servers, or bootstrap.servers in its file"
        )
        raise click.UsageError(f"--config {wrong}")
    if spark:
        require_spark()
    fewest = 2 if spark else 3
    if workers is not None and workers < fewest:
        raise click.BadParameter(f"the demo needs at least {fewest}", param_hint="--workers")
    try:
        lines = lines_of(files or own_sources(), number)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{error}; name text files with --file") from error
    plan = DemoPlan(
        lines=lines,
        workers=workers or fewest,
        partitions=partitions,
        bootstrap_servers=bootstrap_servers,
        config_file=None if config_file is None else str(Path(config_file).resolve()),
        worker_kind=DRIVERS if spark else WORKERS,
    )
    console = Console(highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="kgroup-demo-"))
    keep = False
    unwritten: click.ClickException | None = None
    try:
        report = trio.run(partial(_run_until_signal, plan, folder, console))
        keep = bool(report.faults)
        unwritten = _draw(folder, page)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    print_report(console, report)
    if keep:
        click.echo(f"What the workers wrote is in {folder}")
    if as_json:
        click.echo(json.dumps(attrs.asdict(report)))
    if unwritten is not None:
        raise unwritten
    if report.faults:
        sys.exit(1)


def _draw(folder: Path, page: Path | None) -> click.ClickException | None:
    """Draw what the workers did, if a page is wanted.

    Returns:
        Why it could not be done: an error for after the account, which it must not suppress.
    """
    if page is None:
        return None
    files = [file for file in sorted(folder.glob("*.events")) if file.stat().st_size]
    try:
        if not files:
            raise click.ClickException("no worker has written an event")
        write(stories_of(files), page)
    except click.ClickException as error:
        return click.ClickException(f"{page} was not written: {error.message}")
    return None


def require_spark() -> None:
    """Check that Spark drivers can run, before anything is started.

    Raises:
        ClickException: PySpark, Java or a package that drivers need is missing.
    """
    try:
        import pyarrow  # noqa: F401

        from kgroup.testing.spark.java import SparkUnavailableError, find_java
    except ImportError as error:
        raise click.ClickException(f"{error}; pip install 'kgroup[kafka,spark]'") from error
    try:
        find_java()
    except SparkUnavailableError as error:
        raise click.ClickException(str(error)) from error


async def _run_until_signal(plan: DemoPlan, folder: Path, console: Console) -> AuditReport:
    """Run the demo; at a signal, end all its processes and exit with the signal's status."""
    received: list[int] = []
    report: AuditReport | None = None
    unwritten: BaseException | None = None
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:

            async def end_at_signal() -> None:
                async for number in signals:
                    received.append(number)
                    console.print(f"{signal.Signals(number).name}: ending all processes")
                    nursery.cancel_scope.cancel()

            nursery.start_soon(end_at_signal)
            try:
                with Display(console) as display:
                    report = await run_demo(plan, folder, display)
            except (OSError, SystemExit) as error:
                # The output is full or closed (rich makes a SystemExit of that). The command line
                # ends without a traceback then, but not if the nursery puts it into a group.
                unwritten = error
            nursery.cancel_scope.cancel()
    if unwritten is not None:
        raise unwritten
    if report is None:
        sys.exit(_SIGNALLED + received[0])
    return report
