"""A Spark session: small, on the Java that was found, and ended without a trace."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator

import psutil
import pyarrow
import pytest
from pyspark.sql import SparkSession

from kgroup.errors import UsageError
from kgroup.testing.spark import session
from kgroup.testing.spark.session import interrupts_restored
from tests.child_processes import children_where


def doubled(batches: Iterable[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Each id doubled, by the executors, which do not have this module."""
    for batch in batches:
        values = [2 * value.as_py() for value in batch.column("id")]
        yield pyarrow.RecordBatch.from_pydict({"id": values})


def test_executors_run_python_with_arrow(spark: SparkSession) -> None:
    """A function of a test module runs in the executors on Arrow batches."""
    rows = spark.range(0, 4, 1, 2).mapInArrow(doubled, "id long").collect()
    assert sorted(row["id"] for row in rows) == [0, 2, 4, 6]


USER = """
import time
from kgroup.testing.spark import session
from kgroup.testing.spark.session import interrupts_restored
if __name__ == "__main__":
    with session("local[1]"):
        print("ready", flush=True)
        time.sleep(600)
"""


def test_the_jvm_ends_with_a_killed_user() -> None:
    """After SIGKILL to the session's process no JVM, reaper or folder is left."""
    with subprocess.Popen([sys.executable, "-c", USER], stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None
        assert user.stdout.readline() == "ready\n"
        parent = psutil.Process(user.pid)
        assert children_where(parent, lambda child: "java" in child.name(), recursive=True)
        started = parent.children(recursive=True)
        user.kill()
    _, left = psutil.wait_procs(started, timeout=200)
    assert left == []


def test_a_second_session_is_refused(spark: SparkSession) -> None:
    """A process has one session; a second one would really be the first."""
    with pytest.raises(UsageError, match="this process already has a SparkSession"), session():
        pass


def test_ctrl_c_is_handled_as_before() -> None:
    """When a session has ended, PySpark's handler of SIGINT is gone."""
    before = signal.getsignal(signal.SIGINT)
    with interrupts_restored():
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGINT) is before
