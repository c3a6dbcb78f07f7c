"""The folder that one session or one cluster of Spark lives in, and the environment it starts in.

All that Spark writes goes below the folder; a reaper ends every JVM that was started from it and
removes it when the process that made it is gone, however it went.
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
"""The folder that kgroup lies in: executors import it from there too."""
INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
"""Names of folders that Python looks into by itself."""
REAPED_WITHIN: Final = 30.0
"""Seconds that the reaper gets."""
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
    """A folder for Spark, guarded until ``close``.

    Attributes:
        folder: where it is.
        java: the Java that is used.
        log_path: the log of all that runs from it, at log4j's level ``level``; it outlives the
            folder if it was given.

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
        log4j = conf / "log4j2.properties"
        log4j.write_text(LOG4J.format(level=level, path=self.log_path))
        options = [java_option(self.folder), f"-Dlog4j2.configurationFile={log4j.as_uri()}"]
        archive = archive_of(self.java)
        if archive.exists():
            # Spark's launcher has another class path, and its JVM would say so to the program.
            quiet = ("-Xlog:disable", "-Xlog:all=error:stderr")
            options += [f"-XX:SharedArchiveFile={archive}", *quiet]
        # An archive goes with a class path of jars alone; of this folder the JVM needs but the file
        # that is named to it.
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
        """End what still runs from the folder, and remove it; again is nothing."""
        self._lock.release()
        self._lock.wait_until_reaped(REAPED_WITHIN)

    def environment(self) -> dict[str, str]:
        """What has to be set where a JVM of Spark is started."""
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
    """Set environment variables of this process, and set them back in the end."""
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
