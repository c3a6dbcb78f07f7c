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
from kgroup.cli.demo.audit_report import AuditReport
from kgroup.cli.demo.director import DRIVERS, WORKERS, DemoPlan
from kgroup.cli.demo.display import Display, print_account
from kgroup.cli.demo.run import perform
from kgroup.cli.demo.text import MOST_LINES, lines_of, own_sources
from kgroup.cli.options import FilePath, Whole, servers

_SIGNALLED: Final = 128
"""What shells add to a signal's number to make an exit status of it."""


@click.command()
@click.option(
    "--file",
    "files",
    type=FilePath(exists=True, dir_okay=False, path_type=Path),
    multiple=True,
    help="A text file to take the lines from; can be given again. Python's own modules if none is.",
)
@click.option(
    "--lines",
    "number",
    type=Whole(bounds.whole(1000, MOST_LINES)),
    default=50_000,
    show_default=True,
    help="How many lines; the files are read again from the top if they have fewer.",
)
@click.option(
    "--bootstrap-servers",
    metavar="HOST:PORT,...",
    callback=servers,
    help="Another cluster than the demo's own; what the demo makes there it removes again.",
)
@click.option(
    "--workers",
    type=Whole(bounds.whole(2, 50)),
    help="How many workers begin.  [default: 3; of Spark drivers 2]",
)
@click.option(
    "--partitions",
    type=Whole(bounds.whole(1, 200)),
    default=6,
    show_default=True,
    help="How many partitions the topic begins with.",
)
@click.option(
    "--spark",
    is_flag=True,
    help="The workers are Spark drivers; needs kgroup's extras kafka and spark, and Java.",
)
@click.option("--json", "as_json", is_flag=True, help="End with the account as one line of JSON.")
def demo(
    files: Sequence[Path],
    number: int,
    bootstrap_servers: str | None,
    workers: int | None,
    partitions: int,
    *,
    spark: bool,
    as_json: bool,
) -> None:
    """Show a group at work, and account for every line.

    Workers count the words of real text while one is added, one stopped, one killed, one frozen
    and woken, and partitions are added (not with Spark). The exit status is 1 where the account is
    wrong.
    """
    if spark:
        look_for_spark()
    fewest = 2 if spark else 3
    if workers is not None and workers < fewest:
        raise click.BadParameter(f"it takes {fewest} or more", param_hint="--workers")
    try:
        lines = lines_of(files or own_sources(), number)
    except (OSError, ValueError) as error:
        raise click.ClickException(f"{error}; name text files with --file") from error
    plan = DemoPlan(
        lines=lines,
        workers=workers or fewest,
        partitions=partitions,
        bootstrap_servers=bootstrap_servers,
        crew=DRIVERS if spark else WORKERS,
    )
    console = Console(highlight=False)
    folder = Path(tempfile.mkdtemp(prefix="kgroup-demo-"))
    keep = False
    try:
        account = trio.run(partial(_perform, plan, folder, console))
        keep = bool(account.faults)
    finally:
        if not keep:
            shutil.rmtree(folder, ignore_errors=True)
    print_account(console, account)
    if keep:
        console.print(f"What the workers wrote is in {folder}", soft_wrap=True)
    if as_json:
        click.echo(json.dumps(attrs.asdict(account)))
    if account.faults:
        sys.exit(1)


def look_for_spark() -> None:
    """Refuse now what drivers would only find out later.

    Raises:
        ClickException: PySpark, or Java for it, or what else drivers need is not there.
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


async def _perform(plan: DemoPlan, folder: Path, console: Console) -> AuditReport:
    """Perform until the end or a signal, which ends everything first."""
    received: list[int] = []
    account: AuditReport | None = None
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM, signal.SIGHUP) as signals:
        async with trio.open_nursery() as nursery:

            async def end_at_signal() -> None:
                async for number in signals:
                    received.append(number)
                    console.print(f"{signal.Signals(number).name}: ending all processes")
                    nursery.cancel_scope.cancel()

            nursery.start_soon(end_at_signal)
            with Display(console) as display:
                account = await perform(plan, folder, display)
            nursery.cancel_scope.cancel()
    if account is None:
        sys.exit(_SIGNALLED + received[0])
    return account
