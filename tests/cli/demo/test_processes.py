"""The demo's processes end with it, whatever state they are in."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import trio

from kgroup.cli.demo import DemoError, processes
from kgroup.cli.demo.processes import OVERDUE_STATUS, Child, Children, children
from tests.stopped import wait_until_none_is_stopped, wait_until_one_is_stopped

BROKER = "kgroup.cli.demo.broker"
DEAF = "import time, signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
FREEZES = f"""
import sys, trio
from pathlib import Path
from kgroup.cli.demo.processes import children

async def main():
    async with children(Path(sys.argv[1])) as started:
        child = await started.start("broker", {BROKER!r})
        await child.first_line()
        await child.freeze()
        print(child.pid, flush=True)
        await trio.sleep_forever()

trio.run(main)
"""


async def until_stopped(child: Child, *, stopped: bool) -> None:
    """Wait until the kernel shows the process as stopped."""
    wait = wait_until_one_is_stopped if stopped else wait_until_none_is_stopped
    await trio.to_thread.run_sync(wait, [psutil.Process(child.pid)], abandon_on_cancel=True)


async def test_a_process_ends_by_itself(tmp_path: Path) -> None:
    """At the end of the block its standard input is closed, and it exits with status 0."""
    async with children(tmp_path) as started:
        child = await started.start("broker", BROKER)
        assert (await child.first_line()).startswith("127.0.0.1:")
        assert child.status is None
    assert child.status == 0


async def test_a_frozen_process_is_woken_to_end_by_itself(tmp_path: Path) -> None:
    """A frozen process does not run; at the end of the block it is woken first."""
    async with children(tmp_path) as started:
        child = await started.start("broker", BROKER)
        await child.first_line()
        await child.freeze()
        await until_stopped(child, stopped=True)
        await child.wake()
        await until_stopped(child, stopped=False)
        await child.freeze()
    assert child.status == 0


async def test_cancellation_ends_the_processes(tmp_path: Path) -> None:
    """Cancellation from outside leaves no process."""
    left = []
    with trio.CancelScope() as scope:
        async with children(tmp_path) as started:
            child = await started.start("broker", BROKER)
            await child.first_line()
            scope.cancel()
            try:
                await trio.sleep_forever()
            finally:
                left.append(child)
    assert [child.status for child in left] == [0]


async def test_a_process_that_does_not_end_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process that does not exit within EXIT_TIMEOUT is killed."""
    monkeypatch.setattr(processes, "EXIT_TIMEOUT", 0.1)
    (tmp_path / "deaf.py").write_text(DEAF)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    async with children(tmp_path) as started:
        child = await started.start("deaf", "deaf")
    assert child.status == -signal.SIGKILL


async def test_the_error_names_a_process_that_ends_too_early(tmp_path: Path) -> None:
    """The error contains the module's own error."""
    async with children(tmp_path) as started:
        child = await started.start("nobody", "kgroup.cli.demo.nobody")
        with pytest.raises(DemoError, match="nobody ended before it was ready: .*No module named"):
            await child.first_line()


async def test_a_process_that_is_gone_cannot_be_frozen(tmp_path: Path) -> None:
    """The error names the process."""
    child = await Children(tmp_path).start("gone", "kgroup.cli.demo.nobody")
    await child.wait()
    with pytest.raises(DemoError, match="gone could not be frozen"):
        await child.freeze()
    await child.close()


def test_a_frozen_process_ends_when_its_starter_is_killed(tmp_path: Path) -> None:
    """If its starter gets SIGKILL the frozen process is woken, and exits by itself."""
    command = [sys.executable, "-c", FREEZES, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as starter:
        assert starter.stdout is not None
        frozen = psutil.Process(int(starter.stdout.readline()))
        starter.kill()
    _, left = psutil.wait_procs([frozen], timeout=200)
    assert left == []


HELD = """
import sys, time
from kgroup.cli.demo.processes import exit_after_parent
exit_after_parent({seconds})
print("held", flush=True)
{then}
"""
BLOCKS = "os.set_blocking(0, False); time.sleep(600)"
ENDS = "select.select([0], [], [])"


def ended(seconds: float, then: str) -> tuple[int, str]:
    """The exit status and the standard error of a process whose standard input was closed."""
    program = "import os, select\n" + HELD.format(seconds=seconds, then=then)
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "held\n"
        _, errors = process.communicate()
    return process.returncode, errors


def test_a_process_that_still_runs_is_ended() -> None:
    """After the grace time it ends with a status and a message of its own."""
    status, errors = ended(0.1, BLOCKS)
    assert status == OVERDUE_STATUS
    assert "the process did not exit within 0.1 s" in errors


def test_a_process_that_ends_is_left_alone() -> None:
    """A process that ends in time has its own status, and nothing waits for the grace time."""
    assert ended(600, ENDS) == (0, "")
