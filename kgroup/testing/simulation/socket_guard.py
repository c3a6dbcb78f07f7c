"""Inside a simulation no real socket is made: it would bring real time and other machines in.

Source: ``sys.addaudithook`` (PEP 578); the hook stays for the life of the process and sleeps.
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
            "a real socket was about to be made inside a simulation, where the network is"
            " simulated and time is virtual: give what connects a stand-in"
        )


@cache
def _install() -> None:
    sys.addaudithook(_hook)


@contextmanager
def no_sockets() -> Iterator[None]:
    """Refuse sockets to this task, its children, and their worker threads.

    Raises (from whoever makes one):
        UsageError: says so.
    """
    _install()
    token = _forbidden.set(True)
    try:
        yield
    finally:
        _forbidden.reset(token)
