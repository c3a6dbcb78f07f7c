"""A standalone cluster: drivers of other processes use it, and nothing of it is left behind."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from kgroup.errors import UsageError
from kgroup.testing.probe import free_ports
from kgroup.testing.reaper import processes_of
from kgroup.testing.spark import SparkCluster, SparkUnavailableError
from kgroup.testing.spark import cluster as module

DRIVER = """
import sys
from pathlib import Path
from kgroup.testing.spark import session

def doubled(batches):
    import pyarrow
    for batch in batches:
        values = [2 * value.as_py() for value in batch.column("id")]
        yield pyarrow.RecordBatch.from_pydict({"id": values})

with session(sys.argv[1]) as spark:
    print(Path(spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:")).parent, flush=True)
    for line in sys.stdin:
        rows = spark.range(0, 6, 1, 2).mapInArrow(doubled, "id long").collect()
        print(sum(row["id"] for row in rows), flush=True)
"""


def until(look: Callable[[], object]) -> None:
    """Wait for something to be so."""
    deadline = time.monotonic() + 30.0
    while not look():
        assert time.monotonic() < deadline, "it did not come to be so"
        time.sleep(0.05)


@pytest.fixture
def driver() -> Iterator[Callable[[str], subprocess.Popen[str]]]:
    """Start a driver that runs a job for each line it is sent; it ends with the test."""
    drivers = []

    def start(url: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", DRIVER, url]
        process = subprocess.Popen(
            command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        drivers.append(process)
        return process

    yield start
    for process in drivers:
        process.kill()
        process.communicate()


def job(process: subprocess.Popen[str]) -> str:
    """Let a driver run a job; what comes of it."""
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write("\n")
    process.stdin.flush()
    return process.stdout.readline()


def test_jobs_survive_what_is_killed(
    own_spark_cluster: Callable[..., SparkCluster],
    driver: Callable[[str], subprocess.Popen[str]],
) -> None:
    """Jobs end well after the loss of an executor and of a worker; a killed driver is gone."""
    cluster = own_spark_cluster()
    with pytest.raises(UsageError, match="has no executor"):
        cluster.kill_executor()
    process = driver(cluster.url)
    assert process.stdout is not None
    folder = Path(process.stdout.readline().strip())
    assert job(process) == "30\n"
    until(lambda: len(cluster.executors()) == 2)

    killed = cluster.kill_executor()
    assert killed not in [executor.pid for executor in cluster.executors()]
    assert job(process) == "30\n"

    until(lambda: len(cluster.executors()) == 2)
    worker = cluster.kill_worker()
    assert not psutil.pid_exists(worker)
    until(lambda: len(cluster.executors()) == 1)
    assert job(process) == "30\n"
    cluster.start_worker()
    until(lambda: len(cluster.executors()) == 2)

    process.kill()
    process.wait()
    until(lambda: not cluster.executors())
    until(lambda: not folder.exists() and not processes_of(folder))


def test_nothing_is_left_of_a_cluster(own_spark_cluster: Callable[..., SparkCluster]) -> None:
    """A cluster that is closed has left no process; it can be started again."""
    cluster = own_spark_cluster(workers=0)
    before, folder = cluster.url, cluster._running().folder
    assert processes_of(folder)
    with pytest.raises(UsageError, match="runs already"):
        cluster.start()
    with pytest.raises(UsageError, match="no worker left"):
        cluster.kill_worker()
    cluster.close()
    assert not processes_of(folder)
    assert not folder.exists()
    assert repr(cluster) == "<SparkCluster, not running>"
    for use in (cluster.executors, cluster.start_worker, lambda: cluster.log_path):
        with pytest.raises(UsageError, match="does not run"):
            use()
    cluster.close()
    cluster.start()
    assert repr(cluster) == f"<SparkCluster at {cluster.url}, 0 workers>"
    assert cluster.url != before


def test_a_port_that_is_taken_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where somebody else has got a port in between, another is chosen."""
    with SparkCluster(0) as first:
        ports = iter([list(first._ports), free_ports(2)])
        monkeypatch.setattr(module, "free_ports", lambda *_: next(ports))
        with SparkCluster(0) as second:
            assert second.url != first.url


def test_a_master_that_ends_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the end of the log, and nothing is left."""
    monkeypatch.setattr(module, "MASTER", "org.example.Missing")
    cluster = SparkCluster()
    with pytest.raises(SparkUnavailableError, match=r"(?s)ended with 1.*org\.example\.Missing"):
        cluster.start()
    assert repr(cluster) == "<SparkCluster, not running>"
