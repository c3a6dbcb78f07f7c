"""The folder and the environment of one Spark session or cluster.

All that Spark writes goes below the folder. When the process that created it has ended, however it
ended, a reaper kills every JVM that was started from the folder, and removes it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

from kgroup.testing.reaper import FolderLock, java_option
from kgroup.testing.spark.archive import archive_of
from kgroup.testing.spark.java import QUICK_JAVA, Java, find_java, write_home

HOST: Final = "127.0.0.1"
ROOT: Final = Path(__file__).parents[3]
"""The folder that contains kgroup: executors import it from there too."""
INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
"""Names of folders that are on Python's path by default."""
REAPED_WITHIN: Final = 120.0
"""Seconds that the reaper may take."""
LOG4J: Final = """\
rootLogger.level = {level}
rootLogger.appenderRef.log.ref = log
appender.log.type = File
appender.log.name = log
appender.log.fileName = {path}
appender.log.append = true
appender.log.layout.type = PatternLayout
appender.log.layout.pattern = %d{{HH:mm:ss.SSS}} %p %c{{1}}: %m%n%ex
"""


@final
class SparkHome:
    """A folder for Spark, locked until ``close``.

    Attributes:
        folder: its path.
        java: the Java that its processes run.
        log_path: the log of all its processes, at log4j's level ``level``. A log path that was
            given is not removed with the folder.

    Raises:
        SparkUnavailableError: there is no Java for this PySpark.
    """

    def __init__(
        self, *, log_path: Path | None = None, java: Java | None = None, level: str = "warn"
    ) -> None:
        self.java = find_java() if java is None else java
        self.folder = Path(tempfile.mkdtemp(prefix="kgroup-spark-"))
        self.log_path = self.folder / "spark.log" if log_path is None else log_path
        self._lock = FolderLock.create(self.folder, self.log_path)
        conf = self.folder / "conf"
        conf.mkdir()
        # Of two JVMs that create it at the same moment, one fails, and goes on without a folder.
        (self.folder / "local").mkdir()
        log4j = conf / "log4j2.properties"
        log4j.write_text(LOG4J.format(level=level, path=self.log_path))
        options = [java_option(self.folder), f"-Dlog4j2.configurationFile={log4j.as_uri()}"]
        archive = archive_of(self.java)
        if archive.exists():
            # The archive does not match the class path of Spark's launcher, whose JVM would print
            # a warning among the program's output.
            quiet = ("-Xlog:disable", "-Xlog:all=error:stderr")
            options += [f"-XX:SharedArchiveFile={archive}", *quiet]
        # An archive works only with a class path of jars. The JVM needs the folder `conf` only for
        # the log4j file, whose path it gets in an option.
        write_home(self.folder / "java", self.java, options, without=conf)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End the processes that still run from the folder, and remove it. Idempotent."""
        self._lock.release()
        self._lock.wait_until_reaped(REAPED_WITHIN)

    def environment(self) -> dict[str, str]:
        """The environment variables for a process that starts Spark's JVM."""
        path = [] if ROOT.name in INSTALLED else [str(ROOT)]
        path += filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
        return {
            "PYTHONPATH": os.pathsep.join(path),
            "JAVA_HOME": str(self.folder / "java"),
            "PYSPARK_PYTHON": sys.executable,
            "PYSPARK_DRIVER_PYTHON": sys.executable,
            "SPARK_LAUNCHER_OPTS": QUICK_JAVA,
            "SPARK_CONF_DIR": str(self.folder / "conf"),
            "SPARK_LOCAL_DIRS": str(self.folder / "local"),
            "SPARK_LOCAL_IP": HOST,
        }


@contextmanager
def variables_set(variables: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables of this process in a block, and restore them afterwards."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
