"""Refuses real sockets inside a simulation: they would bring in real time and other machines.

While a simulation runs, ``socket.socket.__init__`` asks first whether the caller may open one. An
audit hook (PEP 578) would see sockets that C opens as well, but on Python 3.11 two threads that
begin to be traced at once, by coverage or a debugger, fail beside a hook that is written in Python,
and a hook stays for as long as the process.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final

from kgroup.errors import UsageError

_forbidden: Final[ContextVar[bool]] = ContextVar("kgroup_no_sockets", default=False)
_open: Final = socket.socket.__init__
_lock: Final = threading.Lock()
_runs: Final[set[object]] = set()
"""The simulations that run, in whichever thread."""


@wraps(_open)
def _open_if_allowed(self: socket.socket, *arguments: Any, **options: Any) -> None:
    if _forbidden.get():
        raise UsageError(
            "the program tried to open a real socket inside a simulation, where the network is"
            " simulated and time is virtual: replace what connects by a stand-in"
        )
    _open(self, *arguments, **options)


@contextmanager
def no_sockets() -> Iterator[None]:
    """Refuse sockets to this task, its children, and their worker threads.

    Raises:
        UsageError: where a socket is opened; a real socket was refused.
    """
    run = object()
    token = _forbidden.set(True)
    try:
        with _lock:
            _runs.add(run)
            socket.socket.__init__ = _open_if_allowed  # type: ignore[method-assign]
        yield
    finally:
        _forbidden.reset(token)
        with _lock:
            _runs.discard(run)
            if not _runs:
                socket.socket.__init__ = _open  # type: ignore[method-assign]
