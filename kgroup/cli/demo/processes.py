"""The demo's processes: started, stopped, killed, frozen and woken; none of them outlives the demo.

Three mechanisms make sure of that, also when the demo itself is killed:

- Each process exits when its standard input is closed, which the kernel does when the demo dies.
  Each leads a process group of its own, so that Ctrl-C in a terminal reaches only the demo.
- A frozen process would not notice. Therefore a shell freezes it, and wakes it as soon as the
  shell's *own* standard input is closed.
- A process that does not come to its end, because a library or a bug holds it, is ended by a
  thread of its own: `exit_after_parent`.

For Linux and macOS: it uses signals and process groups.
"""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, final

import trio

from kgroup.cli.demo import DemoError

EXIT_TIMEOUT: Final = 60.0
"""Seconds that a process may take to exit after its standard input was closed. On a busy machine
a Spark driver needs several for its JVM, and a worker that is killed counts as failed."""
OVERDUE_STATUS: Final = 70
"""The exit status of a process that `exit_after_parent` had to end (``EX_SOFTWARE``)."""
_DECORATION: Final = " |+-"
_FREEZE: Final = 'kill -s STOP -- "-$1" || exit; echo frozen; read -r _; kill -s CONT -- "-$1"'


@final
class Child:
    """A process of the demo.

    Attributes:
        name: its name in messages.
        pid: its process id.
    """

    def __init__(self, name: str, log: Path, process: trio.Process) -> None:
        self.name = name
        self.pid = process.pid
        self._log = log
        self._process = process
        self._freezer: trio.Process | None = None

    @property
    def status(self) -> int | None:
        """Its exit status, or minus the number of the signal that ended it; None while it runs."""
        return self._process.poll()

    async def first_line(self) -> str:
        """The first line of its standard output.

        Raises:
            DemoError: it ended before it wrote one.
        """
        line = await _first_line(self._process)
        if not line:
            raise DemoError(f"{self.name} ended before it was ready: {self.last_error_line()}")
        return line

    def terminate(self) -> None:
        """Send it SIGTERM."""
        self._process.terminate()

    def kill(self) -> None:
        """Send it SIGKILL."""
        self._process.kill()

    async def freeze(self) -> None:
        """Stop its process group (SIGSTOP) until `wake` or the end of the demo.

        Processes that it has started stop with it, such as the JVM of a Spark driver.

        Raises:
            DemoError: there is no such process any more.
        """
        self._freezer = await _open(["/bin/sh", "-c", _FREEZE, "sh", str(self.pid)])
        if not await _first_line(self._freezer):
            raise DemoError(f"{self.name} could not be frozen: its process has ended")

    async def wake(self) -> None:
        """Let it continue (SIGCONT), if it was frozen."""
        if self._freezer is not None:
            await _close_stdin(self._freezer)
            await self._freezer.wait()
            self._freezer = None

    async def wait(self) -> int:
        """Wait until it has ended, and return its exit status."""
        return await self._process.wait()

    async def close(self) -> None:
        """Close its standard input, so that it exits; kill it if it does not do so in time."""
        await self.wake()
        await _close_stdin(self._process)
        with trio.move_on_after(EXIT_TIMEOUT):
            await self._process.wait()
        if self.status is None:
            self._process.kill()
            await self._process.wait()

    def last_error_line(self) -> str:
        """The last line of its standard error, without a traceback's decoration."""
        lines = self._log.read_text(errors="replace").split("\n")
        texts = [text for line in lines if (text := line.strip(_DECORATION))]
        return texts[-1] if texts else "its standard error is empty"


@final
class Children:
    """Starts the processes of one demo; made by `children`."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._all: list[Child] = []

    async def start(self, name: str, module: str, *arguments: str) -> Child:
        """Run a Python module; its standard error goes to the file ``NAME.log``."""
        log = self._folder / f"{name}.log"
        # -P: no file in the folder where the demo was started may shadow a module.
        command = [sys.executable, "-P", "-m", module, *arguments]
        with log.open("wb") as errors:
            child = Child(name, log, await _open(command, errors.fileno()))
        self._all.append(child)
        return child

    async def close(self) -> None:
        """Close all of them, at the same time."""
        async with trio.open_nursery() as nursery:
            for child in self._all:
                nursery.start_soon(child.close)


@asynccontextmanager
async def children(folder: Path) -> AsyncIterator[Children]:
    """Start processes in the block; at its end, however it is left, all of them have ended.

    Cancellation: the processes get the same time to exit as otherwise.
    """
    started = Children(folder)
    try:
        yield started
    finally:
        # Its deadline is that of `Child.close`, which kills what does not exit in time.
        with trio.CancelScope(shield=True):
            await started.close()


async def _open(command: Sequence[str], errors: int | None = None) -> trio.Process:
    # Starting cannot be cancelled, so a process that runs is always in the list.
    return await trio.lowlevel.open_process(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        process_group=0,
    )


async def _close_stdin(process: trio.Process) -> None:
    assert process.stdin is not None  # every process here was given a pipe
    await process.stdin.aclose()


async def _first_line(process: trio.Process) -> str:
    assert process.stdout is not None  # every process here was given a pipe
    data = b""
    while not data.endswith(b"\n"):
        more = await process.stdout.receive_some()
        if not more:
            break
        data += more
    return data.decode().strip()


def exit_after_parent(seconds: float) -> None:
    """End this process so many seconds after its standard input was closed, if it still runs.

    A process of the demo calls this when it starts. Usually it exits by itself before that, for
    the same reason.
    """
    number = os.dup(sys.stdin.fileno())
    threading.Thread(
        target=_exit_at_end_of_input, args=(number, seconds), name="parent-watch", daemon=True
    ).start()


def _exit_at_end_of_input(number: int, seconds: float) -> None:
    while not _has_ended(number):
        select.select([number], [], [])
    time.sleep(seconds)
    sys.stderr.write(
        f"the process did not exit within {seconds:g} s after its standard input was closed, and"
        f" ends now with status {OVERDUE_STATUS}\n"
    )
    sys.stderr.flush()
    os._exit(OVERDUE_STATUS)


def _has_ended(number: int) -> bool:
    """Whether the other end was closed; trio has made the descriptor a non-blocking one."""
    try:
        readable, _, _ = select.select([number], [], [], 0)
        return bool(readable) and not os.read(number, 1)
    except BlockingIOError:
        return False
