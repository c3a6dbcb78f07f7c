"""Gives every embedded broker of a test process a port that no other broker had lately.

Clients of a broker that a test has ended may still try to reach it, for example those in a process
that the test kills a moment later. The system sometimes chooses the same port again: once in some
ten runs of the suite such a client joined a group on the broker of another test. The ports here are
below those that the system chooses from, and each process begins at another one.
"""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Final

import pytest
import trio

from kgroup.broker import endpoint

_PORTS: Final = range(10_000, 32_000)
_ATTEMPTS: Final = 100
_OPEN: Final = trio.open_tcp_listeners


@pytest.fixture(scope="session", autouse=True)
def _new_ports() -> Iterator[None]:
    open_on_any, ports = endpoint._open_listeners, cycle(_PORTS)
    began = random.Random(os.getpid()).randrange(len(_PORTS))
    next(islice(ports, began, None))

    async def open_listeners(host: str, port: int) -> list[trio.SocketListener]:
        if port or trio.open_tcp_listeners is not _OPEN:  # a test watches the ports
            return await open_on_any(host, port)
        for candidate in islice(ports, _ATTEMPTS):
            try:
                return await open_on_any(host, candidate)
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    raise
        raise AssertionError(f"{_ATTEMPTS} ports in a row are taken")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(endpoint, "_open_listeners", open_listeners)
        yield
