"""Processes of a benchmark: started with this checkout on their path, and always ended."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final, final

ROOT: Final = Path(__file__).resolve().parents[1]
LEAN: Final = ROOT / "tests" / "lean"
PATIENCE: Final = 60.0
"""Seconds after which a process that was asked to end is killed."""
SHOWN: Final = 400
"""Characters of the beginning and of the end of a failed process's errors that are reported."""


def environment() -> dict[str, str]:
    """The environment of a process that imports this checkout's benchmarks.

    Tools for tests are hidden, as users' installations have none: kio imports hypothesis where that
    is installed, which would cost kgroup's processes 15 MiB and some tenths of a second.
    """
    paths = [str(LEAN), str(ROOT), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


@final
class FailedError(Exception):
    """A client failed; the message says how."""


def reason(error: Exception) -> str:
    """Why a client failed: its own words, or what else went wrong."""
    return str(error) if isinstance(error, FailedError) else f"{type(error).__name__}: {error}"


@final
class Process:
    """A process whose errors are kept in a file."""

    def __init__(self, name: str, command: Sequence[str], errors: Path) -> None:
        self.name = name
        self._errors = errors
        with errors.open("ab") as file:
            self._process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment()
            )

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def check(self) -> None:
        """Make sure that it runs.

        Raises:
            FailedError: it has ended by itself.
        """
        if (status := self._process.poll()) is not None:
            raise self.failure(f"ended by itself with {status}")

    def failure(self, what: str) -> FailedError:
        """An error about this process, with its own errors."""
        text = self._errors.read_text(errors="replace").strip()
        if len(text) > 2 * SHOWN:
            text = f"{text[:SHOWN]} ... {text[-SHOWN:]}"
        return FailedError(f"{self.name} {what}" + (f": {text}" if text else ""))

    def end(self, patience: float = PATIENCE) -> None:
        """Terminate it, and wait until it has ended.

        Raises:
            FailedError: it did not end in time, and was killed.
        """
        self.signal(signal.SIGTERM)
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.failure(f"did not end within {patience:g} s of SIGTERM") from None

    def kill_unless_ended(self, patience: float) -> None:
        """Wait until it has ended, and kill it if it does not."""
        try:
            self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()

    def result(self, patience: float) -> None:
        """Wait until it has ended by itself.

        Raises:
            FailedError: it failed, or was killed because it took too long.
        """
        try:
            status = self._process.wait(patience)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.failure(f"did not end within {patience:g} s") from None
        if status:
            raise self.failure(f"ended with {status}")

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal, if it still runs."""
        if self._process.poll() is None:
            self._process.send_signal(number)

    def kill(self) -> None:
        """Kill it, frozen or not, and wait for that."""
        self.signal(signal.SIGKILL)
        self._process.wait()
