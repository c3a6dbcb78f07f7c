"""A scripted identity provider."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any


class Provider(BaseHTTPRequestHandler):
    """Answers every POST with what the test wants, and keeps what was sent."""

    status = 200
    body: bytes = b""
    seen: list[tuple[str, str, str]] = []  # noqa: RUF012 # of the one test that runs

    def do_POST(self) -> None:
        """Answer."""
        length = int(self.headers["Content-Length"])
        sent = self.rfile.read(length).decode()
        type(self).seen.append((self.path, self.headers["Authorization"], sent))
        self.send_response(self.status)
        if self.status == 302:
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *_: Any, **__: Any) -> None:
        """Log nothing."""


@contextmanager
def provider(status: int, body: bytes) -> Iterator[str]:
    """An identity provider that answers so; its URL."""
    Provider.status, Provider.body, Provider.seen = status, body, []
    server = HTTPServer(("127.0.0.1", 0), Provider)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
