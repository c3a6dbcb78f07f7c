"""The examples of a group beside other services: the status page, and the end of the services."""

from __future__ import annotations

import re
import signal
import socket
import time
import urllib.request
from typing import Final

import pytest

from kgroup.testing.probe import free_ports
from tests.examples.reader import Reader
from tests.examples.topic import Topic
from tests.examples.worker import TIMEOUT, Worker

both = pytest.mark.parametrize(
    "program", ["examples/beside_services.py", "examples/asyncio_services.py"]
)
PAUSE: Final = 0.05


def page(port: int) -> str:
    """The text of the status page, or nothing if it does not answer yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=TIMEOUT) as answer:
            return str(answer.read(), "ascii")
    except OSError:
        return ""


def page_with(port: int, handled: int) -> str:
    """Wait until the status page shows this number of handled records."""
    deadline = time.monotonic() + TIMEOUT
    while not (text := page(port)).endswith(f"; {handled} handled\n"):
        assert time.monotonic() < deadline, f"the page says {text!r}"
        time.sleep(PAUSE)
    return text


@pytest.mark.parametrize(
    ("number", "said"), [(signal.SIGINT, ["stopped"]), (signal.SIGTERM, list[str]())]
)
@both
def test_it_answers_while_it_consumes(
    reader: Reader, topic: Topic, program: str, number: signal.Signals, said: list[str]
) -> None:
    """The page shows partitions and handled records; a signal ends both services, and it leaves."""
    group_id = f"{topic.name}-services"
    (port,) = free_ports(1)
    topic.produce(50)
    with Worker(reader, program, topic.bootstrap_servers, topic.name, str(port)) as worker:
        owned = ", ".join(map(str, topic.partitions))
        text = page_with(port, 200)
        assert re.fullmatch(rf"generation \d+ \(running\): {owned}; 200 handled\n", text)
        topic.produce(10)
        page_with(port, 240)
        topic.wait_until_committed(group_id)
        worker.send(number)
        assert worker.ended() == 0
        assert worker.lines == said
        assert worker.errors == ""
    assert topic.members(group_id) == []


@both
def test_an_idle_connection_does_not_hold_up_the_end(
    reader: Reader, topic: Topic, program: str
) -> None:
    """A client of the page that connects and sends nothing ends with the program."""
    (port,) = free_ports(1)
    topic.produce(10)
    with Worker(reader, program, topic.bootstrap_servers, topic.name, str(port)) as worker:
        page_with(port, 10 * len(topic.partitions))
        with socket.create_connection(("127.0.0.1", port)):
            worker.send(signal.SIGTERM)
            assert worker.ended() == 0  # Python 3.11 reports asyncio's cancelled callback


@both
def test_a_service_that_fails_ends_the_others(reader: Reader, topic: Topic, program: str) -> None:
    """If the port is taken, the whole program ends with that error, and its member leaves."""
    port = topic.bootstrap_servers.rpartition(":")[2]
    with Worker(reader, program, topic.bootstrap_servers, topic.name, port) as worker:
        assert worker.ended() == 1
        assert "OSError" in worker.errors
    assert topic.members(f"{topic.name}-services") == []
