"""A standalone cluster: drivers in other processes use it, and its end leaves nothing."""

from __future__ import annotations

import io
import socket
import threading
from collections.abc import Callable, Iterator
from http.client import BadStatusLine, IncompleteRead
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from kgroup.errors import UsageError
from kgroup.testing.probe import free_ports
from kgroup.testing.reaper import processes_of
from kgroup.testing.spark import SparkCluster, SparkUnavailableError
from kgroup.testing.spark import cluster as module
from kgroup.testing.spark.home import HOST


def test_nothing_is_left_of_a_cluster(own_spark_cluster: Callable[..., SparkCluster]) -> None:
    """A closed cluster leaves no process, and can be started again."""
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


def test_an_incomplete_web_interface_is_requested_again(
    own_spark_cluster: Callable[..., SparkCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A master that starts may answer with another page, half an answer or none."""
    attempts: Iterator[bytes | Exception] = iter(
        [b"<!DOCTYPE html><html>", b"{", IncompleteRead(b"{"), BadStatusLine(""), TimeoutError()]
    )
    found = module.open_url

    def urlopen(url: str, timeout: float) -> object:
        attempt = next(attempts, None)
        if isinstance(attempt, Exception):
            raise attempt
        return found(url, timeout=timeout) if attempt is None else io.BytesIO(attempt)

    monkeypatch.setattr(module, "open_url", urlopen)
    cluster = own_spark_cluster(workers=0)
    assert next(attempts, None) is None
    attempts = iter([b"<!DOCTYPE html><html>", TimeoutError()])
    cluster.start_worker()
    assert next(attempts, None) is None
    assert cluster.kill_worker()


def test_the_master_is_asked_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A proxy of the environment, which cannot reach this machine's ports, is not used."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b'{"aliveworkers": 2}'
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with HTTPServer((HOST, 0), Page) as server:
        answers = threading.Thread(target=server.handle_request)
        answers.start()
        cluster = SparkCluster()
        cluster._ports = (0, server.server_port)
        assert cluster._state() == {"aliveworkers": 2}
        answers.join()


def test_a_port_that_is_taken_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """If another process uses a port, another port is chosen."""
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        ports = iter([[port, *free_ports(1)], free_ports(2)])
        monkeypatch.setattr(module, "free_ports", lambda *_: next(ports))
        with SparkCluster(0) as cluster:
            assert not cluster.url.endswith(f":{port}")


def test_a_master_that_ends_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the end of its log, and nothing is left."""
    monkeypatch.setattr(module, "MASTER", "org.example.Missing")
    cluster = SparkCluster()
    with pytest.raises(
        SparkUnavailableError, match=r"(?s)ended with status 1.*org\.example\.Missing"
    ):
        cluster.start()
    assert repr(cluster) == "<SparkCluster, not running>"
