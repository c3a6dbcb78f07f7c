"""A worker for Kubernetes: its health and its metrics, beside its work.

    pip install 'kgroup[prometheus]'
    python examples/probed_worker.py localhost:9092 orders 9000

A thread serves http://localhost:9000/live, /ready and /metrics, so that it answers while the
worker's event loop is blocked, too. docs/metrics.md has the settings for Kubernetes.
"""

import json
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from typing import cast

from prometheus_client import MetricsHandler

import kgroup
from kgroup.metrics.prometheus import PrometheusMetrics
from kgroup.monitors import HealthMonitor, Monitors


class Server(ThreadingHTTPServer):
    """Serves the health of one monitor."""

    daemon_threads = True

    def __init__(self, port: int, monitor: HealthMonitor) -> None:
        super().__init__(("", port), Probes)
        self.monitor = monitor


class Probes(MetricsHandler):
    """Answers 200 if all is well and 503 if not, with the reasons; other paths are the metrics."""

    def do_GET(self) -> None:  # noqa: N802 # the name that http.server calls
        """Answer a probe, or a scrape."""
        health = cast("Server", self.server).monitor.health()
        answers = {"/live": health.live, "/ready": health.ready}
        if self.path not in answers:
            super().do_GET()
            return
        body = json.dumps(health.as_dict()).encode()
        self.send_response(200 if answers[self.path] else 503)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(port: int, monitor: HealthMonitor) -> Iterator[Server]:
    """Serve probes and metrics in a thread; port 0 is any free one."""
    with Server(port, monitor) as server:
        thread = threading.Thread(target=server.serve_forever, name="probes")
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


async def handle(generation: kgroup.Generation, batch: kgroup.Batch) -> int | None:
    """Process a batch: here, print the position of each record."""
    for message in batch:
        print(message.topic(), message.partition(), message.offset(), flush=True)
        if generation.ending.is_set():
            return message.offset() + 1
    return None


def main(servers: str, topic: str, port: int) -> None:
    """Be a member of the topic's group of probed workers."""
    config = kgroup.GroupConfig(
        bootstrap_servers=servers, group_id=f"{topic}-probed", topics=[topic]
    )
    monitor = HealthMonitor()
    with serving(port, monitor):
        kgroup.run(config, handle, on_event=Monitors(PrometheusMetrics(), monitor))


if __name__ == "__main__":
    _, servers, topic, port = sys.argv
    main(servers, topic, int(port))
