"""One broker for several processes: the first starts it, the last ends it.

They are pytest-xdist's workers, as a rule. What they know of each other is in a file of a folder
that they share, read and written under a lock file. Whether the broker still lives is not read
from there but from its guard, which a process that dies lets go of.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock

from kgroup.testing.guard import Guard
from kgroup.testing.java import KafkaUnavailableError
from kgroup.testing.kafka import STOP_TIMEOUT, KafkaAddress, RealKafka


@contextmanager
def shared_kafka(
    folder: Path, make: Callable[[Path], RealKafka] | None = None
) -> Iterator[KafkaAddress]:
    """Use the broker of a folder, started by the first that comes and ended by the last to go.

    Args:
        folder: an existing one that all its users name.
        make: makes the broker with the log path given; ``RealKafka`` by default.

    Raises:
        KafkaUnavailableError: it cannot be started; later callers get the same error at once.
    """
    lock, state = FileLock(folder / "real-kafka.lock"), folder / "real-kafka.json"
    with lock:
        known = json.loads(state.read_text()) if state.exists() else {}
        if "unavailable" in known:
            raise KafkaUnavailableError(known["unavailable"])
        guard = Guard.join(Path(known["folder"])) if known else None
        if guard is None:
            try:
                guard, known = _start(folder, make)
            except KafkaUnavailableError as error:
                state.write_text(json.dumps({"unavailable": str(error)}))
                raise
        known["users"] += 1
        state.write_text(json.dumps(known))
    try:
        yield KafkaAddress(known["bootstrap_servers"], known["settings"], Path(known["log"]))
    finally:
        with lock:
            known = json.loads(state.read_text())
            known["users"] -= 1
            state.write_text(json.dumps(known))
            guard.release()
        # A user that was killed is still counted: then nobody waits, and it ends all the same.
        if known["users"] == 0:
            guard.wait_until_reaped(STOP_TIMEOUT)


def _start(folder: Path, make: Callable[[Path], RealKafka] | None) -> tuple[Guard, dict[str, Any]]:
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
    guard = Guard.join(kafka.folder)
    if guard is None:
        raise RuntimeError(f"{kafka.folder} is gone although the one who started it holds it")
    kafka.hand_over()
    return guard, known
