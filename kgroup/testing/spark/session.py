"""A SparkSession for tests: small, quiet, and ended together with its JVM.

INVARIANT: a process has one session at a time, and only one that this module created.
"""

from __future__ import annotations

import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from kgroup.errors import UsageError
from kgroup.testing.spark.home import HOST, SparkHome, variables_set
from kgroup.testing.spark.java import QUICK_JAVA, Java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
else:  # so that typing.get_type_hints finds the names without the imports
    SparkSession = Any

SETTINGS: Final[Mapping[str, str]] = {
    "spark.driver.bindAddress": HOST,
    "spark.driver.host": HOST,
    "spark.driver.memory": "768m",
    "spark.executor.memory": "512m",
    "spark.driver.extraJavaOptions": QUICK_JAVA,
    "spark.executor.extraJavaOptions": QUICK_JAVA,
    "spark.sql.session.timeZone": "UTC",
    # The default of 200 costs a small shuffle seconds.
    "spark.sql.shuffle.partitions": "2",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""The settings of a session for tests that differ from Spark's defaults."""
STOP_TIMEOUT: Final = 120.0
"""Seconds that the JVM may take to end."""


@contextmanager
def session(
    master: str = "local[2]",
    *,
    settings: Mapping[str, object] | None = None,
    jars: Sequence[Path] = (),
    app_name: str = "kgroup",
    java: Java | None = None,
    log_path: Path | None = None,
) -> Iterator[SparkSession]:
    """A session in a JVM of its own, which ends with the ``with`` block or with this process.

    Args:
        master: ``local[n]``, or the URL of a cluster.
        settings: settings of Spark, which replace those of ``SETTINGS``.
        jars: jars for driver and executors.
        app_name: the application's name in Spark.
        java: the Java that runs it; ``find_java()`` by default.
        log_path: the file for Spark's warnings; by default one that is removed with the session.

    Raises:
        SparkUnavailableError: there is no PySpark, or no Java for it.
        UsageError: this process already has a session.
    """
    with interrupts_restored(), SparkHome(log_path=log_path, java=java) as home:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession

        # Spark would return the existing session, with its own jars and settings.
        if SparkContext._gateway is not None:  # noqa: SLF001 # no public name says so
            raise UsageError(
                "this process already has a SparkSession; stop it, or use another process"
            )
        builder = SparkSession.builder.master(master).appName(app_name)
        own: dict[str, object] = {"spark.sql.warehouse.dir": home.folder / "warehouse"}
        if jars:
            own["spark.jars"] = ",".join(map(str, jars))
        for name, value in {**SETTINGS, **own, **(settings or {})}.items():
            builder = builder.config(name, _setting(value))
        try:
            # The JVM keeps the environment with which it starts; this process need not keep it.
            with variables_set(home.environment()):
                spark = builder.getOrCreate()
            try:
                yield spark
            finally:
                spark.stop()
        finally:
            # The builder is shared: its options would apply to the next session too.
            SparkSession.builder._options.clear()  # noqa: SLF001
            _end_jvm(SparkContext)


@contextmanager
def interrupts_restored() -> Iterator[None]:
    """Restore the handler of SIGINT, which PySpark replaces by one that cancels jobs."""
    before = signal.getsignal(signal.SIGINT)
    try:
        yield
    finally:
        if threading.current_thread() is threading.main_thread():  # PySpark replaces it only there
            signal.signal(signal.SIGINT, before or signal.SIG_DFL)  # None: it was set in C


def _end_jvm(context: Any) -> None:
    """End the JVM, which PySpark would keep for the next session in this process."""
    gateway = context._gateway  # noqa: SLF001 # PySpark itself never ends it
    context._gateway = context._jvm = None  # noqa: SLF001
    if gateway is None:
        return
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM exits at the end of its standard input
    try:
        gateway.proc.wait(STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        gateway.proc.kill()
        gateway.proc.wait()


def _setting(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
