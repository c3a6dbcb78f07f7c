"""One broker for several processes, usually pytest-xdist's workers.

The first process starts the broker, the last ends it. They share a file with its address and the
number of its users, which they read and write under a lock file. Whether the broker still runs
follows from its `FolderLock`, which the kernel releases when a process dies, not from that file.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from kgroup.testing.java import KafkaUnavailableError
from kgroup.testing.kafka import STOP_TIMEOUT, KafkaAddress, RealKafka
from kgroup.testing.reaper import FolderLock
from kgroup.testing.state_file import write_state


@contextmanager
def shared_kafka(
    folder: Path, make: Callable[[Path], RealKafka] | None = None
) -> Iterator[KafkaAddress]:
    """Use the broker of a folder: the first user starts it, the last one ends it.

    Args:
        folder: an existing folder, the same for all users.
        make: makes the broker, given its log path; ``RealKafka`` by default.

    Raises:
        KafkaUnavailableError: it could not be started; later callers get the same error at once.
    """
    lock, state = FileLock(folder / "real-kafka.lock"), folder / "real-kafka.json"
    with lock:
        known = json.loads(state.read_text()) if state.exists() else {}
        if "unavailable" in known:
            raise KafkaUnavailableError(known["unavailable"])
        folder_lock = FolderLock.join(Path(known["folder"])) if known else None
        if folder_lock is None:
            try:
                folder_lock, known = _start(folder, make)
            except KafkaUnavailableError as error:
                write_state(state, {"unavailable": str(error)})
                raise
        known["users"] += 1
        write_state(state, known)
    try:
        yield KafkaAddress(known["bootstrap_servers"], known["settings"], Path(known["log"]))
    finally:
        with lock:
            known = json.loads(state.read_text())
            known["users"] -= 1
            write_state(state, known)
            folder_lock.release()
        # A killed user is still counted; then no process waits, and the broker ends anyway.
        if known["users"] == 0:
            folder_lock.wait_until_reaped(STOP_TIMEOUT)


def _start(
    folder: Path, make: Callable[[Path], RealKafka] | None
) -> tuple[FolderLock, dict[str, Any]]:
    log_path = folder / "real-kafka.log"
    kafka = RealKafka(log_path=log_path) if make is None else make(log_path)
    kafka.start()
    known = {
        "folder": str(kafka.folder),
        "bootstrap_servers": kafka.bootstrap_servers,
        "settings": dict(kafka.settings),
        "log": str(kafka.log_path),
        "users": 0,
    }
    folder_lock = FolderLock.join(kafka.folder)
    if folder_lock is None:
        raise RuntimeError(
            f"{kafka.folder} is gone although the process that started the broker has locked it"
        )
    kafka.hand_over()
    return folder_lock, known
