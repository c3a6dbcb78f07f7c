"""The thread in which a group's event loop runs: calls of other threads are refused by name.

trio's objects may be used only there. A call from another thread would change half of them and then
fail somewhere inside, and a group that was changed by half may never close.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import final

import trio

from kgroup.errors import UsageError
from kgroup.worker_thread import post_to


@final
class LoopThread:
    """The thread of trio's event loop, in which this object is made."""

    def __init__(self) -> None:
        self._ident = threading.get_ident()
        self._process = os.getpid()
        self._token = trio.lowlevel.current_trio_token()

    @property
    def is_here(self) -> bool:
        """Whether the caller is in this thread."""
        return threading.get_ident() == self._ident

    @property
    def forked(self) -> bool:
        """Whether this process is a fork of the one in which the loop runs."""
        return os.getpid() != self._process

    def post(self, fn: Callable[[], object]) -> None:
        """Call a function there soon, without waiting; not if the event loop has ended."""
        post_to(self._token, fn)

    def check(self, owner: object, call: str, *, waits: bool = False) -> None:
        """Check that a call is made in this thread.

        Args:
            owner: the group or the membership, as the error names it.
            call: the method, with the name of its object.
            waits: whether it is an async function.

        Raises:
            UsageError: it is another thread, or a process that was forked from this one.
        """
        if self.forked:
            raise UsageError(
                f"{owner}: {call}() was called in a forked process, which shares the connections of"
                f" process {self._process}; nothing was done. Only that process is the member; make"
                " a group of its own in each process, after the fork"
            )
        if self.is_here:
            return
        run = "run" if waits else "run_sync"
        raise UsageError(
            f"{owner}: {call}() was called in thread {threading.current_thread().name!r}, and the"
            f" group runs in another one; nothing was done. In a thread that"
            f" trio.to_thread.run_sync has started, call trio.from_thread.{run}({call}, ...). The"
            " groups of kgroup.threaded and their generations can be called from any thread"
        )
