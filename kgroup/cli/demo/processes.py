"""The demo's processes: started, stopped, killed, frozen and woken; none of them outlives it.

Each is the leader of a process group of its own, so that Ctrl-C in a terminal reaches only the
conductor, and each ends when its standard input is closed, as happens also when the conductor is
killed. A frozen process would not notice; therefore freezing is done by a shell, which wakes the
process as soon as *its* standard input is closed.

For Linux and macOS: signals, process groups.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final, final

import trio

from kgroup.cli.demo.errors import DemoError

PATIENCE: Final = 8.0
"""Seconds that a process gets to end by itself."""
_DECORATION: Final = " |+-"
_FREEZE: Final = 'kill -s STOP -- "-$1" || exit; echo frozen; read -r _; kill -s CONT -- "-$1"'


@final
class Child:
    """A process of the demo.

    Attributes:
        name: what people call it.
        pid: its id.
    """

    def __init__(self, name: str, log: Path, process: trio.Process) -> None:
        self.name = name
        self.pid = process.pid
        self._log = log
        self._process = process
        self._freezer: trio.Process | None = None

    @property
    def status(self) -> int | None:
        """Its exit status, minus the signal's number where one ended it; None while it runs."""
        return self._process.poll()

    async def first_line(self) -> str:
        """The first line of its standard output.

        Raises:
            DemoError: it ended before it wrote one.
        """
        line = await _first_line(self._process)
        if not line:
            raise DemoError(f"{self.name} ended before it was ready: {self.last_words()}")
        return line

    def terminate(self) -> None:
        """Ask it to end (SIGTERM)."""
        self._process.terminate()

    def kill(self) -> None:
        """End it without a word (SIGKILL)."""
        self._process.kill()

    async def freeze(self) -> None:
        """Stop it where it stands (SIGSTOP), until `wake` or the end of the demo.

        What it has started in its process group stands still with it, as a driver's JVM does.

        Raises:
            DemoError: it is not there to be stopped.
        """
        self._freezer = await _open(["/bin/sh", "-c", _FREEZE, "sh", str(self.pid)])
        if not await _first_line(self._freezer):
            raise DemoError(f"{self.name} could not be stopped: is it still there?")

    async def wake(self) -> None:
        """Let it go on (SIGCONT), if it was frozen."""
        if self._freezer is not None:
            await _close_stdin(self._freezer)
            await self._freezer.wait()
            self._freezer = None

    async def wait(self) -> int:
        """Wait until it has ended; its exit status."""
        return await self._process.wait()

    async def close(self) -> None:
        """Let it end by itself, by the end of its standard input; kill it if it does not."""
        await self.wake()
        await _close_stdin(self._process)
        with trio.move_on_after(PATIENCE):
            await self._process.wait()
        if self.status is None:
            self._process.kill()
            await self._process.wait()

    def last_words(self) -> str:
        """The last line of what it said on standard error, without a traceback's decoration."""
        lines = self._log.read_text(errors="replace").split("\n")
        said = [text for line in lines if (text := line.strip(_DECORATION))]
        return said[-1] if said else "it said nothing"


@final
class Children:
    """Starts processes of one folder's demo; `children` makes one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._all: list[Child] = []

    async def start(self, name: str, module: str, *arguments: str) -> Child:
        """Start a module of Python; its standard error goes to a file of the process's name."""
        log = self._folder / f"{name}.log"
        # -P: no module of the folder that the demo is started in may take another's place.
        command = [sys.executable, "-P", "-m", module, *arguments]
        with log.open("wb") as errors:
            child = Child(name, log, await _open(command, errors.fileno()))
        self._all.append(child)
        return child

    async def close(self) -> None:
        """End all of them, at the same time."""
        async with trio.open_nursery() as nursery:
            for child in self._all:
                nursery.start_soon(child.close)


@asynccontextmanager
async def children(folder: Path) -> AsyncIterator[Children]:
    """A place for processes; when it is left, in whatever way, all of them have ended.

    Cancellation: they get the same time to end by themselves.
    """
    started = Children(folder)
    try:
        yield started
    finally:
        # Its deadline is that of `Child.close`, which kills.
        with trio.CancelScope(shield=True):
            await started.close()


async def _open(command: Sequence[str], errors: int | None = None) -> trio.Process:
    # Once it has begun it cannot be cancelled, so no process runs that nobody knows of.
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
