"""The demo's output, in a terminal and elsewhere."""

from __future__ import annotations

import io
import re
from typing import cast, final

import attrs
import pytest
from rich.console import Console

from kgroup.cli.demo.audit import audit
from kgroup.cli.demo.display import Display, print_report
from kgroup.cli.demo.journal import JournalReader
from kgroup.cli.demo.processes import Child
from kgroup.cli.demo.progress import Condition, Worker, WorkerProgress
from tests.cli.demo.story import whole_story


@attrs.define
class FakeChild:
    """Replaces a process."""

    name: str


@final
class Terminal(io.StringIO):
    """A terminal whose screen is a string."""

    def isatty(self) -> bool:
        """It is a terminal."""
        return True


def watch() -> WorkerProgress:
    """One worker of each condition."""
    watched = WorkerProgress()
    for number, condition in enumerate(Condition):
        child = cast("Child", FakeChild(f"worker-{number}"))
        worker = Worker(child=child, journal=cast("JournalReader", None), condition=condition)
        worker.generation, worker.owned, worker.processed = 5, frozenset({number}), 7 * number
        watched.workers.append(worker)
    watched.workers[0].generation = -1
    return watched


def test_without_a_terminal_there_are_plain_lines() -> None:
    """One line for each message, with its time; no table, and no control characters."""
    output = io.StringIO()
    with Display(Console(file=output, width=40)) as display:
        display.show(watch(), 10, 20, 4)
        display.say("a line that is longer than the console is wide, [bold]as it is")
    assert re.fullmatch(r" +\d\.\d s  a line .* wide, \[bold\]as it is\n", output.getvalue())


def test_in_a_terminal_there_is_a_table(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table has each worker's condition, generation, lines and partitions."""
    monkeypatch.setenv("TERM", "xterm")
    times = iter([0.0, 0.0, 0.05, 0.2])
    terminal = Terminal()
    with Display(Console(file=terminal, width=80), times.__next__) as display:
        display.show(watch(), 10, 20, 4)
        display.show(watch(), 11, 20, 4)
        display.show(watch(), 12, 20, 4)
    shown = terminal.getvalue()
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown)
    assert re.search(r"worker-0 +│ running +│ +│ 0 +│  0  \.  \.  \.", text), text
    assert re.search(r"worker-1 +│ frozen +│ 5 +│ 7 +│  \.  1  \.  \.", text), text
    assert re.search(r"worker-2 +│ stopped +│ 5 +│ 14 +│ +│", text), text
    assert re.search(r"worker-3 +│ killed +│ 5 +│ 21 +│ +│", text), text
    assert "10 of 20" in text
    assert "11 of 20" not in text
    assert "12 of 20" in text


def test_the_report_is_printed_with_its_faults() -> None:
    """Each figure has a line; the faults are below."""
    output = io.StringIO()
    console = Console(file=output, width=80, highlight=False)
    account = audit(whole_story().evidence())
    print_report(console, account)
    assert re.search(r"lines lost +0 *\n", output.getvalue())
    assert "The account is right." in output.getvalue()
    print_report(console, attrs.evolve(account, lost=3, counts_equal=False))
    assert re.search(r"lines lost +3 *\n", output.getvalue())
    assert "WRONG: 3 lines were produced and never processed\n" in output.getvalue()
