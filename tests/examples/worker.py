"""Runs an example as a process: reads its output, sends it signals, waits for its end."""

from __future__ import annotations

import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Final, Protocol, Self, final

PAUSE: Final = 0.05
TIMEOUT: Final = 200.0
"""Seconds after which a wait fails; on an idle machine none takes 5."""


class Machine(Protocol):
    """A machine that runs examples, such as `Reader`."""

    @property
    def folder(self) -> Path:
        """The folder in which they run."""
        ...

    @property
    def python(self) -> Path:
        """The interpreter."""
        ...

    def variables(self) -> Mapping[str, str]:
        """The process environment."""
        ...


@final
class Worker:
    """A running example, as a context manager that leaves no process behind.

    Args:
        reader: where it runs.
        program: the example.
        arguments: its own.
        timeout: seconds after which what is waited for is missed.
    """

    def __init__(
        self, reader: Machine, program: str | Path, *arguments: str, timeout: float = TIMEOUT
    ) -> None:
        self.lines: list[str] = []
        self._timeout = timeout
        self._new: queue.Queue[str | None] = queue.Queue()
        self._process = subprocess.Popen(
            [reader.python, program, *arguments],
            cwd=reader.folder,
            env=reader.variables(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self._process.stdout is not None  # they are pipes
        assert self._process.stderr is not None
        self._streams = self._process.stdout, self._process.stderr
        self._errors: list[str] = []
        self._threads = [
            threading.Thread(target=read, args=(stream,))
            for read, stream in zip(
                (self._read_output, self._errors.extend), self._streams, strict=True
            )
        ]
        for thread in self._threads:
            thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._process.kill()
        self._process.wait()
        for thread, stream in zip(self._threads, self._streams, strict=True):
            thread.join()
            stream.close()
        if error is not None:
            error.add_note(self._output_so_far())

    def until(self, holds: Callable[[list[str]], object]) -> None:
        """Wait until a condition holds for the lines printed so far."""
        deadline = time.monotonic() + self._timeout
        while not holds(self.lines):
            try:
                line = self._new.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                raise AssertionError(f"missed after {self._timeout:g} s") from None
            assert line is not None, "it ended"
            self.lines.append(line)

    def catch_up(self) -> int:
        """Read everything printed so far, and return the number of lines."""
        with suppress(queue.Empty):
            while (line := self._new.get_nowait()) is not None:
                self.lines.append(line)
        return len(self.lines)

    @property
    def pid(self) -> int:
        """The process id."""
        return self._process.pid

    def send(self, number: signal.Signals) -> None:
        """Send a signal to the process."""
        self._process.send_signal(number)

    def ended(self) -> int:
        """Wait for the end of the process and of its output; return the exit status."""
        self._process.wait(self._timeout)
        while (line := self._new.get(timeout=self._timeout)) is not None:
            self.lines.append(line)
        return self._process.returncode

    @property
    def errors(self) -> str:
        """The standard error so far; complete after the end."""
        if self._process.poll() is not None:
            self._threads[1].join()
        return "".join(self._errors)

    def _output_so_far(self) -> str:
        output = "\n".join(self.lines[-20:])
        return f"of {len(self.lines)} lines the last are\n{output}\nstandard error:\n{self.errors}"

    def _read_output(self, stream: Iterable[str]) -> None:
        for line in stream:
            self._new.put(line.rstrip("\n"))
        self._new.put(None)


def wait_until(holds: Callable[[], object]) -> None:
    """Wait until a condition holds that no worker reports."""
    deadline = time.monotonic() + TIMEOUT
    while not holds():
        assert time.monotonic() < deadline, f"missed after {TIMEOUT:g} s"
        time.sleep(PAUSE)
