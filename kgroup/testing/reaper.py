"""A process that ends a broker when the last process that uses it is gone, however it went.

Run by path, as ``python reaper.py FOLDER``, with nothing of kgroup loaded. Every user of the
broker holds a shared lock on ``FOLDER/guard``; the reaper waits for the exclusive one. The kernel
drops the lock of a process that dies, by SIGKILL too, so no count has to be kept. Then whatever
still runs with ``kgroup.folder=FOLDER`` at the end of an argument is terminated, killed if it does
not end, and the folder is removed.
"""

from __future__ import annotations

import fcntl
import shutil
import sys
import time
from pathlib import Path
from typing import Final

import psutil

GRACE: Final = 20.0
"""Seconds between asking a process to end and killing it."""


def name_of(folder: Path) -> str:
    """The setting by which the processes of a folder are known, at the end of an argument."""
    return f"kgroup.folder={folder}"


def mark(folder: Path) -> str:
    """The setting as an argument of Java."""
    return f"-D{name_of(folder)}"


def processes_of(folder: Path) -> list[psutil.Process]:
    """The live processes that carry the folder's mark."""
    marked = []
    for process in psutil.process_iter():
        try:
            if any(argument.endswith(name_of(folder)) for argument in process.cmdline()):
                marked.append(process)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            continue
    return marked


def running(process: psutil.Process) -> bool:
    """Whether it has not ended yet; one that its parent has not waited for has ended."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def end(processes: list[psutil.Process], grace: float = GRACE) -> None:
    """Terminate processes, and kill those that are still there after the grace."""
    for process in filter(running, processes):
        process.terminate()
    deadline = time.monotonic() + grace
    while any(map(running, processes)) and time.monotonic() < deadline:
        time.sleep(0.02)
    for process in filter(running, processes):
        process.kill()


def reap(folder: Path, grace: float = GRACE) -> None:
    """Wait until nobody holds the folder's guard, then end its processes and remove it."""
    with (folder / "guard").open("rb") as guard:
        fcntl.flock(guard, fcntl.LOCK_EX)
        end(processes_of(folder), grace)
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    reap(Path(sys.argv[1]))
