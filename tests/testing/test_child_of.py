"""``child_of`` runs a command as if it were run directly, and ends it when its caller ends."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from kgroup.testing import child_of

PATIENCE = 120.0
STUBBORN = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN)"
SLEEPS = """
import os, sys, time
{}
with open(sys.argv[1], "w") as pid_file:
    pid_file.write(str(os.getpid()))
time.sleep(600)
"""
USES = """
import sys
from kgroup.testing import child_of
child_of.run([sys.executable, "-c", sys.argv[1], sys.argv[2]], stdin="", timeout=600)
"""


def test_streams_and_status_are_passed_on() -> None:
    """Standard input, output and error, and the exit status, are the command's own."""
    program = "import sys; print(input()); print('no', file=sys.stderr); sys.exit(3)"
    ended = child_of.run([sys.executable, "-c", program], stdin="yes\n", timeout=PATIENCE)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("yes\n", "no\n", 3)
    assert ended.args == [sys.executable, "-c", program]


def test_a_signal_that_ended_it_is_in_the_status() -> None:
    """The status is 128 plus the signal's number, as in a shell."""
    program = "import os; os.kill(os.getpid(), 9)"
    ended = child_of.run([sys.executable, "-c", program], stdin="", timeout=PATIENCE)
    assert ended.returncode == 128 + 9


def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    """A command that ignores SIGTERM is killed after the grace period; the error names it."""
    pid_file = tmp_path / "pid"
    pid_file.touch()
    command = [sys.executable, "-c", SLEEPS.format(STUBBORN), str(pid_file)]
    timeout = 1.0
    while not (pid := pid_file.read_text()):  # on a busy machine Python may start too late
        with pytest.raises(subprocess.TimeoutExpired) as raised:
            child_of.run(command, stdin="", timeout=timeout, grace=0.1)
        assert raised.value.cmd == command
        timeout *= 2
    assert not psutil.pid_exists(int(pid))


def test_it_ends_with_a_caller_that_was_killed(tmp_path: Path) -> None:
    """The pipe ends the command even if its caller is killed."""
    pid_file = tmp_path / "pid"
    os.mkfifo(pid_file)
    user = subprocess.Popen([sys.executable, "-c", USES, SLEEPS.format(""), str(pid_file)])
    command = psutil.Process(int(pid_file.read_text()))
    processes = psutil.Process(user.pid).children(recursive=True)
    assert command in processes
    user.kill()
    user.wait()
    _, left = psutil.wait_procs(processes, timeout=PATIENCE)
    assert left == []
