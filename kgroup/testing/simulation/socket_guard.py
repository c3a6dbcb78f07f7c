"""Refuses real sockets inside a simulation: they would bring in real time and other machines.

Source: ``sys.addaudithook`` (PEP 578). A hook cannot be removed; outside simulations it does
nothing.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from typing import Final

from kgroup.errors import UsageError

_forbidden: Final[ContextVar[bool]] = ContextVar("kgroup_no_sockets", default=False)


def _hook(event: str, arguments: tuple[object, ...]) -> None:
    del arguments
    if event == "socket.__new__" and _forbidden.get():
        raise UsageError(
            "the program tried to open a real socket inside a simulation, where the network is"
            " simulated and time is virtual: replace what connects by a stand-in"
        )


@cache
def _install() -> None:
    sys.addaudithook(_hook)


@contextmanager
def no_sockets() -> Iterator[None]:
    """Refuse sockets to this task, its children, and their worker threads.

    Raises:
        UsageError: where a socket is opened; a real socket was refused.
    """
    _install()
    token = _forbidden.set(True)
    try:
        yield
    finally:
        _forbidden.reset(token)
