"""The lock on a folder, and the reaper that waits for it."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from kgroup.testing.reaper import FolderLock, end, java_option, processes_of, reap, running

READY = "import sys, time, signal; {}; print('ready', flush=True); time.sleep(600)"
STUBBORN = "signal.signal(signal.SIGTERM, signal.SIG_IGN)"

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    """Start processes that sleep and are marked with a folder; they are killed at the end."""
    started = []

    def begin(folder: Path, first: str = "pass") -> subprocess.Popen[str]:
        command = [sys.executable, "-c", READY.format(first), java_option(folder)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process

    yield begin
    for process in started:
        process.kill()
        process.communicate()


def test_reaps_when_the_last_lock_is_released(tmp_path: Path, start: Start) -> None:
    """Only the last release ends the processes and removes the folder."""
    folder = tmp_path / "folder"
    folder.mkdir()
    process = start(folder)
    first = FolderLock.create(folder, tmp_path / "log")
    second = FolderLock.join(folder)
    assert second is not None
    first.release()
    assert not first.wait_until_reaped(0.2)
    assert process.poll() is None
    second.release()
    assert first.wait_until_reaped(120)
    assert process.wait() == -signal.SIGTERM
    assert (tmp_path / "log").read_text() == ""
    assert FolderLock.join(folder) is None


def test_reaps_after_a_user_that_was_killed(tmp_path: Path, start: Start) -> None:
    """The lock of a killed process is released too."""
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "guard").touch()
    hold = f"import fcntl; f = open({str(folder / 'guard')!r}); fcntl.flock(f, fcntl.LOCK_SH)"
    user = start(tmp_path, hold)
    process = start(folder)
    user.kill()
    reap(folder)
    assert process.wait() == -signal.SIGTERM
    assert not folder.exists()


def test_a_folder_being_reaped_cannot_be_joined(tmp_path: Path) -> None:
    """A folder cannot be locked while its reaper cleans up, nor afterwards."""
    (tmp_path / "guard").touch()
    reaper = start_lock(tmp_path / "guard")
    assert FolderLock.join(tmp_path) is None
    reaper.kill()
    reaper.communicate()
    again = FolderLock.join(tmp_path)
    assert again is not None
    again.release()


def start_lock(path: Path) -> subprocess.Popen[str]:
    """A process that holds the exclusive lock on a file."""
    take = f"import fcntl; f = open({str(path)!r}); fcntl.flock(f, fcntl.LOCK_EX)"
    process = subprocess.Popen(
        [sys.executable, "-c", READY.format(take)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.readline()
    return process


def test_a_process_that_will_not_end_is_killed(tmp_path: Path, start: Start) -> None:
    """A process that ignores SIGTERM is killed after the grace period."""
    process = start(tmp_path, STUBBORN)
    end(processes_of(tmp_path), grace=0.2)
    assert process.wait() == -signal.SIGKILL


def test_only_marked_processes_are_found(tmp_path: Path, start: Start) -> None:
    """Processes of other folders are left alone, even if the names share a prefix."""
    mine = start(tmp_path / "a")
    start(tmp_path / "ab")
    assert [process.pid for process in processes_of(tmp_path / "a")] == [mine.pid]


def test_a_folder_without_a_reaper_is_removed(tmp_path: Path) -> None:
    """If the reaper cannot be started, because the log cannot be written, no folder is left."""
    folder = tmp_path / "folder"
    folder.mkdir()
    with pytest.raises(FileNotFoundError):
        FolderLock.create(folder, tmp_path / "nowhere" / "log")
    assert not folder.exists()


def test_a_reaper_that_has_failed_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot remove the folder any more: a warning names the folder, at once."""
    folder = tmp_path / "folder"
    folder.mkdir()
    monkeypatch.setattr("kgroup.testing.reaper.__file__", "/nowhere/reaper.py")
    lock = FolderLock.create(folder, tmp_path / "log")
    lock.release()
    with pytest.warns(RuntimeWarning, match=rf"{folder} is left.*status 2"):
        assert not lock.wait_until_reaped(600)
    assert "/nowhere/reaper.py" in (tmp_path / "log").read_text()


def test_a_zombie_has_ended(tmp_path: Path, start: Start) -> None:
    """Neither a zombie nor a process that is gone counts as running."""
    process = start(tmp_path)
    seen = psutil.Process(process.pid)
    assert running(seen)
    process.kill()
    while seen.status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)
    assert not running(seen)
    process.wait()
    assert not running(seen)
