"""Ends the processes of a folder when the last process that uses the folder is gone.

A broker for tests, or a database, runs from a folder of its own and must not outlive the tests,
even if they are killed. Every process that uses it holds a shared lock on ``FOLDER/guard``, a
`FolderLock`. A separate process, the reaper, waits for the exclusive lock. The kernel releases the
locks of a process that dies, after SIGKILL too, so no count of users has to be kept. Once the
reaper has the lock it terminates every process whose command line has an argument that ends with
``kgroup.folder=FOLDER``, kills those that do not end, and removes the folder.

The reaper is this file, run by its path as ``python reaper.py FOLDER``, so that it imports nothing
of kgroup. For Linux and macOS (``flock``).
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import BinaryIO, Final, final

import psutil

GRACE: Final = 20.0
"""Seconds between terminating a process and killing it."""
left_running: Final[list[subprocess.Popen[bytes]]] = []
"""Processes that outlive the object that started them; without a reference Python would warn."""


@final
class FolderLock:
    """A shared lock on a folder's ``guard`` file, held until ``release``.

    A child of ``fork`` without ``exec`` shares the lock.
    """

    def __init__(
        self, file: BinaryIO, folder: Path, reaper: subprocess.Popen[bytes] | None = None
    ) -> None:
        self._file = file
        self._reaper = reaper
        self.folder = folder

    @classmethod
    def create(cls, folder: Path, log: Path) -> FolderLock:
        """Take the first lock of a new folder and start its reaper, whose errors go to ``log``.

        If that fails, the folder is removed.
        """
        file = (folder / "guard").open("xb")  # the lock lasts as long as the file is open
        try:
            fcntl.flock(file, fcntl.LOCK_SH)
            with log.open("ab") as errors:
                reaper = subprocess.Popen(
                    # -P keeps the folder of the script, with modules of any name, off sys.path.
                    [sys.executable, "-P", __file__, str(folder)],
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.DEVNULL,
                    stderr=errors,
                    # A session of its own: Ctrl-C in a terminal must not end it too early.
                    start_new_session=True,
                )
        except BaseException:
            file.close()
            shutil.rmtree(folder, ignore_errors=True)
            raise
        return cls(file, folder, reaper)

    @classmethod
    def join(cls, folder: Path) -> FolderLock | None:
        """Take another lock; None if the folder is gone or its reaper is at work."""
        try:
            file = (folder / "guard").open("rb")  # the lock lasts as long as the file is open
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
        """Release the lock; after the last one the reaper begins. Idempotent."""
        self._file.close()
        if self._reaper is not None and self._reaper.poll() is None:
            left_running.append(self._reaper)

    def wait_until_reaped(self, timeout: float) -> bool:
        """Wait until the reaper has finished; returns whether it has.

        A reaper that has ended and left the folder is warned of.
        """
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            status = None if self._reaper is None else self._reaper.poll()
            if not self.folder.exists() and (self._reaper is None or status is not None):
                return True
            if status is not None:
                warnings.warn(
                    f"the folder {self.folder} is left, and maybe processes that use it: the"
                    f" process {sys.executable} {Path(__file__).name} that removes it ended with"
                    f" status {status}; its errors are in the log",
                    RuntimeWarning,
                    stacklevel=2,
                )
                return False
            time.sleep(0.01)
        return False


def marker(folder: Path) -> str:
    """The end of an argument that marks a process as one of the folder's."""
    return f"kgroup.folder={folder}"


def java_option(folder: Path) -> str:
    """The marker as an option of Java."""
    return f"-D{marker(folder)}"


def processes_of(folder: Path) -> list[psutil.Process]:
    """The running processes that carry the folder's marker."""
    marked = []
    for process in psutil.process_iter():
        try:
            if any(argument.endswith(marker(folder)) for argument in process.cmdline()):
                marked.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return marked


def running(process: psutil.Process) -> bool:
    """Whether a process has not ended yet; a zombie has ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def end(processes: list[psutil.Process], grace: float = GRACE) -> None:
    """Terminate processes, and kill those that still run after ``grace`` seconds."""
    for process in filter(running, processes):
        process.terminate()
    deadline = time.monotonic() + grace
    while any(map(running, processes)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for process in filter(running, processes):
        process.kill()


def reap(folder: Path, grace: float = GRACE) -> None:
    """Wait until no process holds the folder's lock, end its processes, and remove it."""
    with (folder / "guard").open("rb") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        end(processes_of(folder), grace)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    reap(Path(sys.argv[1]))
