"""docs/start_here.md: its programs and commands do what it says, against ``kgroup broker``."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from tests.conftest import ROOT

PAGE: Final = (ROOT / "docs" / "start_here.md").read_text(encoding="utf-8")
PRODUCE, WORKER = re.findall(r"^```python\n(.+?)^```$", PAGE, re.MULTILINE | re.DOTALL)
COMMANDS: Final = re.findall(r"^kgroup (groups .+)$", PAGE, re.MULTILINE)
BROKER: Final = ["broker", "--topic", "orders:4"]
ADDRESS: Final = "localhost:9092"
KGROUP: Final = [sys.executable, "-P", "-c", "from kgroup.cli import main; main()"]
READY: Final = re.compile(r"kgroup broker is ready at (\S+);")


@pytest.fixture
def servers() -> Iterator[str]:
    """The page's broker, on a port that is free, which does not wait for further members."""
    quick = ["--listen", "127.0.0.1:0", "--set", "group.initial.rebalance.delay.ms=0"]
    command = [*KGROUP, *BROKER, *quick]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = READY.match(process.stdout.readline())
            assert ready is not None
            yield ready[1]
        finally:
            process.terminate()


@contextmanager
def started(
    text: str, path: Path, servers: str, *arguments: str
) -> Iterator[subprocess.Popen[str]]:
    """Run a program of the page until the block is left; its output can be read line by line."""
    path.write_text(text.replace(ADDRESS, servers), encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, "-u", "-P", path, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as program:
        try:
            yield program
        finally:
            program.kill()


def read_until(program: subprocess.Popen[str], pattern: str) -> list[str]:
    """Read a program's lines up to one in which the pattern is found."""
    assert program.stdout is not None
    lines: list[str] = []
    for line in program.stdout:
        lines.append(line)
        if re.search(pattern, line):
            return lines
    pytest.fail(f"{pattern!r} is not in its output: {''.join(lines)}")


def printed(command: str, servers: str) -> str:
    """The output of a command of the page."""
    command = command.replace(ADDRESS, servers)
    return subprocess.run(
        [*KGROUP, *command.split()], capture_output=True, text=True, check=True
    ).stdout


def test_the_page_does_what_it_says(servers: str, tmp_path: Path) -> None:
    """Two workers share the topic, the commands show them, and one leaves at Ctrl-C."""
    assert f"kgroup {' '.join(BROKER)}" in PAGE
    with (
        started(PRODUCE, tmp_path / "produce.py", servers),
        started(WORKER, tmp_path / "one.py", servers, "one") as one,
    ):
        read_until(one, r"orders-\d: order \d+")
        with started(WORKER, tmp_path / "two.py", servers, "two") as two:
            read_until(one, r"generation 1: generation ended \(rebalance\)")
            read_until(two, r"generation 2: generation started")
            read_until(two, r"orders-\d: order \d+")
            described, lag = (printed(command, servers) for command in COMMANDS)
            assert re.search(r"\bone\b", described)
            assert re.search(r"\btwo\b", described)
            assert re.findall(r"^ *orders +(\d) ", lag, re.MULTILINE) == ["0", "1", "2", "3"]
            two.send_signal(signal.SIGINT)
            read_until(two, "has finished its work and left: SIGINT")
            assert two.wait() == 0
        read_until(one, r"generation 3: generation started")


def test_a_worker_that_raises_says_where(servers: str, tmp_path: Path) -> None:
    """Its traceback names the partition and the offsets, and it ends with status 1."""
    broken = WORKER.replace("        print(", "        raise ValueError(")
    with (
        started(PRODUCE, tmp_path / "produce.py", servers),
        started(broken, tmp_path / "one.py", servers, "one") as worker,
    ):
        said, _ = worker.communicate()
        assert worker.returncode == 1
        assert re.search(r"orders-\d.* offsets? \d+", said), said
