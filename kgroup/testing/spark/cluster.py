"""A standalone cluster of Spark on this machine: a master and its workers, from PySpark's jars.

Drivers of any process use it by its URL; ``session(cluster.url)`` is one. Java, logs and the end
of everything are ``SparkHome``'s. Linux and macOS.

INVARIANT: executors come of the cluster's own JAVA_HOME, so that the reaper knows them too.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
import urllib.request
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, final

import psutil

from kgroup.errors import UsageError
from kgroup.testing.kafka import LOG_TAIL, PORT_ATTEMPTS, tail
from kgroup.testing.limits import CORES, HEAP, WORKERS
from kgroup.testing.probe import PAUSE, free_ports
from kgroup.testing.reaper import processes_of
from kgroup.testing.spark.home import HOST, SparkHome
from kgroup.testing.spark.jars import spark_folder
from kgroup.testing.spark.java import QUICK_JAVA, Java, SparkUnavailableError
from kgroup.testing.spark.session import STOP_TIMEOUT

MASTER: Final = "org.apache.spark.deploy.master.Master"
WORKER: Final = "org.apache.spark.deploy.worker.Worker"
EXECUTOR: Final = "org.apache.spark.executor.CoarseGrainedExecutorBackend"
START_TIMEOUT: Final = 90.0
"""Seconds within which master or workers must be there; they take about 4 on a machine at rest."""
DAEMON_HEAP: Final = "192m"
"""The heap of a master, and of a worker beside its executors."""


@final
class SparkCluster:
    """A master and workers, as a context manager that starts and removes them.

    All calls block; from trio use ``trio.to_thread.run_sync``.

    Args:
        workers: how many.
        cores: tasks that a worker runs at a time, of all its executors.
        memory: heap that a worker has for executors, as Java writes it; a session's executors
            take 512m each.
        java: what it runs on; ``find_java()`` by default.
        log_path: where all its processes write what they have to say; by default a file that is
            removed with the cluster.
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
        """``spark://host:port``, what drivers call their master."""
        return f"spark://{HOST}:{self._ports[0]}"

    @property
    def log_path(self) -> Path:
        """The log of all its processes.

        Raises:
            UsageError: it does not run.
        """
        return self._running().log_path

    def start(self) -> None:
        """Start master and workers, and return when the master knows all of them.

        Raises:
            SparkUnavailableError: no PySpark, no Java for it, or they did not come up; the
                message has the end of the log.
            UsageError: it runs already.
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
        """End all its processes and remove what they wrote; again is nothing."""
        home, self._home = self._home, None
        if home is None:
            return
        processes = [*self._workers, *([self._master] if self._master else [])]
        self._master, self._workers = None, []
        # Their work is at an end, and a worker that is asked to stop first waits for executors.
        for process in processes:
            process.kill()
        for executor in _executors(home.folder):
            _kill(executor)
        for process in processes:
            process.wait()
        home.close()

    def executors(self) -> list[psutil.Process]:
        """The JVMs of executors that run now, of all drivers, in the order of their start."""
        return _executors(self._running().folder)

    def kill_executor(self) -> int:
        """End the executor that has run longest with SIGKILL; its worker starts another.

        Returns:
            The process id that it had.

        Raises:
            UsageError: none runs.
        """
        executors = self.executors()
        if not executors:
            raise UsageError(f"{self!r} has no executor; a driver's first job starts them")
        _kill(executors[0])
        return executors[0].pid

    def kill_worker(self) -> int:
        """End a worker as the loss of its machine does: SIGKILL for it and its executors.

        Returns:
            The process id that it had.

        Raises:
            UsageError: none is left.
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
        """Add a worker, and return when the master knows it.

        Raises:
            SparkUnavailableError: it did not come up.
            UsageError: the cluster does not run.
        """
        before = {worker["id"] for worker in self._state()["workers"]}
        self._workers.append(self._launch_worker())
        self._wait_until(
            lambda: any(each["id"] not in before for each in self._state()["workers"]),
            "one more worker",
        )

    def _running(self) -> SparkHome:
        if self._home is None:
            raise UsageError("this cluster does not run; start() begins it")
        return self._home

    def _start_master(self) -> None:
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                self._launch_master(*free_ports(2, HOST))
            except SparkUnavailableError:
                # Somebody else may have been given a port in between.
                if attempt == PORT_ATTEMPTS or "BindException" not in tail(self.log_path, 1000):
                    raise
            else:
                return

    def _launch_master(self, port: int, web_port: int) -> None:
        self._ports = (port, web_port)
        arguments = ["--host", HOST, "--port", str(port), "--webui-port", str(web_port)]
        self._master = master = self._launch(MASTER, *arguments)
        # Not asked by its ports, where somebody else might answer.
        self._wait_until(lambda: {port, web_port} <= _listening(master.pid), "a master")

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
                    # On a port that is taken the master would choose another, and not say so.
                    "SPARK_DAEMON_JAVA_OPTS": f"{QUICK_JAVA} -Dspark.port.maxRetries=0",
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A session of its own: Ctrl-C in a terminal is for the tests to act on.
                start_new_session=True,
            )

    def _state(self) -> dict[str, Any]:
        """What the master says of itself."""
        self._running()
        with urllib.request.urlopen(f"http://{HOST}:{self._ports[1]}/json/", timeout=5.0) as answer:
            state: dict[str, Any] = json.load(answer)
        return state

    def _wait_until(self, look: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + START_TIMEOUT
        while True:
            with suppress(OSError, psutil.Error):
                if look():
                    return
            processes = [self._master, *self._workers]
            ended = [process for process in processes if process and process.poll() is not None]
            if ended or time.monotonic() > deadline:
                why = f"one ended with {ended[0].poll()}" if ended else f"{START_TIMEOUT:g} s"
                raise SparkUnavailableError(
                    f"Spark's cluster did not come to have {what} ({why}); the log"
                    f" {self.log_path} ends with\n{tail(self.log_path, LOG_TAIL)}"
                )
            time.sleep(PAUSE)


def _listening(pid: int) -> set[int]:
    """The ports that a process listens on."""
    connections = psutil.Process(pid).net_connections("tcp")
    return {each.laddr.port for each in connections if each.status == psutil.CONN_LISTEN}


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
    """End a process that is not this one's child, and wait until it has ended."""
    with suppress(psutil.NoSuchProcess):
        process.kill()
        process.wait(STOP_TIMEOUT)
