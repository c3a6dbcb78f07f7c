"""The hold that a process has on a broker's folder: while one has it, the broker lives.

``reaper`` is the other side. For Linux and macOS: ``flock``.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import BinaryIO, Final, final

from kgroup.testing import reaper

left_running: Final[list[subprocess.Popen[bytes]]] = []
"""Processes that outlive what started them; Python warns of one that is merely forgotten."""


@final
class Guard:
    """A shared lock on a folder's ``guard`` file, held until ``release``.

    A child of ``fork`` without ``exec`` shares the hold.
    """

    def __init__(
        self, file: BinaryIO, folder: Path, reaping: subprocess.Popen[bytes] | None = None
    ) -> None:
        self._file = file
        self._reaping = reaping
        self.folder = folder

    @classmethod
    def found(cls, folder: Path, log: Path) -> Guard:
        """Take the first hold on a new folder, and start its reaper, which complains to ``log``."""
        file = (folder / "guard").open("xb")  # the hold is the open file
        fcntl.flock(file, fcntl.LOCK_SH)
        with log.open("ab") as complaints:
            reaping = subprocess.Popen(
                # -P keeps the folder of the script, with modules of any name, off sys.path.
                [sys.executable, "-P", reaper.__file__, str(folder)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=complaints,
                # A session of its own: Ctrl-C in a terminal must not end it before its time.
                start_new_session=True,
            )
        return cls(file, folder, reaping)

    @classmethod
    def join(cls, folder: Path) -> Guard | None:
        """Take a further hold, or None where the folder is gone or its reaper is at work."""
        try:
            file = (folder / "guard").open("rb")  # the hold is the open file
        except FileNotFoundError:
            return None
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
            # The reaper may have removed the file between opening and locking it.
            if os.path.samestat(os.fstat(file.fileno()), (folder / "guard").stat()):
                return cls(file, folder)
        except (BlockingIOError, FileNotFoundError):
            pass
        file.close()
        return None

    def release(self) -> None:
        """Let go; the last one to do so sets off the reaper. Again is nothing."""
        self._file.close()
        if self._reaping is not None and self._reaping.poll() is None:
            left_running.append(self._reaping)

    def wait_until_reaped(self, timeout: float) -> bool:
        """Wait for the reaper to be through; whether it is."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            if not self.folder.exists() and not (self._reaping and self._reaping.poll() is None):
                return True
            time.sleep(0.01)
        return False
