"""A standalone cluster of Spark on this machine: a master and its workers, from PySpark's jars.

Drivers in any process connect to its URL, for example ``session(cluster.url)``. ``SparkHome``
provides Java, logs and cleanup. For Linux and macOS.

INVARIANT: executors start with the cluster's own JAVA_HOME, so that the reaper finds them too.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, TypeVar, final

import psutil

from kgroup.errors import UsageError
from kgroup.testing.kafka import LOG_TAIL, PORT_ATTEMPTS, tail
from kgroup.testing.limits import CORES, HEAP, WORKERS
from kgroup.testing.probe import PAUSE, free_ports, listening
from kgroup.testing.reaper import processes_of
from kgroup.testing.spark.home import HOST, SparkHome
from kgroup.testing.spark.jars import spark_folder
from kgroup.testing.spark.java import QUICK_JAVA, Java, SparkUnavailableError
from kgroup.testing.spark.session import STOP_TIMEOUT

MASTER: Final = "org.apache.spark.deploy.master.Master"
WORKER: Final = "org.apache.spark.deploy.worker.Worker"
EXECUTOR: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
START_TIMEOUT: Final = 180.0
"""Seconds within which master or workers must run; they take about 4 on an idle machine."""
T = TypeVar("T")
DAEMON_HEAP: Final = "192m"
"""The heap of a master, and of a worker beside its executors."""
open_url: Final = urllib.request.build_opener(urllib.request.ProxyHandler({})).open
"""Opens a URL without a proxy: that of ``http_proxy`` does not reach this machine's own ports."""


