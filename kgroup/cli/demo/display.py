"""The demo's output: the stages, which worker owns which partitions, and the audit's report.

In a terminal a live table shows the workers; elsewhere only plain lines are printed.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, final

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kgroup.cli.demo.audit import AuditReport
from kgroup.cli.demo.progress import Condition, Worker, WorkerProgress

_REFRESH: Final = 0.1
_STYLES: Final = {
    Condition.RUNNING: "green",
    Condition.FROZEN: "cyan",
    Condition.STOPPED: "dim",
    Condition.KILLED: "red",
    Condition.FAILED: "bold red",
}


@final
class Display:
    """A context manager; the live table disappears at its end, the printed lines stay."""

    def __init__(self, console: Console, clock: Callable[[], float] = time.monotonic) -> None:
        self._console = console
        self._clock = clock
        self._live = Live(console=console, auto_refresh=False) if console.file.isatty() else None
        self._began = clock()
        self._next = self._began

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def say(self, text: str) -> None:
        """Print one line, with the seconds since the demo began."""
        # rich must not wrap it: one message is one line, also in a file.
        seconds = self._clock() - self._began
        self._console.print(Text(f"{seconds:5.1f} s  {text}"), soft_wrap=True)

    def show(self, progress: WorkerProgress, sent: int, lines: int, partitions: int) -> None:
        """Update the live table, at most every `_REFRESH` seconds."""
        now = self._clock()
        if self._live is None or now < self._next:
            return
        self._next = now + _REFRESH
        bars = Table.grid(padding=(0, 1))
        bars.add_row("lines sent", ProgressBar(lines, sent, width=40), f"{sent} of {lines}")
        done = len(progress.done)
        bars.add_row("processed", ProgressBar(lines, done, width=40), f"{done}")
        self._live.update(Group(_workers(progress, partitions), bars), refresh=True)


def _workers(progress: WorkerProgress, partitions: int) -> Table:
    table = Table("worker", "process", "generation", "lines", "partitions", expand=False)
    for worker in progress.workers:
        table.add_row(
            worker.name,
            Text(worker.condition.value, _STYLES[worker.condition]),
            str(worker.generation) if worker.generation >= 0 else "",
            str(worker.processed),
            _owned(worker, partitions),
        )
    return table


def _owned(worker: Worker, partitions: int) -> Text:
    gone = worker.condition not in (Condition.RUNNING, Condition.FROZEN)
    owned = () if gone else worker.owned
    return Text(" ").join(
        Text(f"{number:>2}" if number in owned else " ." if not gone else "  ")
        for number in range(partitions)
    )


def print_report(console: Console, report: AuditReport) -> None:
    """Print the audit's figures, and whether everything is as it must be."""
    table = Table.grid(padding=(0, 2))
    for label, figure in (
        ("lines produced", report.produced),
        ("lines processed", report.processed),
        ("lines lost", report.lost),
        ("processed twice in planned rebalances", report.repeated_planned),
        ("processed twice after the kill", report.repeated_after_kill),
        ("  of what the killed worker had not committed", report.uncommitted_at_kill),
        ("processed twice by the frozen worker", report.repeated_by_frozen),
        ("  processed by it after it woke", report.processed_after_waking),
        ("  of these beyond the batches it held", report.beyond_batch_in_hand),
        ("commits refused as stale", report.stale_commits_refused),
        ("stale commits accepted", report.stale_commits_accepted),
        ("lines out of order", report.out_of_order),
        ("generations", report.generations),
        ("words", report.words),
        ("word counts equal to a direct count", "yes" if report.counts_equal else "NO"),
        ("seconds", report.seconds),
    ):
        table.add_row(label, str(figure))
    console.print()
    console.print(table)
    console.print()
    faults = report.faults
    if not faults:
        console.print("The account is right.", style="bold green")
    for fault in faults:
        console.print(Text(f"WRONG: {fault}", "bold red"), soft_wrap=True)
