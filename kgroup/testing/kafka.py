"""A real Apache Kafka of one node, from pip alone: started, probed, stopped, killed, removed.

Other modules find Java and the jars (``java``), wait until the broker answers (``probe``), and end
it when its last user is gone (``reaper``). For Linux and macOS.

INVARIANT: while a process of the broker runs, its folder is locked, so that the reaper ends it
after the last process that uses it.
"""

from __future__ import annotations

import base64
import os
import struct
import subprocess
import tempfile
import time
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Final, Self, final

import attrs

from kgroup.errors import ConfigError, UsageError
from kgroup.testing.java import (
    LOGGING,
    QUICK,
    TOOL_TIMEOUT,
    KafkaUnavailableError,
    archived,
    java_command,
    kafka_class_path,
)
from kgroup.testing.limits import HEAP, PATIENCE, check_properties
from kgroup.testing.probe import PAUSE, free_ports, wait_until_open, wait_until_serving
from kgroup.testing.reaper import FolderLock, java_option, left_running
from kgroup.testing.secure_listener import SecureListener, format_arguments, write_all
from kgroup.testing.tools import run_tool

SETTINGS: Final[Mapping[str, str]] = {
    # A single node can hold one replica only.
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    # Kafka's 50 partitions each cost time at the first use of a group or a transaction.
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    # Tests should not wait for members that never join, and need sessions shorter than 6 s.
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "100",
    # By default the controller writes a record every half second, which takes a third of what an
    # idle Kafka takes of the processor.
    "metadata.max.idle.interval.ms": "0",
    # A topic that a test has not created is a mistake of the test.
    "auto.create.topics.enable": "false",
    # Tests write records with old timestamps, and Kafka would delete those half a minute after its
    # start.
    "log.retention.ms": "-1",
    # By default Kafka deletes groups that have neither members nor offsets every ten minutes, and
    # their generation ids begin again: what a test sees would depend on when it runs.
    "offsets.retention.check.interval.ms": "86400000",
    # If the machine pauses for longer, the broker's own controller takes all leaders away from it;
    # by default that is 9 s.
    "broker.session.timeout.ms": "60000",
}
"""Where a broker for tests differs from Kafka's defaults."""
OWN: Final = frozenset(
    {
        "advertised.listeners",
        "controller.listener.names",
        "controller.quorum.voters",
        "listeners",
        "log.dirs",
        "node.id",
        "process.roles",
    }
)
"""Settings that this module sets itself."""
AFTER_KILL: Final[Mapping[str, str]] = {
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "500",
}
"""Settings for the first start after a kill, unless the user has given others. The controller lets
a broker register again only when the session of the killed one is over. They are not used for every
start, because on a busy machine a broker can lose so short a session."""
HOST: Final = "127.0.0.1"
START_TIMEOUT: Final = 180.0
"""Seconds within which a broker must answer; it takes about 3 on an idle machine."""
STOP_TIMEOUT: Final = 120.0
"""Seconds that a broker gets to stop by itself; it takes less than one on an idle machine."""
PORT_ATTEMPTS: Final = 5
PORT_TAKEN: Final = "Address already in use"
LOG_TAIL: Final = 40
"""The number of log lines shown with a failure."""