@final
class SparkCluster:
    """A master and workers, as a context manager that starts and removes them.

    All calls block; from trio use ``trio.to_thread.run_sync``.

    Args:
        workers: how many workers.
        cores: how many tasks a worker runs at a time, in all its executors together.
        memory: the heap of a worker's executors together, in Java's notation; each executor of a
            `session` takes 512m.
        java: the Java that runs it; ``find_java()`` by default.
        log_path: the log file of all its processes; by default one that is removed with the
            cluster.
    """

    def __init__(
        self,
        workers: int = 2,
        *,
        cores: int = 1,
        memory: str = "1g",
        java: Java | None = None,
        log_path: Path | None = None,
    ) -> None:
        WORKERS.check("workers", workers)
        CORES.check("cores", cores)
        HEAP.check("memory", memory)
        self._count = workers
        self._size = ["--cores", str(cores), "--memory", memory]
        self._java = java
        self._given_log = log_path
        self._home: SparkHome | None = None
        self._ports = (0, 0)
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []

    def __repr__(self) -> str:
        if self._master is None:
            return "<SparkCluster, not running>"
        return f"<SparkCluster at {self.url}, {len(self._workers)} workers>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def url(self) -> str:
        """``spark://host:port``, for drivers' ``spark.master``."""
        return f"spark://{HOST}:{self._ports[0]}"

    @property
    def log_path(self) -> Path:
        """The log of all its processes.

        Raises:
            UsageError: the cluster does not run.
        """
        return self._running().log_path

    def start(self) -> None:
        """Start master and workers; return when all workers have registered.

        Raises:
            SparkUnavailableError: there is no PySpark, or no Java for it, or a process did not
                start; the text contains the end of the log.
            UsageError: the cluster runs already.
        """
        if self._home is not None:
            raise UsageError(f"{self!r} runs already")
        spark_folder()
        self._home = SparkHome(log_path=self._given_log, java=self._java)
        try:
            self._start_master()
            self._workers = [self._launch_worker() for _ in range(self._count)]
            self._wait_until(
                lambda: self._state()["aliveworkers"] == self._count, f"{self._count} workers"
            )
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """End all its processes and remove their files. Idempotent."""
        home, self._home = self._home, None
        if home is None:
            return
        processes = [*self._workers, *([self._master] if self._master else [])]
        self._master, self._workers = None, []
        # They are killed: a worker that stops gracefully first waits for its executors.
        for process in processes:
            process.kill()
        for executor in _executors(home.folder):
            _kill(executor)
        for process in processes:
            process.wait()
        home.close()

    def executors(self) -> list[psutil.Process]:
        """The JVMs of all drivers' running executors, in the order of their start."""
        return _executors(self._running().folder)

    def kill_executor(self) -> int:
        """Send the oldest executor SIGKILL; its worker starts another one.

        Returns:
            Its process id.

        Raises:
            UsageError: no executor runs.
        """
        executors = self.executors()
        if not executors:
            raise UsageError(f"{self!r} has no executor; a driver's first job starts them")
        _kill(executors[0])
        return executors[0].pid

    def kill_worker(self) -> int:
        """Send a worker and its executors SIGKILL, as if its machine were lost.

        Returns:
            The worker's process id.

        Raises:
            UsageError: no worker is left.
        """
        self._running()
        if not self._workers:
            raise UsageError(f"{self!r} has no worker left; start_worker() adds one")
        worker = self._workers.pop(0)
        lost = [each for each in self.executors() if _parent(each) == worker.pid]
        worker.kill()
        for executor in lost:
            _kill(executor)
        worker.wait()
        return worker.pid

    def start_worker(self) -> None:
        """Add a worker; return when it has registered with the master.

        Raises:
            SparkUnavailableError: it did not start.
            UsageError: the cluster does not run.
        """
        self._running()
        before = self._wait_until(self._state, "an answer of its master")["workers"]
        self._workers.append(self._launch_worker())
        self._wait_until(
            lambda: _ids(self._state()["workers"]) - _ids(before),
            "one more worker",
        )

    def _running(self) -> SparkHome:
        if self._home is None:
            raise UsageError("this cluster does not run; call start() first")
        return self._home

    def _start_master(self) -> None:
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                self._launch_master(*free_ports(2, HOST))
            except SparkUnavailableError:
                # Another process may have taken a port in the meantime.
                if attempt == PORT_ATTEMPTS or "BindException" not in tail(self.log_path, 1000):
                    raise
            else:
                return

    def _launch_master(self, port: int, web_port: int) -> None:
        self._ports = (port, web_port)
        arguments = ["--host", HOST, "--port", str(port), "--webui-port", str(web_port)]
        self._master = master = self._launch(MASTER, *arguments)
        self._wait_until(lambda: {port, web_port} <= listening(master.pid), "a master")

    def _launch_worker(self) -> subprocess.Popen[bytes]:
        work = ["--work-dir", str(self._running().folder / "work")]
        place = ["--host", HOST, "--webui-port", "0"]
        return self._launch(WORKER, *place, *self._size, *work, self.url)

    def _launch(self, main_class: str, *arguments: str) -> subprocess.Popen[bytes]:
        home = self._running()
        with home.log_path.open("ab") as log:
            return subprocess.Popen(
                [spark_folder() / "bin" / "spark-class", main_class, *arguments],
                env={
                    **os.environ,
                    **home.environment(),
                    "SPARK_DAEMON_MEMORY": DAEMON_HEAP,
                    # If a port is taken the master would silently choose another one.
                    "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_JAVA} -Dspark.port.maxRetries=0",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A session of its own, so that Ctrl-C in a terminal reaches only the tests.
                start_new_session=True,
            )

    def _state(self) -> dict[str, Any]:
        """The master's state, from its web interface.

        Raises:
            OSError, HTTPException, ValueError: the master does not say it yet. While it starts,
                its pages are added one by one, and the page at the root stands in for the others.
        """
        with open_url(f"http://{HOST}:{self._ports[1]}/json/", timeout=5.0) as answer:
            state: dict[str, Any] = json.load(answer)
        return state

    def _wait_until(self, condition: Callable[[], T], what: str) -> T:
        """Wait until a condition is true and return what it says; until then it may also fail."""
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            with suppress(OSError, HTTPException, ValueError, psutil.Error):
                if result := condition():
                    return result
            processes = [self._master, *self._workers]
            ended = [process for process in processes if process and process.poll() is not None]
            if ended or time.monotonic() > deadline:
                why = (
                    f"a process ended with status {ended[0].poll()}"
                    if ended
                    else f"within {START_TIMEOUT:g} s"
                )
                raise SparkUnavailableError(
                    f"Spark's cluster did not get {what} ({why}); its log {self.log_path} ends"
                    f" with\n{tail(self.log_path, LOG_TAIL)}"
                )
            time.sleep(PAUSE)


def _ids(workers: Iterable[Mapping[str, Any]]) -> set[str]:
    return {worker["id"] for worker in workers}


def _executors(folder: Path) -> list[psutil.Process]:
    found = []
    for process in processes_of(folder):
        with suppress(psutil.NoSuchProcess):
            if EXECUTOR in process.cmdline():
                found.append((process.create_time(), process.pid, process))
    return [process for _, _, process in sorted(found, key=lambda entry: entry[:2])]


def _parent(process: psutil.Process) -> int | None:
    with suppress(psutil.NoSuchProcess):
        return process.ppid()
    return None


def _kill(process: psutil.Process) -> None:
    """Kill a process that is not a child of this one, and wait until it has ended."""
    with suppress(psutil.NoSuchProcess):
        process.kill()
        process.wait(STOP_TIMEOUT)
