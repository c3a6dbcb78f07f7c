"""Refuses real sockets inside a simulation: they would bring in real time and other machines.

While a simulation runs, creating a ``socket.socket`` in its tasks or threads raises an error.
Sockets that C code opens, such as librdkafka's, are not detected. An audit hook (PEP 578) is not
used: it could not be removed, and on Python 3.11 a hook written in Python makes threads fail now
and then that begin at the same moment under coverage or a debugger.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, Final

from kgroup.errors import UsageError

_forbidden: Final[ContextVar[bool]] = ContextVar("kgroup_no_sockets", default=False)
_lock: Final = threading.Lock()
_runs: Final[set[object]] = set()
"""The simulations that run, in whichever thread."""
_end: Final[list[Callable[[], None]]] = []
"""What ends the guard, while there is one."""


def _guard() -> Callable[[], None]:
    """Replace ``socket.socket.__init__``; the returned function restores it."""
    guarded = socket.socket
    opens = guarded.__init__

    @wraps(opens)
    def open_if_allowed(self: socket.socket, *arguments: Any, **options: Any) -> None:
        if _forbidden.get():
            raise UsageError(
                "the program tried to open a real socket inside a simulation, where the network is"
                " simulated and time is virtual: replace what connects by a stand-in"
            )
        opens(self, *arguments, **options)

    def end() -> None:
        if guarded.__init__ is open_if_allowed:  # else something else has replaced it meanwhile
            guarded.__init__ = opens  # type: ignore[method-assign]

    guarded.__init__ = open_if_allowed  # type: ignore[method-assign]
    return end


@contextmanager
def no_sockets() -> Iterator[None]:
    """Refuse sockets to this task, its children, and their worker threads.

    Raises:
        UsageError: where a socket is opened; a real socket was refused.
    """
    run = object()
    with ExitStack() as stack:
        with _lock:
            if not _runs:
                _end.append(_guard())
            _runs.add(run)
            stack.callback(_end_run, run)
        stack.callback(_forbidden.reset, _forbidden.set(True))
        yield


def _end_run(run: object) -> None:
    with _lock:
        _runs.discard(run)
        if not _runs:
            _end.pop()()