@final
@attrs.frozen
class KafkaAddress:
    """A running Kafka that other code starts and stops.

    Attributes:
        bootstrap_servers: ``host:port``.
        settings: its properties, by Kafka's names.
        log_path: its log.
    """

    bootstrap_servers: str
    settings: Mapping[str, str]
    log_path: Path

    def log_tail(self, lines: int = LOG_TAIL) -> str:
        """The last lines of its log."""
        return tail(self.log_path, lines)

    def run_tool(
        self, tool: str, *args: str, stdin: str | None = None, timeout: float = TOOL_TIMEOUT
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's command-line tools against it; see ``kgroup.testing.tools``."""
        return run_tool(self.bootstrap_servers, tool, *args, stdin=stdin, timeout=timeout)


@final
class RealKafka:
    """One broker of Apache Kafka, as a context manager that starts and removes it.

    ``stop`` and ``kill`` end its process, ``start`` starts it again; port, data and log stay the
    same until ``close``. All calls block; from trio use ``trio.to_thread.run_sync``.

    Args:
        settings: Kafka's broker properties, over those of ``SETTINGS``; values are written with
            ``str``, true and false in Kafka's spelling.
        heap: Java's largest heap.
        java_options: options of Java itself; the defaults suit the short life of a test. Give none
            to measure a broker's speed.
        secure: a second listener, with TLS and logins, or several; see `secure_servers`.
        log_path: the file for its log, which is kept. By default a temporary file that is removed
            with the broker, but kept and named if it fails or an exception leaves the ``with``
            block.

    Raises:
        ConfigError: a setting is one that kgroup sets itself, or cannot be written; or ``heap`` is
            not a size.

    Attributes:
        secure: the second listener, or None.
        listeners: all listeners but the plain one.
    """

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        *,
        heap: str = "512m",
        java_options: Sequence[str] = QUICK,
        secure: SecureListener | Sequence[SecureListener] | None = None,
        log_path: Path | None = None,
    ) -> None:
        check_properties(settings or {})
        HEAP.check("heap", heap)
        for name in sorted(OWN & set(settings or {})):
            raise ConfigError(
                name, (settings or {})[name], "RealKafka sets it itself; leave it out"
            )
        self._given = {k: _property(v) for k, v in (settings or {}).items()}
        self._heap = heap
        self._java_options = tuple(java_options)
        if isinstance(secure, SecureListener):
            secure = (secure,)
        self.listeners: Final = tuple(secure or ())
        self.secure: Final = self.listeners[0] if self.listeners else None
        self._given_log = log_path
        self._log_path: Path | None = None
        self._ports: tuple[int, ...] | None = None
        self._lock: FolderLock | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._killed = False

    def __repr__(self) -> str:
        if self._process is None:
            return "<RealKafka, not running>"
        return f"<RealKafka at {self.bootstrap_servers}, pid {self.pid}>"

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is not None and self._log_path is not None:
            error.add_note(f"The log of Kafka at {self._address()} is in {self._log_path}")
        self.close(keep_log=error is not None)

    @property
    def bootstrap_servers(self) -> str:
        """``host:port`` of the broker; the same after every restart.

        Raises:
            UsageError: it was never started or is closed.
        """
        return self._address()

    @property
    def secure_servers(self) -> str:
        """``host:port`` of the secure listener.

        Raises:
            UsageError: it has none, or was never started, or is closed.
        """
        if self.secure is None:
            raise UsageError("this Kafka has no secure listener")
        return self.servers_of(self.secure)

    def servers_of(self, listener: SecureListener) -> str:
        """``host:port`` of one of its listeners.

        Raises:
            UsageError: it is not one of them, or the broker was never started, or is closed.
        """
        if listener not in self.listeners or self._ports is None:
            raise UsageError(f"this Kafka has no listener {listener.name}, or does not run")
        return f"{HOST}:{self._ports[2 + self.listeners.index(listener)]}"

    @property
    def settings(self) -> Mapping[str, str]:
        """The broker's properties by Kafka's names, without those that kgroup sets itself."""
        return {**SETTINGS, **self._given}

    @property
    def log_path(self) -> Path:
        """The broker's log: its output since its first start.

        Raises:
            UsageError: it was never started.
        """
        if self._log_path is None:
            raise UsageError("this Kafka has no log before start()")
        return self._log_path

    @property
    def pid(self) -> int:
        """The id of its process.

        Raises:
            UsageError: it does not run.
        """
        return self._running().pid

    @property
    def folder(self) -> Path:
        """The folder of its data, until ``close``.

        Raises:
            UsageError: it was never started or is closed.
        """
        return self._folder_lock().folder

    def address(self) -> KafkaAddress:
        """Its address and settings, for other processes."""
        return KafkaAddress(self.bootstrap_servers, self.settings, self.log_path)

    def log_tail(self, lines: int = LOG_TAIL) -> str:
        """The last lines of its log."""
        return tail(self.log_path, lines)

    def run_tool(
        self, tool: str, *args: str, stdin: str | None = None, timeout: float = TOOL_TIMEOUT
    ) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's command-line tools against it; see ``kgroup.testing.tools``."""
        return self.address().run_tool(tool, *args, stdin=stdin, timeout=timeout)

    def start(self, timeout: float = START_TIMEOUT) -> None:
        """Start the broker, for the first time or again; returns when it coordinates groups.

        Raises:
            KafkaUnavailableError: there is no Java, there are no jars, or the broker did not
                start; the message has the end of its log.
            UsageError: it runs already.
        """
        PATIENCE.check("timeout", timeout)
        if self._process is not None:
            raise UsageError(f"Kafka at {self.bootstrap_servers} runs already, pid {self.pid}")
        if self._lock is not None:
            self._write_properties()
            self._launch(timeout)
            self._killed = False
            return
        for attempt in range(1, PORT_ATTEMPTS + 1):
            try:
                self._prepare()
                self._launch(timeout)
            except BaseException as error:
                taken = PORT_TAKEN in self._log_text()
                self.close(keep_log=True)
                if not (isinstance(error, KafkaUnavailableError) and taken):
                    raise
                if attempt == PORT_ATTEMPTS:
                    raise
            else:
                return

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """Ask the broker to stop and wait; kill it, with a warning, if it takes too long.

        Its data stay for the next ``start``. Does nothing if it does not run.
        """
        PATIENCE.check("timeout", timeout)
        process, self._process = self._process, None
        if process is None:
            return
        process.terminate()
        try:
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self._killed = True
            warnings.warn(
                f"Kafka at {self._address()} (pid {process.pid}) did not stop within {timeout:g} s"
                " of SIGTERM and was killed; data that it had not flushed may be lost",
                RuntimeWarning,
                stacklevel=2,
            )

    def restart(self) -> None:
        """Stop the broker gracefully and start it again: same port, same data."""
        self.stop()
        self.start()

    def kill(self) -> None:
        """Kill the broker with SIGKILL; ``start`` starts it again with the same port and data.

        Raises:
            UsageError: it does not run.
        """
        process, self._process = self._running(), None
        self._killed = True
        process.kill()
        process.wait()

    def close(self, *, keep_log: bool = False) -> None:
        """Stop the broker and remove its files. Idempotent.

        Args:
            keep_log: keep the log, even if it is a temporary file.
        """
        try:
            self.stop()
        finally:
            lock, self._lock = self._lock, None
            self._ports = None
            if lock is not None:
                lock.release()
                lock.wait_until_reaped(STOP_TIMEOUT)
            if self._log_path is not None and self._given_log is None and not keep_log:
                self._log_path.unlink(missing_ok=True)

    def hand_over(self) -> None:
        """Release the running broker to other processes that have locked its folder.

        Raises:
            UsageError: it does not run.
        """
        process, self._process = self._running(), None
        lock, self._lock = self._folder_lock(), None
        left_running.append(process)
        lock.release()

    def _address(self) -> str:
        if self._ports is None:
            raise UsageError("this Kafka has no address before start() and after close()")
        return f"{HOST}:{self._ports[0]}"

    def _folder_lock(self) -> FolderLock:
        if self._lock is None:
            raise UsageError("this Kafka was never started, or is closed")
        return self._lock

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise UsageError("this Kafka does not run; call start()")
        return self._process

    def _prepare(self) -> None:
        """Make the folder, its lock, ports and properties, and format the storage for KRaft."""
        class_path = kafka_class_path()
        folder = Path(tempfile.mkdtemp(prefix="kgroup-kafka-"))
        self._log_path = self._given_log or folder.with_suffix(".log")
        self._lock = FolderLock.create(folder, self._log_path)
        self._ports = tuple(free_ports(2 + len(self.listeners), HOST))
        self._write_properties()
        # 16 bytes in base64. A wholly random id could begin with "-" and be read as an option.
        cluster_id = base64.urlsafe_b64encode(b"kgroup" + os.urandom(10)).decode().rstrip("=")
        command = self._java(class_path)
        config = str(self._properties_file())
        arguments = ["kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", config]
        arguments += format_arguments(self.listeners)
        with self._log_path.open("ab") as log:
            try:
                status = subprocess.run(
                    [*command, *arguments],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    check=False,
                    timeout=START_TIMEOUT,
                ).returncode
            except subprocess.TimeoutExpired as error:
                raise self._failure(
                    f"could not format its storage in {error.timeout:g} s"
                ) from error
        if status != 0:
            raise self._failure(f"could not format its storage (exit status {status})")

    def _launch(self, timeout: float) -> None:
        class_path = kafka_class_path()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._java(class_path), "kafka.Kafka", str(self._properties_file())],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A session of its own: Ctrl-C in a terminal goes to the tests alone, and the broker
                # ends after them.
                start_new_session=True,
            )
        deadline = time.monotonic() + timeout
        process = self._process

        def pause(reason: str) -> None:
            if process.poll() is not None:
                raise self._failure(f"ended while starting (exit status {process.returncode})")
            if time.monotonic() > deadline:
                raise self._failure(f"is not ready {timeout:g} s after its start: {reason}")
            time.sleep(PAUSE)

        try:
            wait_until_open(process.pid, int(self._address().rpartition(":")[2]), pause)
            wait_until_serving(self._address(), pause)
        except BaseException:
            self.stop()
            raise

    def _write_properties(self) -> None:
        broker, controller, *secure = self._ports or (0, 0)
        properties = {
            **SETTINGS,
            **(AFTER_KILL if self._killed else {}),
            **self._given,
            "process.roles": "broker,controller",
            "node.id": "1",
            "listeners": f"PLAINTEXT://{HOST}:{broker},CONTROLLER://{HOST}:{controller}",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "log.dirs": str(self.folder / "data"),
        }
        for listener, port in zip(self.listeners, secure, strict=True):
            properties["listeners"] += f",{listener.listener(HOST, port)}"
        properties = {**write_all(self.listeners, self.folder, HOST), **properties}
        self._properties_file().write_text(
            "".join(f"{name}={_escaped(value)}\n" for name, value in sorted(properties.items()))
        )

    def _java(self, class_path: str) -> list[str]:
        options = [*archived(class_path), java_option(self.folder), *LOGGING, *self._java_options]
        return [*java_command(heap=self._heap, options=options), "-cp", class_path]

    def _properties_file(self) -> Path:
        return self.folder / "server.properties"

    def _log_text(self) -> str:
        if self._log_path is None or not self._log_path.exists():
            return ""
        return self._log_path.read_text(errors="replace")

    def _failure(self, what: str) -> KafkaUnavailableError:
        return KafkaUnavailableError(
            f"the real Kafka at {self._address()} {what}. Its log is in {self._log_path} and"
            f" ends with:\n{self.log_tail()}"
        )


def tail(path: Path, lines: int) -> str:
    """The last lines of a text file, or the error if it cannot be read."""
    try:
        return "\n".join(path.read_text(errors="replace").splitlines()[-lines:])
    except OSError as error:
        return f"({error})"


def _property(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _escaped(value: str) -> str:
    """A value, escaped for a Java properties file, which knows other escapes than Python."""
    units = struct.iter_unpack(">H", value.encode("utf-16-be"))
    escaped = "".join(map(_escaped_unit, (unit for (unit,) in units)))
    return f"\\{escaped}" if escaped.startswith(" ") else escaped


def _escaped_unit(unit: int) -> str:
    """A UTF-16 unit, as it stands if it is a character of ASCII that has no meaning of its own."""
    text = chr(unit)
    return text if text.isascii() and text.isprintable() and text != "\\" else f"\\u{unit:04x}"
